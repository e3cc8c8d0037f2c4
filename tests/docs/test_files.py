"""Every command line in a block of code that needs no broker runs and prints what the document shows."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, README, Document
from tests.docs.running import run_all, write_profile
from tests.docs.world import captured_files


@pytest.fixture
def names(capture: Callable[[str], Path], tmp_path: Path) -> Mapping[str, object]:
    """Return the values that replace names in command lines: captured data, and empty folders."""
    return captured_files(capture, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_command_lines_run(document: Document, names: Mapping[str, object], tmp_path: Path) -> None:
    if document is not README and document.blocks("toml"):
        write_profile(document, names, tmp_path)
    elsewhere = ("asks_cluster", "runs_spark", "is_stock_consumer")
    mine = (each for each in document.commands if not any(getattr(each, name) for name in elsewhere))
    run_all(mine, names, tmp_path)
