"""A broker serves and tiers messages of the formats 0 and 1; tierctl reads the same records as a consumer."""

import shutil
from pathlib import Path

import pytest
from tierctl.model import TopicPartition
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

from tests.commands.restore.test_materialise import rows
from tests.commands.test_old_messages import END, EXPECTED, SEGMENTS, shown
from tests.live.commands import tierctl
from tests.locallog.made import write_log
from tests.support.broker import Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PARTITION = TopicPartition("old-messages", 0)


@pytest.mark.matrix
def test_the_records_of_a_broker_that_tiers_old_messages(brokers: Brokers, tmp_path: Path) -> None:
    broker = brokers.own()
    try:
        broker.create_topic(PARTITION.topic, tiered=True, retention_ms="-1")
        broker.stop()
        snapshots = {13: (), 26: (), END: ()}
        made = write_log(tmp_path / "made", SEGMENTS, partition=PARTITION, snapshots=snapshots)
        (made / "partition.metadata").unlink()
        folder = broker.log_dir / str(PARTITION)
        for path in folder.glob("0*"):
            path.unlink()
        shutil.copytree(made, folder, dirs_exist_ok=True)
        for kind in ("recovery-point", "replication"):
            checkpoint = broker.log_dir / f"{kind}-offset-checkpoint"
            offsets = read_offset_checkpoint(checkpoint.read_bytes()) | {PARTITION: END}
            checkpoint.write_bytes(write_offset_checkpoint(offsets))
        broker.start()
        broker.await_idle()
        told = broker.records(PARTITION.topic)
    finally:
        broker.stop()
    tier = ("--metadata", broker.log_dir, "--remote", broker.remote_dir)
    segments = rows("segments", *tier, "--topic", PARTITION.topic)
    assert [row["end_offset"] for row in segments] == [12, 25, 34]
    assert shown(rows("fetch", *tier, "--topic", PARTITION.topic)) == EXPECTED
    # The client says 0 for a record without a timestamp.
    wanted = [
        (row["offset"], max(int(str(row["timestamp_ms"])), 0), row["key"], row["value"]) for row in EXPECTED
    ]
    assert [(at, ms, (key or b"").decode(), (value or b"").decode()) for at, ms, key, value in told] == wanted
    verified = tierctl("verify", *tier, "--deep", "--log-dir", broker.log_dir)
    assert verified.code == 0, verified.out
    new = ("--metadata", tmp_path / "new", "--remote", broker.remote_dir)
    tierctl("rebuild", *new, "--apply").ok()
    assert shown(rows("fetch", *new, "--topic", PARTITION.topic)) == EXPECTED
