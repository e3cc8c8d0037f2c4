"""Each fatal variant of a lost metadata topic beside a broker: tierctl refuses it and states the reason.

After that the way out is tried: the broker serves everything again. test_restore.py, test_restore_new_ids.py
and test_restore_check.py have the fatal variants of a lost cluster.
"""

from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import TopicPartition
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

from tests.live.commands import applied, tierctl
from tests.live.history import (
    PARTITIONS,
    TOPICS,
    Cluster,
    await_damage,
    batch_ends,
    check_everything,
    disable_copying,
    enable_copying,
    lose_metadata,
    tier,
)
from tests.live.test_rebuild import offline
from tests.support.broker import METADATA_PARTITIONS, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
LOG_STARTS = "log-start-offset-checkpoint"


def refused(*args: object) -> str:
    """The message of a refusal, after which nothing may have changed."""
    ran = tierctl(*args, "--apply")
    assert ran.code == 4, (ran.out, ran.err)
    return ran.err


def rebuild_from_the_tier(broker: Broker) -> None:
    applied(*offline(broker, "--log-start", "tier", "--apply"))


def lose_older(broker: Broker) -> None:
    """Drop the first half of every metadata log, as a retention of the metadata topic does."""
    starts = read_offset_checkpoint((broker.log_dir / LOG_STARTS).read_bytes())
    for log in broker.log_dir.glob(f"{METADATA_TOPIC}-*/*.log"):
        data = log.read_bytes()
        ends = batch_ends(data)
        if len(ends) < 3:
            continue
        left = data[ends[len(ends) // 2] :]
        start = int.from_bytes(left[:8])
        for path in log.parent.iterdir():
            if path.name not in {"partition.metadata", "leader-epoch-checkpoint"}:
                path.unlink()
        log.with_name(f"{start:020d}.log").write_bytes(left)
        starts[TopicPartition(METADATA_TOPIC, int(log.parent.name.rpartition("-")[2]))] = start
    (broker.log_dir / LOG_STARTS).write_bytes(write_offset_checkpoint(starts))


def test_a9_only_the_older_events_were_lost(cluster: Cluster, twin: Broker) -> None:
    """The leader took the first segment that it knew for the start of the log."""
    before = tier(twin)
    lose_older(twin)
    twin.start()
    await_damage(twin, cluster)
    twin.stop()
    said = refused(*offline(twin))
    assert all(f"{topic}-{number}: the log start is" in said for topic, number in PARTITIONS), said
    assert "a broker that knew no segments may have raised it" in said
    assert before.items() <= tier(twin).items()
    rebuild_from_the_tier(twin)
    twin.start()
    check_everything(twin, cluster, before)


def test_a7_one_of_the_two_files_was_put_back(cluster: Cluster, twin: Broker) -> None:
    """Each alone lets the leader delete what is published: the log start, and the leader epochs."""
    whole = {path: path.read_bytes() for path in checkpoints(twin)}
    before = tier(twin)
    lose_metadata(twin)
    twin.start()
    await_damage(twin, cluster)
    twin.stop()
    damaged = {path: path.read_bytes() for path in checkpoints(twin)}
    copied = tier(twin)
    for put_back, reason in (
        ((), "a broker that knew no segments may have raised it"),
        ((twin.log_dir / LOG_STARTS,), "but the leader epochs begin at"),
        (tuple(path for path in whole if path.name != LOG_STARTS), "still in the tier"),
    ):
        for path, content in whole.items():
            path.write_bytes(content if path in put_back else damaged[path])
        said = refused(*offline(twin))
        assert all(f"{topic}-{number}: the log start is" in said for topic, number in PARTITIONS), said
        assert reason in said
    assert tier(twin) == copied
    rebuild_from_the_tier(twin)
    twin.start()
    check_everything(twin, cluster, before)


def checkpoints(broker: Broker) -> list[Path]:
    folders = [broker.log_dir / f"{topic}-{number}" for topic, number in PARTITIONS]
    return [broker.log_dir / LOG_STARTS, *(folder / "leader-epoch-checkpoint" for folder in folders)]


def test_a3_the_metadata_topic_was_made_by_auto_creation(cluster: Cluster, twin: Broker) -> None:
    """It was deleted under the running broker, whose own consumer made it again: 1 partition, 7 days."""
    before = tier(twin)
    twin.settings["auto.create.topics.enable"] = "true"
    twin.start()
    # A broker that is still starting makes the topic itself, with the right settings.
    twin.wait_for("the metadata", lambda: set(twin.offsets("latest-tiered", *TOPICS)) == set(PARTITIONS))
    disable_copying(twin)
    lost_id = twin.topic_id(METADATA_TOPIC)
    for future in twin.admin.delete_topics([METADATA_TOPIC]).values():
        future.result(30)
    twin.wait_for("the topic to be made again", lambda: twin.topic_id(METADATA_TOPIC) != lost_id, 120)
    online = ("rebuild", "--metadata", f"kafka://{twin.bootstrap}", "--remote", twin.remote_dir)
    said = refused(*online)
    assert "retention.ms=604800000" in said
    assert "partitions: 1" in said
    assert "set retention.ms and retention.bytes of the metadata topic to -1" in said

    twin.add_partitions(METADATA_TOPIC, METADATA_PARTITIONS)
    twin.alter_topic(METADATA_TOPIC, retention_ms="-1")
    twin.restart()
    applied(*online, "--apply")
    enable_copying(twin)
    check_everything(twin, cluster, before)
