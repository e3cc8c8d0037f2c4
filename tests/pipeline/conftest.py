"""Metadata topics for the tests of the pipeline."""

from pathlib import Path

import pytest

from tests.pipeline.tables import write_all_kinds


@pytest.fixture
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync by a no-op: these tests cut no power."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Return four metadata partitions with events of all kinds."""
    write_all_kinds(tmp_path / "topic")
    return tmp_path / "topic"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return where a warehouse may be made."""
    return tmp_path / "warehouse"
