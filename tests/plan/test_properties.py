"""Plans over random tiers, compared with a reference that knows only offsets, and safety rules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import EpochEntry, LocalLog, RemoteLogSegmentMetadata, TopicConfig, TopicPartition
from tierctl.plan.copy.from_logs import plan_copy
from tierctl.plan.retention.sweep import plan_retention
from tierctl.plan.steps import Plan, Step
from tierctl.state.tier import TierState

from tests.plan.tier import DAY_MS, NOW_MS, OTHER_ID, TOPIC_ID, S, advance, local_log, segment, tier
from tests.support.amounts import examples
from tests.support.topic_settings import enabled_configs

Epochs = tuple[tuple[int, int], ...]

BYTES_AN_OFFSET = 10
MANY = examples(200)


@dataclass(frozen=True)
class World:
    """A log, its tier and its settings; `others` are segments of another topic of the same name."""

    log: LocalLog
    state: TierState
    segments: tuple[RemoteLogSegmentMetadata, ...]
    others: tuple[RemoteLogSegmentMetadata, ...]
    config: TopicConfig
    raised_to: int

    def sweep(self, *, moved: int = 0, **arguments: bool) -> Plan:
        """Return the segments that sweep deletes after earlier sweeps moved the log start to `moved`."""
        return plan_retention(
            self.state,
            [self.log],
            {"orders": self.config},
            now_ms=NOW_MS,
            log_start_offsets={TopicPartition("orders", 0): max(self.raised_to, moved)},
            **arguments,
        )

    @property
    def log_start(self) -> int:
        return max(self.log.log_start_offset, self.raised_to)


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """Return the epoch in which an offset was written: the last one that began at or before it."""
    before = [epoch for epoch, start in epochs if start <= offset]
    return before[-1] if before else None


def cut(epochs: Epochs, start: int, end: int) -> Epochs:
    """Return the epochs of [start, end], computed offset by offset."""
    found: list[tuple[int, int]] = []
    for offset in range(start, end + 1):
        epoch = epoch_at(epochs, offset)
        assert epoch is not None
        if not found or found[-1][0] != epoch:
            found.append((epoch, offset))
    return tuple(found)


def is_of_lineage(s: RemoteLogSegmentMetadata, log: LocalLog) -> bool:
    """Return whether every offset of the segment was written in the epoch that the log states."""
    if s.end_offset >= log.log_end_offset:
        return False
    return all(
        epoch_at(s.segment_leader_epochs, offset) == epoch_at(log.leader_epochs, offset)
        for offset in range(s.start_offset, s.end_offset + 1)
    )


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
    return World(log, state, tuple(segments), (), draw(LIMITS), raised_to)


def reference(world: World) -> set[str]:
    """Return the segments to delete, by the words of KIP-405 and the rules of this project.

    Deletions that were begun are finished. A finished segment wholly below the log start is deleted. From
    there on, oldest first, a segment is deleted if its largest timestamp is older than retention.ms, or if
    the log has at least retention.bytes without it; the first segment that stays, or that follows missing
    offsets, ends this. An unfinished copy wholly below the log start is deleted once a later segment was
    copied.
    """
    finished = [s for s in world.segments if s.state is S.COPY_SEGMENT_FINISHED]
    gone = {s.segment_id for s in world.segments if s.state is S.DELETE_SEGMENT_STARTED}
    gone |= {s.segment_id for s in finished if s.end_offset < world.log_start}
    live = [s for s in finished if s.end_offset >= world.log_start]
    copied = max((s.end_offset for s in world.segments if s.state is not S.COPY_SEGMENT_STARTED), default=-1)
    local_only = sum(s.size_bytes for s in world.log.segments if s.base_offset > copied)
    held = local_only + sum(s.segment_size_in_bytes for s in live)
    for at, s in enumerate(live):
        begun = {s.start_offset for s in world.segments if s.state is S.COPY_SEGMENT_STARTED}
        if at and any(live[at - 1].end_offset < start < s.start_offset for start in begun):
            break
        limit_ms, limit_bytes = world.config.retention_ms, world.config.retention_bytes
        age_ms = NOW_MS - s.max_timestamp_ms
        too_old = limit_ms >= 0 and s.max_timestamp_ms > 0 and 0 <= age_ms > limit_ms
        too_much = 0 <= limit_bytes <= held - s.segment_size_in_bytes and held > limit_bytes
        if not too_old and not too_much:
            break
        held -= s.segment_size_in_bytes
        gone.add(s.segment_id)
    log_start = max(world.log_start, *(s.end_offset + 1 for s in live if s.segment_id in gone), 0)
    begun = (s for s in world.segments if s.state is S.COPY_SEGMENT_STARTED)
    return gone | {s.segment_id for s in begun if s.end_offset < log_start and s.end_offset < copied}


def planned(plan: Plan) -> list[str]:
    return [str(step.segment_id) for step in plan.steps]


@MANY
@given(chains())
def test_retention_is_what_the_reference_says(world: World) -> None:
    plan = world.sweep()
    assert len(planned(plan)) == len(set(planned(plan)))
    assert set(planned(plan)) == reference(world)
    # The options for segments off the lineage delete no more, because there are none.
    assert planned(world.sweep(off_lineage=True, unreferenced_epochs=True)) == planned(plan)


@MANY
@given(chains())
def test_retention_done_once_is_done(world: World) -> None:
    plan = world.sweep()
    by_id = {s.segment_id: s for s in world.segments}
    for step in plan.steps:
        advance(
            world.state, by_id[step.segment_id or ""], S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED
        )
    moved = max((step.details.get("new_log_start_offset", 0) for step in plan.steps), default=0)
    again = world.sweep(moved=moved)
    # A run stops before a hole; the next one begins after it.
    assert again.steps == () or any("a hole" in skip.reason for skip in plan.skipped)


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
    first = (epoch_at(epochs, log_start) or 0, log_start)
    log = local_log(
        [end - 10, end - 5],
        draw(st.sampled_from([end, end - 15])),
        epochs=(first, *known),
        log_start_offset=log_start,
        sizes=[50, 50],
    )
    own = tuple(s for s in segments if s.topic_id == TOPIC_ID)
    others = tuple(s for s in segments if s.topic_id != TOPIC_ID)
    raised_to = draw(st.sampled_from([0, 0, 20, 40]))
    return World(log, state, own, others, draw(LIMITS), raised_to)


@MANY
@given(histories())
def test_retention_never(world: World) -> None:
    plan = world.sweep()
    by_id = {s.segment_id: s for s in world.segments}
    ids = planned(plan)
    assert len(ids) == len(set(ids))
    assert not set(ids) & {s.segment_id for s in world.others}, "another topic of the same name"
    for step in plan.steps:
        s = by_id[step.segment_id or ""]
        if s.state is S.DELETE_SEGMENT_STARTED:
            continue
        if s.state is S.COPY_SEGMENT_STARTED:
            _check_unfinished(world, step, s)
            continue
        assert s.state is S.COPY_SEGMENT_FINISHED
        assert s.end_offset < world.log.log_end_offset
        assert _is_of_known_lineage(s, world.log) or _is_unreferenced(s, step, world.log), "off the lineage"
        _check_breach(world, step.details, s)
    _check_prefix(world, plan, by_id)
    _check_size(world, plan, by_id)


def _check_unfinished(world: World, step: Step, s: RemoteLogSegmentMetadata) -> None:
    """Check that it lies below the log start, has no later epoch, and that a later copy finished."""
    log_start = max(step.details.get("new_log_start_offset", 0), world.log_start)
    assert s.end_offset < log_start
    assert max(e for e, _ in s.segment_leader_epochs) <= (epoch_at(world.log.leader_epochs, log_start) or 0)
    later = world.segments[world.segments.index(s) + 1 :]
    assert any(t.state is not S.COPY_SEGMENT_STARTED and t.end_offset >= s.end_offset for t in later)


def _is_of_known_lineage(s: RemoteLogSegmentMetadata, log: LocalLog) -> bool:
    """Return the result of is_of_lineage for the offsets whose epochs the log still knows."""
    first = log.leader_epochs[0]
    known_from = max(s.start_offset, first.start_offset)
    if s.end_offset < first.start_offset:
        return s.segment_leader_epochs[-1][0] == first.epoch
    return is_of_lineage(
        replace(
            s,
            start_offset=known_from,
            segment_leader_epochs=cut(s.segment_leader_epochs, known_from, s.end_offset),
        ),
        log,
    )


def _is_unreferenced(s: RemoteLogSegmentMetadata, step: Step, log: LocalLog) -> bool:
    """Brokers delete segments below the log start whose epochs have all left the checkpoint."""
    log_start = max(step.details.get("new_log_start_offset", 0), log.log_start_offset)
    return (
        s.end_offset < log_start and max(e for e, _ in s.segment_leader_epochs) < log.leader_epochs[0].epoch
    )


def _check_breach(world: World, details: object, s: RemoteLogSegmentMetadata) -> None:
    assert isinstance(details, dict)
    if details["breach"] == "retention.ms":
        assert 0 < s.max_timestamp_ms < NOW_MS - world.config.retention_ms
    elif details["breach"] == "retention.bytes":
        assert details["excess_bytes"] >= s.segment_size_in_bytes
    elif details["breach"] == "unreferenced_epochs":
        assert max(epoch for epoch, _ in s.segment_leader_epochs) < details["earliest_epoch"]
    else:
        assert details["breach"] == "log_start_offset"
        assert s.end_offset < details["new_log_start_offset"]


def _check_prefix(world: World, plan: Plan, by_id: dict[str, RemoteLogSegmentMetadata]) -> None:
    """Check that limits delete a prefix: no older readable segment stays, and no offset is missing."""
    expired = [by_id[str(s.segment_id)] for s in plan.steps if s.details["breach"].startswith("retention")]
    assert expired == sorted(expired, key=lambda s: s.start_offset), "a newer segment goes first"
    if not expired:
        return
    end = max(s.end_offset for s in expired)
    ids = set(planned(plan))
    for s in world.segments:
        if s.state is S.COPY_SEGMENT_FINISHED and s.end_offset <= end and _is_of_known_lineage(s, world.log):
            assert s.segment_id in ids, "an older segment stays"
    # A segment of another history may have offsets of the lineage below the point of divergence.
    held = {
        o
        for s in world.segments
        if s.state in {S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED}
        for o in range(s.start_offset, s.end_offset + 1)
    }
    start = max(min(s.start_offset for s in expired), world.log_start)
    assert set(range(start, end + 1)) <= held, "expired beyond a hole"


def _check_size(world: World, plan: Plan, by_id: dict[str, RemoteLogSegmentMetadata]) -> None:
    """Check that after a deletion by size alone, the log still has at least retention.bytes."""
    breaches = {s.details["breach"] for s in plan.steps}
    if "retention.bytes" not in breaches or "retention.ms" in breaches:
        return
    start = max(step.details.get("new_log_start_offset", 0) for step in plan.steps)
    offsets = {
        o
        for s in world.segments
        if s.state is S.COPY_SEGMENT_FINISHED
        and str(s.segment_id) not in set(planned(plan))
        and _is_of_known_lineage(s, world.log)
        for o in range(max(s.start_offset, start), s.end_offset + 1)
    }
    local = {o for base in (70, 75) for o in range(base, base + 5)}
    # Local segments have 50 bytes for 5 offsets, like those of the tier.
    assert BYTES_AN_OFFSET * len(offsets | local) >= world.config.retention_bytes


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
        ),
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
    highest = _highest_copied(world, log)
    assert (plan.steps[0].start_offset or 0) <= max(highest + 1, log.log_start_offset)
    assert plan.steps[0].end_offset is not None
    assert plan.steps[0].end_offset > highest


def _highest_copied(world: World, log: LocalLog) -> int:
    """Return the highest copied offset: the highest one of the latest epoch with a copy, within its end."""
    epochs: Sequence[EpochEntry] = log.leader_epochs
    for at in reversed(range(len(epochs))):
        end = epochs[at + 1].start_offset if at + 1 < len(epochs) else log.log_end_offset
        highs = [
            s.epoch_end_offset(epochs[at].epoch)
            for s in world.segments
            if s.state is not S.COPY_SEGMENT_STARTED and epochs[at].epoch in dict(s.segment_leader_epochs)
        ]
        if highs:
            return min(max(highs), end - 1)
    return -1
