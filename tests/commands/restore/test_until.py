"""`restore log --until` at every offset of a log, also within batches, and within a batch of each codec."""

from pathlib import Path

import pytest
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.cli.shell import tierctl
from tests.commands.restore.test_materialise import new_id, records, restore, restored
from tests.locallog.made import PARTITION, TIME_MS, write_log

SEGMENTS = [[[0, 1, 2], [3]], [[4, 5], [7, 9, 10]], [[11, 12, 13, 14]]]
"""Offsets of records by segment and batch; compaction removed the records between."""
END = 15


def _batch(offsets: list[int], compression: CompressionType) -> bytes:
    made = [
        # Times fall and rise: the largest one of a batch is not always the last.
        Record(at, TIME_MS - 7 * (at % 3), b"k%d" % at, b"v" * 100, (("h", b"%d" % at),))
        for at in offsets
    ]
    return encode_batch(made, base_offset=offsets[0], last_offset=offsets[-1], compression=compression)


@pytest.mark.parametrize("compression", CompressionType, ids=lambda each: each.name)
def test_a_log_ends_before_each_offset(tmp_path: Path, compression: CompressionType) -> None:
    log_dir = tmp_path / "broker"
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    batches = [[_batch(offsets, compression) for offsets in segment] for segment in SEGMENTS]
    snapshots = {segment[0][0]: () for segment in SEGMENTS[1:]} | {END: ()}
    write_log(tmp_path / "old", [*batches, []], snapshots=snapshots)
    tier = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "old-tier")
    (tmp_path / "metadata").mkdir()
    copy = ("copy", *tier, "--log-dir", tmp_path / "old", "--topic", PARTITION.topic, "--assume-enabled")
    tierctl(*copy, "--layout", "kafka", "--apply").ok()
    everything = records(*tier)
    assert [each[1] for each in everything] == [at for s in SEGMENTS for batch in s for at in batch]
    for end in range(1, END + 1) if compression is CompressionType.NONE else (2, 10, 13):
        options = ("--topic", PARTITION.topic, "--as", f"then-{end}", "--as-id", new_id(f"{end:x}f"))
        ran = restore(log_dir, *tier, *options, "--until", f"{PARTITION}={end}", "--apply").ok()
        found = restored(log_dir, f"then-{end}", "read_uncommitted")
        assert found == [each for each in everything if int(str(each[1])) < end]
        assert "clock" not in ran.err
    later = ("--topic", PARTITION.topic, "--as", "later", "--as-id", new_id("aaf"))
    ran = restore(log_dir, *tier, *later, "--until", "2100-01-01T00:00:00Z")
    assert (ran.code, "markers of transactions count by the broker's clock" in ran.err) == (0, True), ran.err
