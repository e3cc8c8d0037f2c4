"""Random tiers: sweeps of them come to an end and copies are contiguous; other tests use them, too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import LocalLog, RemoteLogSegmentMetadata, TopicConfig, TopicPartition
from tierctl.plan.copy import plan_copy
from tierctl.plan.expiry import plan_retention
from tierctl.plan.steps import Plan
from tierctl.state.tier_state import TierState

from tests.plan.retention.kip_broker import epoch_at, highest_copied
from tests.plan.tier import DAY_MS, NOW_MS, OTHER_ID, TOPIC_ID, S, advance, local_log, segment, tier
from tests.simulation.invariants import epochs_of
from tests.state.reference import epoch_end_offset
from tests.support.amounts import examples
from tests.support.topic_settings import enabled_configs

Epochs = tuple[tuple[int, int], ...]

BYTES_AN_OFFSET = 10
MANY = examples(200)


@dataclass(frozen=True)
class World:
    """A log, the segments of its tier, and its settings; the state has other topics of the same name, too."""

    log: LocalLog
    state: TierState
    segments: tuple[RemoteLogSegmentMetadata, ...]
    config: TopicConfig
    raised_to: int

    def sweep(self, *, moved: int = 0, now_ms: int = NOW_MS, **arguments: Any) -> Plan:
        """Return the plan of a sweep after earlier ones moved the log start to `moved`."""
        return plan_retention(
            self.state,
            [self.log],
            {"orders": self.config},
            now_ms=now_ms,
            log_start_offsets={TopicPartition("orders", 0): max(self.raised_to, moved)},
            **arguments,
        )


def cut(epochs: Sequence[tuple[int, int]], start: int, end: int) -> Epochs:
    return tuple(epochs_of(epochs, start, end))


TIMES = st.sampled_from([-1, 0, 1, NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS, NOW_MS, NOW_MS + DAY_MS])
LIMITS = st.builds(
    TopicConfig,
    retention_ms=st.sampled_from([-1, -1, 0, DAY_MS, DAY_MS - 1, 3 * DAY_MS]),
    retention_bytes=st.sampled_from([-1, -1, 0, 100, 250, 400, 1000]),
)


@st.composite
def lineages(draw: st.DrawFn, end: int) -> Epochs:
    """Return epochs from offset 0 on; the later ones begin somewhere below `end`."""
    starts = sorted(draw(st.sets(st.integers(1, end - 1), max_size=3)))
    numbers = sorted(draw(st.sets(st.integers(1, 9), min_size=len(starts), max_size=len(starts))))
    return ((0, 0), *zip(numbers, starts, strict=True))


@st.composite
def chains(draw: st.DrawFn) -> World:
    """Return a log that is tiered from offset 0 on without gaps, with segments in any state."""
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    bases = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    epochs = draw(lineages(bases[-1] + 5))
    states = draw(
        st.lists(
            st.sampled_from(
                [S.COPY_SEGMENT_FINISHED] * 5 + [S.DELETE_SEGMENT_STARTED, S.COPY_SEGMENT_STARTED]
            ),
            min_size=len(lengths),
            max_size=len(lengths),
        )
    )
    state, segments = tier(), []
    for number, (start, following) in enumerate(pairwise(bases)):
        metadata = segment(
            number,
            start,
            following - 1,
            *cut(epochs, start, following - 1),
            size=BYTES_AN_OFFSET * (following - start),
            max_timestamp_ms=draw(TIMES),
        )
        targets = {
            S.COPY_SEGMENT_STARTED: (),
            S.COPY_SEGMENT_FINISHED: (S.COPY_SEGMENT_FINISHED,),
            S.DELETE_SEGMENT_STARTED: (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED),
        }[states[number]]
        advance(state, metadata, *targets)
        segments.append(replace(metadata, state=states[number]))
    log = local_log([bases[-1]], bases[-1] + 5, epochs=epochs, sizes=[draw(st.integers(0, 200))])
    raised_to = draw(st.sampled_from([0, 0, *bases, bases[-1] // 2]))
    return World(log, state, tuple(segments), draw(LIMITS), raised_to)


@st.composite
def histories(draw: st.DrawFn) -> World:
    """Return segments of the lineage and of others, overlapping, repeated, in any state and order."""
    end = 80
    epochs = draw(lineages(end))
    other_history = draw(lineages(end))
    state = tier()
    segments = []
    following = 0
    for number in range(draw(st.integers(1, 14))):
        start = draw(st.sampled_from([following] * 4 + [draw(st.integers(0, end - 1))]))
        last = min(start + draw(st.integers(0, 25)), end + 3)
        history = draw(st.sampled_from([epochs] * 7 + [other_history]))
        is_other = draw(st.integers(0, 9)) == 0
        metadata = segment(
            number,
            start,
            last,
            *cut(history, start, last),
            size=BYTES_AN_OFFSET * (last - start + 1),
            max_timestamp_ms=draw(TIMES),
        )
        if is_other:
            metadata = replace(metadata, topic_id=OTHER_ID)
        states = draw(st.sampled_from([0, 1, 1, 1, 1, 1, 1, 2, 3]))
        following = min(last + 1, end - 1)
        advance(
            state,
            metadata,
            *(S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)[:states],
        )
        segments.append(replace(metadata, state=list(S)[states]))
    log_start = draw(st.sampled_from([0, 0, 10, 33]))
    known = [entry for entry in epochs if entry[1] > log_start]
    first = (epoch_at(list(epochs), log_start) or 0, log_start)
    log = local_log(
        [end - 10, end - 5],
        draw(st.sampled_from([end, end - 15])),
        epochs=(first, *known),
        log_start_offset=log_start,
        sizes=[50, 50],
    )
    own = tuple(s for s in segments if s.topic_id == TOPIC_ID)
    raised_to = draw(st.sampled_from([0, 0, 20, 40]))
    return World(log, state, own, draw(LIMITS), raised_to)


@MANY
@given(histories())
def test_repeated_sweeps_come_to_an_end(world: World) -> None:
    by_id = {s.segment_id: s for s in world.segments}
    moved = 0
    for _ in range(len(world.segments) + 1):
        plan = world.sweep(moved=moved, off_lineage=True)
        for step in plan.steps:
            deleting = by_id[step.segment_id or ""]
            advance(world.state, deleting, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
            moved = max(moved, step.details.get("new_log_start_offset", 0))
        if not plan.steps:
            return
    raise AssertionError("still something to delete")


@MANY
@given(histories(), st.integers(0, 85), st.integers(0, 85))
def test_copies_are_contiguous(world: World, stable: int, log_start: int) -> None:
    log = replace(
        local_log(
            [0, 10, 25, 40, 60, 80],
            85,
            epochs=world.log.leader_epochs,
            last_stable_offset=stable,
            log_start_offset=max(log_start, world.log.log_start_offset),
        )
    )
    plan = plan_copy(world.state, [log], enabled_configs([log]))
    for step, following in pairwise(plan.steps):
        assert following.start_offset == (step.end_offset or 0) + 1
    for step in plan.steps:
        start, end = step.start_offset or 0, step.end_offset or 0
        assert end < stable
        assert end >= log.log_start_offset
        covered = max(start, log.leader_epochs[0].start_offset)
        epochs = tuple((epoch, offset) for epoch, offset in step.details["segment_leader_epochs"])
        assert epochs == cut(log.leader_epochs, covered, end)
    if not plan.steps:
        return
    # No offset of the lineage is missing between the copied ones and the first new copy.
    copied = [s for s in world.segments if s.state is not S.COPY_SEGMENT_STARTED]

    def highest_of(epoch: int) -> int:
        own = (s for s in copied if epoch in dict(s.segment_leader_epochs))
        return max((epoch_end_offset(s, epoch) for s in own), default=-1)

    highest = highest_copied(log.leader_epochs, log.log_end_offset, highest_of)
    assert (plan.steps[0].start_offset or 0) <= max(highest + 1, log.log_start_offset)
    assert plan.steps[0].end_offset is not None
    assert plan.steps[0].end_offset > highest
