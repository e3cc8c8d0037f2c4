"""Waves of copies: the order of events and uploads, and what a failure leaves of the waves under way."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tierctl.apply.run import run
from tierctl.apply.run_context import LocalEngine, Status
from tierctl.errors import MetadataWriteUnknown, SafetyRefusal, StoreWriteUnknown
from tierctl.model import RemoteLogSegmentState

from tests.apply.conftest import Watch
from tests.apply.faults import Wrapper
from tests.apply.runs import Backwards, acts_of, context_of, opened, plan_of, run_on, statuses
from tests.apply.worlds import World, check_durable

DONE, FAILED, DROPPED = Status.DONE, Status.FAILED, Status.DROPPED
STARTED = str(RemoteLogSegmentState.COPY_SEGMENT_STARTED)
FINISHED = str(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def check_converges(world: World) -> None:
    """Another run withdraws the copies without an end, and copies the rest."""
    check_durable(world)
    assert set(statuses(run_on("copy", world))) <= {DONE}
    assert [segment.end_offset for segment in world.segments()] == [599, 1199, 1799]
    assert {str(segment.state) for segment in world.segments()} == {FINISHED}
    check_durable(world)


def test_the_next_wave_is_started_while_one_is_stored(
    empty: World, publications: Callable[[Watch], None]
) -> None:
    """The first upload ends only once the second STARTED is published."""
    second_started, events = threading.Event(), list[str]()

    class Waiting(Wrapper):
        def copy_log_segment_data(self, metadata: Any, data: Any) -> Any:
            assert second_started.wait(60), "the second STARTED waits for the upload of the first wave"
            return super().copy_log_segment_data(metadata, data)

    def watch(_number: int, moment: str, state: str) -> None:
        if moment == "after":
            events.append(state)
            if events.count(STARTED) == 2:
                second_started.set()

    publications(watch)
    outcomes = run_on("copy", empty, Waiting, wave_size=1, engine=LocalEngine(2))
    assert set(statuses(outcomes)) == {DONE}
    assert events == [STARTED, STARTED, FINISHED, STARTED, FINISHED, FINISHED]
    check_durable(empty)


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_publication_fails(
    empty: World, publications: Callable[[Watch], None], number: int, moment: str
) -> None:
    """Of three waves: one of STARTED 1, STARTED 2, FINISHED 1, STARTED 3, FINISHED 2 and FINISHED 3."""
    published: list[int] = []

    def watch(count: int, now: str, _state: str) -> None:
        published.append(count)
        if (count, now) == (number, moment):
            raise MetadataWriteUnknown("timed out")

    publications(watch)
    outcomes = run_on("copy", empty, wave_size=1, engine=Backwards())
    assert published[-1] == number, "nothing is published after a failure"
    done = {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2}[number]
    assert [outcome.status is DONE for outcome in outcomes] == [at < done for at in range(3)]
    publications(lambda *_: None)
    check_converges(empty)


def test_a_stored_wave_after_an_unknown_outcome_is_cleaned_up(empty: World) -> None:
    """The second wave is stored before the outcome of the first is known to be unknown."""
    second_stored = threading.Event()

    class Slow(Wrapper):
        def copy_log_segment_data(self, metadata: Any, data: Any) -> Any:
            if metadata.start_offset == 0:
                assert second_stored.wait(60)
                raise StoreWriteUnknown("no answer")
            found = super().copy_log_segment_data(metadata, data)
            second_stored.set()
            return found

    outcomes = run_on("copy", empty, Slow, wave_size=1, engine=LocalEngine(2))
    assert statuses(outcomes) == [FAILED, DROPPED, DROPPED]
    assert [str(segment.state) for segment in empty.segments()] == [STARTED], "a late write may still succeed"
    check_converges(empty)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_fence_refuses_a_wave(empty: World, number: int) -> None:
    """The wave before it, which is being stored then, is finished; nothing of later waves begins."""
    waves: list[Any] = []

    def fence(partitions: Any) -> None:
        waves.append(partitions)
        if len(waves) == number:
            raise SafetyRefusal("a broker runs")

    with opened(empty) as manager:
        plan = plan_of("copy", empty, manager)
        context = context_of(empty, manager, wave_size=1, engine=Backwards())
        outcomes = run(plan, context, acts_of("copy", empty), fence=fence)
    assert statuses(outcomes) == [DONE] * (number - 1) + [FAILED] + [DROPPED] * (3 - number)
    assert [segment.end_offset for segment in empty.segments()] == [599, 1199][: number - 1]
    check_converges(empty)
