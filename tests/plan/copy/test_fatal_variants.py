"""Plans never lead to data loss on a broker that uses tierctl's copies: one test per case.

Each case was seen on a real broker, which deleted local data, served wrong records or stalled.
"""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import LocalLog, RemoteLogSegmentState
from tierctl.plan.copy import plan_copy
from tierctl.plan.steps import Action, Plan, Step
from tierctl.state.lineage import Lineage
from tierctl.state.tier_state import TierState

from tests.plan.tier import advance, local_log, segment, tier
from tests.support.topic_settings import enabled_configs

SPANS = st.lists(st.integers(1, 50), min_size=1, max_size=8)


@st.composite
def logs(draw: st.DrawFn) -> LocalLog:
    """Return a log of several segments and epochs, any part of which may be above the last stable offset."""
    bases = [0]
    for span in draw(SPANS):
        bases.append(bases[-1] + span)
    end = bases[-1] + draw(st.integers(0, 20))
    starts = sorted(draw(st.sets(st.integers(0, end), max_size=3)) | {0})
    return local_log(
        bases,
        end,
        epochs=[(2 * number, start) for number, start in enumerate(starts)],
        last_stable_offset=draw(st.integers(0, end)),
        no_snapshot_at=draw(st.none() | st.sampled_from(bases)),
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[LocalLog, TierState, Plan]:
    """Return a plan for such a log whose first segments may be copied already, one of them unfinished."""
    log = draw(logs())
    whole = plan_copy(TierState(), [log], enabled_configs([log])).steps
    copied = whole[: draw(st.integers(0, len(whole)))]
    done = [
        segment(1 + number, step.start_offset or 0, step.end_offset or 0, *_epochs(step))
        for number, step in enumerate(copied)
    ]
    state = tier(*done)
    if len(copied) < len(whole) and draw(st.booleans()):
        following = whole[len(copied)]
        begun = segment(99, following.start_offset or 0, following.end_offset or 0, *_epochs(following))
        advance(state, begun)
    return log, state, plan_copy(state, [log], enabled_configs([log]))


def _epochs(step: Step) -> list[tuple[int, int]]:
    return [(epoch, start) for epoch, start in step.details["segment_leader_epochs"]]


def _covered(state: TierState) -> int:
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    segments = [s for part in state for s in part.cache.list_remote_log_segments() if s.state is finished]
    return max((s.end_offset for s in segments), default=-1)


@given(plans())
def test_later_segments_only(made: tuple[LocalLog, TierState, Plan]) -> None:
    """The broker raises its log start to the first remote offset and deletes the earlier records."""
    log, state, plan = made
    if plan.steps:
        assert plan.steps[0].start_offset == max(_covered(state) + 1, log.log_start_offset)


@given(plans())
def test_a_hole_in_the_middle(made: tuple[LocalLog, TierState, Plan]) -> None:
    """The missing segment is never copied, its local data is deleted, and reads fail."""
    for one, following in pairwise(made[2].steps):
        assert following.start_offset == (one.end_offset or 0) + 1


@given(plans())
def test_an_epoch_missing(made: tuple[LocalLog, TierState, Plan]) -> None:
    """A scan succeeds, but a seek into the missing epoch is out of range."""
    log, _, plan = made
    lineage = Lineage(log.leader_epochs)
    for step in plan.steps:
        known = Lineage(_epochs(step))
        for offset in range(step.start_offset or 0, (step.end_offset or 0) + 1):
            assert known.epoch_for_offset(offset) == lineage.epoch_for_offset(offset)


@given(plans())
def test_segments_above_the_last_stable_offset(made: tuple[LocalLog, TierState, Plan]) -> None:
    """read_committed returns uncommitted records and then stalls."""
    log, _, plan = made
    assert all((step.end_offset or 0) < log.last_stable_offset for step in plan.steps)


@given(plans())
def test_a_tail_without_its_snapshot(made: tuple[LocalLog, TierState, Plan]) -> None:
    """The broker forgets the open transaction."""
    log, _, plan = made
    snapshots = {s.base_offset: s.producer_snapshot for s in log.segments}
    for step in plan.steps:
        assert snapshots[step.start_offset or 0] is not None
        assert step.details["producer_snapshot"] == str(snapshots[step.start_offset or 0])


@given(plans())
def test_started_only(made: tuple[LocalLog, TierState, Plan]) -> None:
    """An unfinished copy does not count: the same offsets are copied again, and the copy is reported."""
    _, state, plan = made
    begun = [
        s
        for part in state
        for s in part.cache.list_remote_log_segments()
        if s.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    ]
    for left in begun:
        (again,) = [step for step in plan.steps if step.start_offset == left.start_offset]
        assert (again.action, again.segment_id) == (Action.COPY_SEGMENT, None)
        assert again.details["begun_copies"] == [left.segment_id]
