"""Topics of the pipeline's tests."""

from pathlib import Path

import pytest
from tierctl.model import RemotePartitionDeleteState

from tests.metadata.events import partition_delete, started, update
from tests.pipeline.tables import lives, write
from tests.state.histories import S


@pytest.fixture
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a disk shows nothing where no power cut is played."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Four metadata partitions with a little of everything."""
    folder = tmp_path / "topic"
    odd = [update(77), update(0, S.DELETE_SEGMENT_FINISHED), update(0, S.DELETE_SEGMENT_FINISHED)]
    mark = partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition=2)
    write(folder, [*lives(range(12)), *odd, mark, b"\x01\x63\x00", started(40)])
    return folder
