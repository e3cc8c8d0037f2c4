"""Findings while brokers run: only those that remain after the leader is queried again."""

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tierctl.checks.cross_check import Verification
from tierctl.checks.segments import ClusterCheck
from tierctl.model import EpochEntry, Selection, TopicIdPartition, Uuid
from tierctl.model.choices import Severity
from tierctl.model.local import ClusterLog
from tierctl.state.tier_state import Question, TierState, keep_facts

from tests.plan.tier import NOW_MS, OTHER_ID, PARTITION, TOPIC_ID, S, advance, segment, tier
from tests.support.fake_cluster import FakeCluster, cluster_log, topic_facts

FIRST, SECOND = segment(1, 0, 49, (0, 0)), segment(2, 50, 79, (0, 50))
THIRD = segment(3, 80, 89, (0, 80))
LOG = cluster_log(PARTITION, local_log_start_offset=80)


class Cluster(FakeCluster):
    """Return one log after the other, the last one repeatedly; None is a partition without leader."""

    def __init__(self, logs_told: list[ClusterLog | None], topic_id: Uuid = TOPIC_ID) -> None:
        super().__init__(facts={"orders": topic_facts("orders", topic_id, [1])})
        self.logs_told = logs_told
        self.asked: list[str] = []

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        self.asked.append("leader")
        told = self.logs_told.pop(0) if len(self.logs_told) > 1 else self.logs_told[0]
        return [told] if told is not None and partitions else []


def elsewhere(whole: TierState) -> TierState:
    """Return facts about a state that another process has."""

    def answers(question: Question, _metadata_partitions: Collection[int]) -> Iterator[Any]:
        sent: Question = pickle.loads(pickle.dumps(question))
        yield from pickle.loads(pickle.dumps(list(sent(whole))))

    facts: TierState = pickle.loads(pickle.dumps(whole))
    keep_facts(facts)
    facts.elsewhere = answers
    return facts


@pytest.fixture(params=[lambda state: state, elsewhere], ids=["here", "elsewhere"])
def found(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Return a function that returns the findings, with the segments in this process and in another one."""
    return partial(_found, request.param)


def _found(
    where: Callable[[TierState], TierState],
    cluster: Cluster,
    meanwhile: Callable[[TierState], None] = lambda _state: None,
) -> list[Any]:
    """Return the findings; `meanwhile` runs before the metadata is read a second time."""
    state = tier(FIRST, SECOND)

    def refresh() -> TierState:
        if "metadata" in cluster.asked:
            meanwhile(state)
        cluster.asked.append("metadata")
        return where(state)

    made: Any = cluster
    verification = Verification(
        refresh=refresh,
        deleted_among=lambda _: (),
        deleted_of=lambda _: (),
        selection=Selection(),
        now_ms=NOW_MS,
        cluster=ClusterCheck(made),
    )
    return [(str(f.check), f.severity, f.start_offset, f.end_offset) for f in verification.findings()]


def copy_third(state: TierState) -> None:
    advance(state, THIRD, S.COPY_SEGMENT_FINISHED)


LOCAL_FROM_90 = replace(LOG, local_log_start_offset=90)
AHEAD, BEHIND = replace(LOG, latest_tiered_offset=89), replace(LOG, latest_tiered_offset=49)
CUT = replace(
    LOG,
    log_end_offset=60,
    high_watermark=60,
    last_stable_offset=60,
    local_log_start_offset=0,
    latest_tiered_offset=None,
)
ERROR, WARNING = Severity.ERROR, Severity.WARNING


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ([LOG], []),
        ([LOCAL_FROM_90], [("gap", ERROR, 80, 89)]),
        # The hole has grown since.
        ([LOCAL_FROM_90, replace(LOG, local_log_start_offset=95)], [("gap", ERROR, 80, 94)]),
        ([LOCAL_FROM_90, LOG], []),
        ([AHEAD], [("offsets", ERROR, None, None)]),
        ([BEHIND], [("offsets", WARNING, None, None)]),
        ([BEHIND, LOG], []),
        ([BEHIND, AHEAD], []),
        ([replace(LOG, latest_tiered_offset=None)], []),
        # The tier belongs to a former leader, or its records were lost since.
        ([CUT], [("beyond_log_end", ERROR, 50, 79)]),
        (
            [replace(LOG, leader_epochs=(EpochEntry(0, 0), EpochEntry(1, 60)))],
            # Only the first ten offsets of the second segment are readable.
            # No log has the others, so whether the log diverged or lost leader epochs can't be told.
            [("cut_epochs", ERROR, 50, 79), ("offsets", ERROR, None, None)],
        ),
        ([replace(LOG, log_start_offset=60)], [("below_log_start", Severity.INFO, 0, 49)]),
        ([None], [("unseen_leader", WARNING, None, None)]),
    ],
)
def test_findings(told: list[ClusterLog | None], wanted: list[Any], found: Callable[..., list[Any]]) -> None:
    cluster = Cluster(list(told))
    assert sorted(found(cluster)) == sorted(wanted)
    # The log is read after the metadata, so it is never behind its tier; in doubt both are read again.
    assert cluster.asked in (["metadata", "leader"], ["metadata", "leader", "leader", "metadata"])


@pytest.mark.parametrize("told", [LOCAL_FROM_90, AHEAD])
def test_what_was_copied_meanwhile_is_no_finding(told: ClusterLog, found: Callable[..., list[Any]]) -> None:
    assert found(Cluster([told]), copy_third) == []


def test_a_topic_that_the_controller_does_not_know(found: Callable[..., list[Any]]) -> None:
    findings = found(Cluster([LOG], topic_id=OTHER_ID))
    assert findings == [("recreated_topic", WARNING, None, None)]
