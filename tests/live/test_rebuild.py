"""The metadata of a broker's tier is lost and rebuilt from its objects: the broker serves all records.

The cases are those of the design's table: a1 the brokers were not started since the loss, a2r a broker was,
a3 the topic was made again, a8 only the newer events were lost. test_rebuild_online.py has the others, and
tests/plan/rebuild/test_log_start.py what is refused after a broker raised the log starts.
test_restore.py, test_restore_new_ids.py and test_restore_check.py have those of a lost cluster.
"""

import shutil

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import EpochEntry, TopicPartition
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_leader_epoch_checkpoint

from tests.live.commands import applied, on_disk, plan, refused, tierctl, where
from tests.live.history import (
    PARTITIONS,
    TOPICS,
    Cluster,
    batch_ends,
    check_everything,
    disable_copying,
    enable_copying,
    lose_metadata,
    run_until_damaged,
    tier,
)
from tests.support.broker import METADATA_PARTITIONS, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
LOG_STARTS = "log-start-offset-checkpoint"


def offline(broker: Broker, *more: object) -> tuple[object, ...]:
    return ("rebuild", *on_disk(broker), *more)


def add_needless_sets(broker: Broker) -> None:
    """Add a copy of a segment, one with an index of other epochs, and half of another segment."""
    whole, half = sorted(broker.remote_dir.glob("kafka-tiered-storage/plain-0-*/*.log"))[1:3]
    for path in list(whole.parent.glob(f"{whole.stem}.*")):
        for segment_id in ("AAAAAAAAAAAAAAAAAAAAAQ", "CAAAAAAAAAAAAAAAAAAAAQ"):
            shutil.copy(path, path.with_name(path.name[:21] + segment_id + path.suffix))
    (wrong,) = whole.parent.glob("*-CAAAAAAAAAAAAAAAAAAAAQ.leader_epoch_checkpoint")
    wrong.write_bytes(write_leader_epoch_checkpoint([EpochEntry(0, 0)]))
    shutil.copy(half, half.with_name(half.name[:21] + "BAAAAAAAAAAAAAAAAAAAAQ.log"))


def test_a1_nothing_ran_since_the_loss(cluster: Cluster, twin: Broker) -> None:
    """Sets that serve nothing are published as being deleted: the broker leaves nothing of them."""
    before = tier(twin)
    add_needless_sets(twin)
    found = tier(twin)
    lose_metadata(twin)
    preview = plan(*offline(twin))
    actions = [step["action"] for step in preview["steps"]]
    assert (set(actions), actions.count("discard_segment")) == ({"publish_segment", "discard_segment"}, 3)
    reasons = " ".join(step["reason"] for step in preview["steps"] if step["action"] == "discard_segment")
    for reason in ("serves its offsets", "its leader-epoch index is wrong", "incomplete: it has no .index"):
        assert reason in reasons
    assert not list(twin.log_dir.glob("__remote_log_metadata-*/*.log"))
    applied(*offline(twin, "--apply"))
    assert tier(twin) == found
    again = plan(*offline(twin))
    assert again["steps"] == []
    twin.start()
    check_everything(twin, cluster, before)


def log_starts(broker: Broker) -> dict[tuple[str, int], int]:
    found = read_offset_checkpoint((broker.log_dir / LOG_STARTS).read_bytes())
    return {key: found[TopicPartition(*key)] for key in PARTITIONS if TopicPartition(*key) in found}


def test_a2r_a_broker_ran_with_the_empty_topic(cluster: Cluster, twin: Broker) -> None:
    """The broker raised the log starts, cut the leader epochs, and copied its local segments again."""
    before = tier(twin)
    lose_metadata(twin)
    run_until_damaged(twin, cluster.starts)
    preview = tierctl(*offline(twin))
    assert preview.code == 0
    assert "--apply would refuse this: plain-0: the log start is" in preview.err
    assert "--log-start tier" in refused(*offline(twin))
    kept = plan(*offline(twin, "--log-start", "disk"))
    assert {step["action"] for step in kept["steps"]} <= {"discard_segment", "publish_segment"}
    done = applied(*offline(twin, "--log-start", "tier", "--apply"))
    actions = [step["action"] for step in done["steps"]]
    assert actions.count("write_checkpoints") == len(PARTITIONS)
    assert log_starts(twin) == cluster.starts
    assert (twin.log_dir / "plain-0" / "leader-epoch-checkpoint.bak").exists()
    assert before.items() <= tier(twin).items()
    twin.start()
    check_everything(twin, cluster, before)


def lose_newer(broker: Broker) -> None:
    """Cut every metadata log in the middle, at a batch; each batch has one record."""
    for log in broker.log_dir.glob("__remote_log_metadata-*/*.log"):
        data = log.read_bytes()
        ends = batch_ends(data)
        # The STARTED and FINISHED events of a segment are both kept or both cut.
        log.write_bytes(data[: ends[(len(ends) - 1) // 4 * 2]])
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).unlink(missing_ok=True)


def test_a8_only_the_newer_events_were_lost(cluster: Cluster, twin: Broker) -> None:
    """The broker ran with the older events and copied again; the other events are published to it."""
    before = tier(twin)
    lose_newer(twin)
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    online = ("rebuild", *where(twin))
    said = refused(*online)
    for setting in ("remote.log.copy.disable=true", "local.retention.ms=-2", "local.retention.bytes=-2"):
        assert setting in said
    disable_copying(twin)
    applied(*online, "--apply")
    twin.await_idle()
    enable_copying(twin)
    check_everything(twin, cluster, before)


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
    online = ("rebuild", *where(twin))
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
