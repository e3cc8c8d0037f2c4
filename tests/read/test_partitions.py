"""Which partitions are selected if names, ids and logs disagree."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.errors import NotFoundError, UsageError
from tierctl.model import EpochEntry, LocalLog, RemoteLogSegmentState, Selection, Uuid
from tierctl.read.partition_reader import readable_partitions, tiered_partitions
from tierctl.read.readable_log import choose_replica
from tierctl.state.fold import fold_event

from tests.read.tier import Tier

Capture = Callable[[str], Path]
OTHER = Uuid("AAAAAAAAAAAAAAAAAAAAAQ")


@pytest.fixture
def tier(capture: Capture) -> Tier:
    """Return the captured tier, and a second topic with the name orders."""
    root = capture("tiered-cluster")
    tier = Tier.of(root / "before", root / "before-remote", root / "before")
    mine = tier.partition("orders", 0)
    for segment in mine.cache.list_remote_log_segments():
        started = replace(segment, topic_id=OTHER, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        fold_event(started, tier.state, metadata_partition=mine.metadata_partition, metadata_offset=1_000_000)
    return tier


def finish(tier: Tier) -> None:
    part = tier.state.partitions[OTHER, 0]
    for segment in list(part.cache.list_remote_log_segments()):
        tier.move(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def ids(tier: Tier, logs: list[LocalLog], selection: Selection, *, by_name: bool) -> list[str]:
    found = readable_partitions(tier.state, logs, selection, by_name=by_name)
    return [f"{r.topic_id_partition.topic}-{r.topic_id_partition.partition}" for r in found]


ORDERS = Selection(topics=frozenset({"orders"}), partitions=frozenset({0}))


def test_a_topic_with_nothing_to_read_is_passed_over(tier: Tier) -> None:
    assert ids(tier, [], ORDERS, by_name=True) == ["orders-0"]
    assert len(tiered_partitions(tier.state, [], ORDERS)) == 2


def test_two_topics_of_one_name_have_to_be_told_apart_by_id(tier: Tier) -> None:
    finish(tier)
    with pytest.raises(UsageError, match="several topics") as e:
        ids(tier, [], ORDERS, by_name=True)
    assert OTHER in e.value.message
    by_id = Selection(topic_ids=frozenset({OTHER}))
    found = readable_partitions(tier.state, [], by_id, by_name=False)
    assert [r.topic_id_partition.topic_id for r in found] == [OTHER]


def test_the_logs_say_which_topic_has_the_name_now(tier: Tier) -> None:
    finish(tier)
    (found,) = readable_partitions(tier.state, tier.logs, ORDERS, by_name=True)
    assert found.topic_id_partition.topic_id != OTHER
    assert len(found.logs) == 1


def test_unnamed_partitions_are_those_of_the_tier(tier: Tier) -> None:
    finish(tier)
    found = ids(tier, tier.logs, Selection(), by_name=False)
    assert sorted(set(found)) == sorted(
        [
            *("orders-0", "orders-1", "orders-2", "clicks-0", "clicks-1", "metrics-0", "payments-0"),
            *("shortlived-0", "shortlived-1"),
        ]
    )
    assert len(found) == 10


def test_a_log_that_was_never_tiered_is_read_when_named(tier: Tier) -> None:
    del tier.state.partitions[OTHER, 0]
    del tier.state.partitions[tier.partition("orders", 0).topic_id_partition.key]
    assert ids(tier, tier.logs, ORDERS, by_name=True) == ["orders-0"]
    with pytest.raises(NotFoundError) as e:
        ids(tier, tier.logs, Selection(topics=frozenset({"none"})), by_name=True)
    assert "clicks" in (e.value.hint or "")


def test_a_log_without_a_recorded_start_begins_with_its_remote_segments(tier: Tier) -> None:
    """The log directory has no log-start-offset-checkpoint."""
    unrecorded = [
        replace(log, is_log_start_known=False, log_start_offset=log.local_log_start_offset)
        for log in tier.logs
    ]
    found = readable_partitions(tier.state, unrecorded, Selection(), by_name=False)
    starts = {
        one.topic_id_partition: min(
            segment.start_offset
            for segment in one.cache.list_remote_log_segments()
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        )
        for one in found
    }
    assert {one.topic_id_partition: log.log_start_offset for one in found for log in one.logs} == starts
    assert len(starts) > 3


REPLICAS = {
    # (epochs, high watermark, log end) of the replicas, then the replica that is read and its end.
    "the later epoch wins": ([(((0, 0), (2, 900)), 1230, 1230), (((0, 0), (4, 520)), 970, 970)], 1, 970),
    "then the longer log": ([(((0, 0),), 90, 100), (((0, 0),), 100, 120)], 1, 100),
    "a replica that knows more": ([(((0, 0),), 110, 110), (((0, 0),), 100, 120)], 1, 110),
    "of another lineage knows only what is common": (
        [(((0, 0), (2, 900)), 1230, 1230), (((0, 0), (4, 520)), 400, 970)],
        1,
        520,
    ),
    "an epoch without records": (
        [(((0, 0), (5, 1220)), 1550, 1550), (((0, 0), (6, 1550)), 1500, 1550)],
        1,
        1550,
    ),
}


@pytest.mark.parametrize("what", REPLICAS)
def test_which_replica_is_read(tier: Tier, what: str) -> None:
    replicas, chosen, high_watermark = REPLICAS[what]
    template = tier.logs[0]
    logs = [
        replace(
            template,
            leader_epochs=tuple(map(EpochEntry._make, epochs)),
            high_watermark=hw,
            last_stable_offset=hw,
            log_end_offset=end,
        )
        for epochs, hw, end in replicas
    ]
    found = choose_replica(logs)
    assert found is not None
    assert found.log is logs[chosen]
    assert found.high_watermark == high_watermark
