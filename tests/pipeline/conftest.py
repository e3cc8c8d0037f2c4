"""Metadata topics for the tests of the pipeline."""

from pathlib import Path

import pytest
from tierctl.model import RemotePartitionDeleteState

from tests.metadata.events import partition_delete, started, update
from tests.pipeline.tables import lives, write
from tests.state.histories import S


@pytest.fixture
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync by a no-op: these tests cut no power."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Return four metadata partitions with events of all kinds."""
    folder = tmp_path / "topic"
    odd = [update(77), update(0, S.DELETE_SEGMENT_FINISHED), update(0, S.DELETE_SEGMENT_FINISHED)]
    mark = partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition=2)
    write(folder, [*lives(range(12)), *odd, mark, b"\x01\x63\x00", started(40)])
    return folder
