"""A captured tier for command lines."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def tier(capture: Callable[[str], Path]) -> list[str]:
    """Return the options that name a captured tier and its metadata topic, which no test changes."""
    root = capture("tiered-cluster")
    return ["--metadata", str(root / "before"), "--remote", str(root / "before-remote")]


@pytest.fixture
def after(capture: Callable[[str], Path]) -> Path:
    """Return a captured log directory with the metadata topic, which no test changes."""
    return capture("tiered-cluster") / "after"
