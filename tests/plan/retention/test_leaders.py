"""The log start, epochs and offsets that a running leader reports, and which of them are trusted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, TopicConfig
from tierctl.model.local import BrokerFacts, ClusterLog
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.plan.choose_sets import merge_lineage
from tierctl.plan.expiry import plan_retention
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.views import (
    ClusterViews,
    LeaderBytes,
    LeaderBytesOf,
    Leaders,
    LeaderView,
    knows_log_start,
)
from tierctl.state.log_start import extended_below

from tests.plan.tier import NOW_MS, OTHER_ID, PARTITION, TOPIC_ID, S, advance, local_log, segment, tier
from tests.support.fake_cluster import cluster_log

Epochs = Sequence[tuple[int, int]]
KNOWN = CurrentTopics({"orders": frozenset({TOPIC_ID})}, is_complete=True)
NOBODY = CurrentTopics({}, is_complete=True)
ANEW = CurrentTopics({"orders": frozenset({OTHER_ID})}, is_complete=True)


def leader_log(start: int = 0, end: int = 350, epochs: Epochs = ((0, 0),)) -> ClusterLog:
    ends = dict.fromkeys(("high_watermark", "last_stable_offset", "log_end_offset"), end)
    starts = {"log_start_offset": start, "local_log_start_offset": start, "latest_tiered_offset": None}
    return cluster_log(PARTITION, leader_epochs=tuple(EpochEntry(*each) for each in epochs), **starts, **ends)


@pytest.mark.parametrize(
    ("tiers", "known"),
    # For a topic whose settings state remote.storage.enable=true, do not state it, and state false.
    [(True, (True, True, True)), (False, (False, True, True)), (None, (False, True, True))],
)
def test_who_knows_where_the_log_starts(tiers: bool | None, known: tuple[bool, ...]) -> None:
    broker = BrokerFacts(broker_id=1, host="b", port=1, tiers=tiers)
    configs = [TopicConfig(remote_storage_enable=enabled) for enabled in (True, None, False)]
    assert tuple(knows_log_start(broker, config) for config in configs) == known


@pytest.mark.parametrize(
    ("of_tier", "of_leader", "joined"),
    [
        ([[(0, 0), (2, 50)]], [(2, 120), (3, 200)], [(0, 0), (2, 50), (3, 200)]),
        ([[(0, 0)]], [(3, 200)], [(0, 0), (3, 200)]),
        ([[(0, 0), (2, 150)]], [(2, 120), (3, 200)], [(0, 0), (2, 120), (3, 200)]),
        ([[(0, 0), (5, 150)]], [(3, 200)], [(0, 0), (3, 200)]),
        ([[(2, 90)], [(0, 0), (1, 50)]], [(2, 120), (3, 200)], [(0, 0), (1, 50), (2, 90), (3, 200)]),
        ([[(0, 0)]], [], [(0, 0)]),
        ([[]], [(1, 7)], [(1, 7)]),
        ([], [], []),
    ],
)
def test_joined_lineages(of_tier: Sequence[Epochs], of_leader: Epochs, joined: Epochs) -> None:
    older = [[EpochEntry(*e) for e in entries] for entries in of_tier]
    found = merge_lineage([EpochEntry(*e) for e in of_leader], older)
    assert [tuple(entry) for entry in found.entries] == list(joined)


BASES = [0, 100, 200]
SEGMENTS = [segment(1 + n, base, base + 99, max_timestamp_ms=NOW_MS) for n, base in enumerate(BASES)]


def deleted(views: ClusterViews, config: TopicConfig, now_ms: int = NOW_MS) -> list[tuple[int | None, str]]:
    plan = plan_retention(tier(*SEGMENTS), [], {"orders": config}, now_ms=now_ms, cluster=views)
    return [(step.start_offset, step.details["breach"]) for step in plan.steps]


def views(log: ClusterLog, *, local_only_bytes: int | None, index: Epochs | None = None) -> ClusterViews:
    entries = None if index is None else [EpochEntry(*entry) for entry in index]
    view = LeaderView(log=log, tier_entries=entries, local_only_bytes=local_only_bytes)
    return ClusterViews(topics=KNOWN, views={PARTITION.key: view})


@pytest.mark.parametrize(
    ("epoch", "index"), [(0, ((0, 0),)), (1, ((0, 0),)), (1, ((0, 200),)), (1, ((1, 300),))]
)
def test_a_leader_that_forgot_its_tier_deletes_nothing_of_it(epoch: int, index: Epochs) -> None:
    """If a segment was copied while such a leader ran, its index begins at the local log start."""
    log, old = leader_log(start=300, epochs=((epoch, 300),)), TopicConfig(retention_ms=1)
    seen = views(log, local_only_bytes=100, index=index)
    assert deleted(seen, TopicConfig()) == []
    assert [offset for offset, _ in deleted(seen, old, NOW_MS + 5)] == BASES
    assert [offset for offset, _ in deleted(views(log, local_only_bytes=100), TopicConfig())] == BASES


@pytest.mark.parametrize(
    ("index", "epochs", "extended"),
    [
        (((0, 200),), (((0, 0),), ((0, 100),)), ((0, 0),)),
        (((2, 200),), (((0, 0), (1, 50)), ((1, 100),)), ((0, 0), (1, 50), (2, 200))),
        (((0, 0),), (((0, 0),), ((0, 100),)), ((0, 0),)),
        (((2, 200), (3, 220)), (((0, 0),), ((1, 100), (2, 150))), ((0, 0), (1, 100), (2, 150), (3, 220))),
        # Epochs of another lineage do not continue those of the index.
        (((2, 200),), (((1, 0),), ((0, 100),)), ((2, 200),)),
        (((2, 200),), (((4, 0),), ((5, 100),)), ((2, 200),)),
        ((), (((0, 0),),), ()),
    ],
)
def test_an_index_is_extended_by_older_segments(
    index: Epochs, epochs: Sequence[Epochs], extended: Epochs
) -> None:
    older = [segment(n, n * 100, n * 100 + 99, *entries) for n, entries in enumerate(epochs)]
    state = tier()
    for each in older:
        advance(state, each)
    entries_of_index = [EpochEntry(*entry) for entry in index]
    (part,) = state
    assert [tuple(entry) for entry in extended_below(entries_of_index, part.segments)] == list(index)
    for each in older:
        advance(state, each, S.COPY_SEGMENT_FINISHED)
    assert [tuple(entry) for entry in extended_below(entries_of_index, part.segments)] == list(extended)


def test_size_counts_what_only_the_leader_has() -> None:
    config = TopicConfig(retention_bytes=250)
    assert deleted(views(leader_log(), local_only_bytes=50), config) == [(0, "retention.bytes")]
    assert len(deleted(views(leader_log(), local_only_bytes=150), config)) == 2
    assert deleted(views(leader_log(), local_only_bytes=None), config) == []


@pytest.mark.parametrize(
    ("local_start", "version", "notes"), [(300, "4.3", 1), (301, "4.3", 0), (0, "4.4", 0)]
)
def test_before_4_4_a_last_segment_of_one_offset_counts_twice(
    local_start: int, version: str, notes: int
) -> None:
    """The leader does not tell where its segments begin: one may begin where the last copied one does."""
    state = tier(*SEGMENTS, segment(4, 300, 300))
    log = replace(leader_log(), local_log_start_offset=local_start)
    configs = {"orders": TopicConfig(retention_bytes=400, kafka_version=KafkaVersion.parse(version))}
    plan = plan_retention(state, [], configs, now_ms=NOW_MS, cluster=views(log, local_only_bytes=50))
    assert [step.start_offset for step in plan.steps] == []
    assert ["brokers also count 100 bytes" in skip.reason for skip in plan.skipped] == [True] * notes


@pytest.mark.parametrize(
    ("segments", "local_bytes", "limit_bytes", "answer"),
    [
        (SEGMENTS, 50, -1, LeaderBytes()),
        (SEGMENTS[:0], 50, 0, LeaderBytes()),
        (SEGMENTS, 50, 350, LeaderBytes(50)),
        (SEGMENTS, 51, 350, LeaderBytes(from_offset=300)),
        (SEGMENTS, None, 350, LeaderBytes(from_offset=300)),
        (SEGMENTS[:2], 51, 250, LeaderBytes(from_offset=200)),
    ],
)
def test_a_leader_is_asked_only_for_bytes_that_decide(
    segments: Sequence[RemoteLogSegmentMetadata],
    local_bytes: int | None,
    limit_bytes: int,
    answer: LeaderBytes,
) -> None:
    leader = LeaderView(log=replace(leader_log(), local_log_bytes=local_bytes))
    state = tier(*segments)
    advance(state, segment(9, 300, 349))
    question = LeaderBytesOf(views={PARTITION.key: leader}, limits_bytes={PARTITION.key: limit_bytes})
    assert list(question(state)) == [(PARTITION, answer)]


def test_what_the_cluster_does_not_know_or_tell_is_left() -> None:
    config = TopicConfig(retention_bytes=0)
    full = views(leader_log(), local_only_bytes=50)
    unseen = replace(full, views={}, unseen={PARTITION.key: "it has no leader now"})
    for seen, reason in (
        (replace(full, topics=NOBODY), "has no topic of this name"),
        (replace(full, topics=ANEW), "has this topic under id"),
        (unseen, "no leader"),
    ):
        plan = plan_retention(tier(*SEGMENTS), [], {"orders": config}, now_ms=NOW_MS, cluster=seen)
        assert plan.steps == ()
        assert reason in plan.skipped[0].reason


def leaders_with(log: ClusterLog) -> Leaders:
    return Leaders(topics=KNOWN, configs={}, logs={PARTITION.key: log}, broker_ids=(1,))


@pytest.mark.parametrize(
    ("replica", "end", "leader", "reason"),
    [
        (((0, 0), (2, 100)), 350, ((0, 0), (2, 100)), None),
        (((0, 0),), 200, ((0, 0), (2, 200)), None),
        (((0, 0),), 250, ((0, 0), (2, 200)), "leader epoch 0 ends at 250 here, at 200 on its leader"),
        (((0, 0), (1, 100)), 350, ((0, 0), (2, 100)), "has leader epoch 1, which its leader does not know"),
        (((0, 0), (2, 120)), 350, ((0, 0), (2, 100)), "leader epoch 2 starts at 120 here, at 100"),
        (((0, 0), (1, 50), (2, 100)), 350, ((2, 150),), None),
        (((0, 0), (3, 350)), 350, ((0, 0),), None),
    ],
)
def test_a_replica_that_parted_from_its_leader_is_no_source(
    replica: Epochs, end: int, leader: Epochs, reason: str | None
) -> None:
    log = local_log([0, 100, 200], end, epochs=replica)
    leaders = leaders_with(leader_log(start=leader[0][1], epochs=leader))
    kept, skipped = leaders.sources([log])
    assert (kept == [log], bool(skipped)) == (reason is None, reason is not None)
    assert reason is None or reason in skipped[0].reason
    assert replace(leaders, topics=NOBODY).sources([log]) == ([log], ())
    assert replace(leaders, topics=ANEW).sources([log])[0] == []


@pytest.mark.parametrize(
    ("checkpoint", "stable", "leader", "leaders_stable", "expected"),
    [
        (0, 0, 300, 300, (300, 300)),
        (0, 0, 900, 900, (350, 350)),
        (100, 100, 300, 200, (300, 200)),
        (100, 100, 300, 50, (300, 100)),
        (340, 200, 300, 300, (340, 200)),
    ],
)
def test_a_source_is_stable_up_to_where_its_leader_says(
    checkpoint: int, stable: int, leader: int, leaders_stable: int, expected: tuple[int, int]
) -> None:
    """The checkpoint of a running broker is some seconds old, or missing."""
    log = local_log([0, 100, 200], 350, high_watermark=checkpoint, last_stable_offset=stable)
    leaders = leaders_with(replace(leader_log(end=leader), last_stable_offset=leaders_stable))
    (kept,), _ = leaders.sources([log])
    assert (kept.high_watermark, kept.last_stable_offset) == expected
