"""What a node's copy of the cluster's metadata says about a topic, and a copy that is not whole."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError
from tierctl.locallog import read_registration
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.model import Uuid
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.kraft import config_record, topic_record

from tests.support.cluster_metadata import partition_record
from tests.support.formatted import DATA

TOPIC, TOPIC_ID = "__remote_log_metadata", Uuid.from_bytes(bytes([1] * 16))
MADE = [topic_record(TOPIC, TOPIC_ID), partition_record(TOPIC_ID, 0, (1, 2))]
MORE = partition_record(TOPIC_ID, 1, (3,))
OTHERS = [config_record("orders", f"setting.{number}", "x") for number in range(900)]
FOLDER = "__cluster_metadata-0"


def write_segment(log_dir: Path, base: int, values: Sequence[bytes]) -> Path:
    path = log_dir / FOLDER / f"{base:020d}.log"
    path.parent.mkdir(exist_ok=True)
    batches = (encode_batch([Record(base + at, 0, None, value)]) for at, value in enumerate(values))
    path.write_bytes(b"".join(batches))
    return path


def write_snapshot(log_dir: Path, values: Sequence[bytes], end: int) -> Path:
    path = log_dir / FOLDER / f"{end:020d}-{1:010d}.checkpoint"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(BootstrapFile.decode((DATA / "4.4.0.checkpoint").read_bytes()).extended(values))
    return path


def replicas(log_dir: Path) -> dict[int, tuple[int, ...]]:
    found = read_registration(log_dir, TOPIC)
    assert found is not None
    return found.replicas


def test_segments_follow_each_other(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, MADE)
    write_segment(tmp_path, 2, [MORE])
    last = write_segment(tmp_path, 3, OTHERS[:1])
    # The end of the last write was not on the disk when the node crashed.
    last.write_bytes(last.read_bytes()[:-1])
    assert replicas(tmp_path) == {0: (1, 2), 1: (3,)}


def test_a_segment_that_lacks_is_told(tmp_path: Path) -> None:
    """Its records may name replicas that get no events, and would lead without them."""
    write_segment(tmp_path, 0, MADE)
    write_segment(tmp_path, 3, OTHERS[:1])
    with pytest.raises(CorruptInputError, match=r"expected a segment from offset 2 on, found 0*3\.log"):
        read_registration(tmp_path, TOPIC)


def test_a_segment_that_was_cut_is_told(tmp_path: Path) -> None:
    first = write_segment(tmp_path, 0, [*MADE, MORE])
    write_segment(tmp_path, 3, OTHERS[:1])
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(CorruptInputError, match=r"expected a segment from offset 2 on, found 0*3\.log"):
        read_registration(tmp_path, TOPIC)


def test_a_snapshot_that_was_cut_is_told(tmp_path: Path) -> None:
    """Without the records at its end, a topic that exists would count as deleted."""
    path = write_snapshot(tmp_path, [*OTHERS, *MADE], 5000)
    write_segment(tmp_path, 5000, [MORE])
    assert replicas(tmp_path) == {0: (1, 2), 1: (3,)}
    whole = path.read_bytes()
    for size in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptInputError, match="expected a footer at its end, found none"):
            read_registration(tmp_path, TOPIC)
