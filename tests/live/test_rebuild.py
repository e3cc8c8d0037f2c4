"""The metadata of a broker's tier is lost and rebuilt from its objects: the broker serves all records.

The cases are those of the design's table: a1 the brokers were not started since the loss, a2r a broker was,
a8 only the newer events were lost. test_rebuild_online.py and test_fatal_variants.py have the others.
"""

import shutil

import pytest
from tierctl.model import EpochEntry
from tierctl.model import TopicPartition as Partition
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_leader_epoch_checkpoint

from tests.live.commands import applied, on_disk, plan, tierctl
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
from tests.support.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


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


@pytest.mark.matrix
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
    found = read_offset_checkpoint((broker.log_dir / "log-start-offset-checkpoint").read_bytes())
    return {key: found[Partition(*key)] for key in PARTITIONS if Partition(*key) in found}


@pytest.mark.matrix
def test_a2r_a_broker_ran_with_the_empty_topic(cluster: Cluster, twin: Broker) -> None:
    """The broker raised the log starts, cut the leader epochs, and copied its local segments again."""
    before = tier(twin)
    lose_metadata(twin)
    twin.start()
    await_damage(twin, cluster)
    twin.stop()
    preview = tierctl(*offline(twin))
    assert preview.code == 0
    assert "--apply would refuse this: plain-0: the log start is" in preview.err
    refused = tierctl(*offline(twin, "--apply"))
    assert (refused.code, "--log-start tier" in refused.err) == (4, True), refused.err
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


@pytest.mark.matrix
def test_a2_publishing_without_the_checkpoints_is_refused_with_the_reason(
    cluster: Cluster, twin: Broker
) -> None:
    """A plan that was made before the broker ran is refused, too."""
    lose_metadata(twin)
    saved = twin.folder / "rebuild.plan"
    plan(*offline(twin, "--plan-out", saved))
    twin.start()
    await_damage(twin, cluster)
    refused = tierctl(*offline(twin, "--apply"))
    assert refused.code == 4
    assert "a broker is running on" in refused.err or "a running broker holds" in refused.err
    twin.stop()
    before = tier(twin)
    stale = tierctl("apply", saved, *on_disk(twin), "--apply")
    assert stale.code == 4, stale.err
    assert "complete segments from 0 on" in stale.err
    assert tier(twin) == before


def lose_newer(broker: Broker) -> None:
    """Cut every metadata log in the middle, at a batch; each batch has one record."""
    for log in broker.log_dir.glob("__remote_log_metadata-*/*.log"):
        data = log.read_bytes()
        ends = batch_ends(data)
        # The STARTED and FINISHED events of a segment are both kept or both cut.
        log.write_bytes(data[: ends[(len(ends) - 1) // 4 * 2]])
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).unlink(missing_ok=True)


@pytest.mark.matrix
def test_a8_only_the_newer_events_were_lost(cluster: Cluster, twin: Broker) -> None:
    """The broker ran with the older events and copied again; the other events are published to it."""
    before = tier(twin)
    lose_newer(twin)
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    online = ("rebuild", "--metadata", f"kafka://{twin.bootstrap}", "--remote", twin.remote_dir)
    refused = tierctl(*online, "--apply")
    assert refused.code == 4, refused.err
    for setting in ("remote.log.copy.disable=true", "local.retention.ms=-2", "local.retention.bytes=-2"):
        assert setting in refused.err
    disable_copying(twin)
    applied(*online, "--apply")
    twin.await_idle()
    enable_copying(twin)
    check_everything(twin, cluster, before)
