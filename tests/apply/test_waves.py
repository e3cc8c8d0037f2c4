"""Waves of deletions and copies: the order of events and requests, and what a failure leaves of them."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tierctl.apply import run_context
from tierctl.apply.run import run
from tierctl.apply.run_context import LocalEngine, Status, Stop
from tierctl.errors import (
    LockedError,
    MetadataWriteUnknown,
    RemoteStorageError,
    SafetyRefusal,
    StoreWriteUnknown,
)
from tierctl.model import RemoteLogSegmentState

from tests.apply.conftest import Watch
from tests.apply.faults import Failing, OneSegmentFails, Wrapper
from tests.apply.runs import Backwards, acts_of, context_of, opened, plan_of, run_on, statuses
from tests.apply.worlds import World, check_durable

DONE, FAILED, PENDING = Status.DONE, Status.FAILED, Status.PENDING
STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def test_the_next_wave_is_started_while_one_is_deleted(
    tiered: World, publications: Callable[[Watch], None]
) -> None:
    """The first deletion ends only after STARTED of the second wave is published."""
    second_started, events = threading.Event(), list[str]()

    class Waiting(Wrapper):
        def delete_log_segments(self, segments: Any) -> Any:
            assert second_started.wait(60), "the second STARTED waits for the deletion of the first wave"
            return super().delete_log_segments(segments)

    def watch(_number: int, moment: str, state: str) -> None:
        if moment == "after":
            events.append(state)
            if events.count(str(STARTED)) == 2:
                second_started.set()

    publications(watch)
    outcomes = run_on("sweep", tiered, Waiting, wave_size=1, engine=LocalEngine(2))
    assert set(statuses(outcomes)) == {DONE}
    assert events == [str(STARTED), str(STARTED), str(FINISHED), str(FINISHED)]
    check_durable(tiered)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_publication_fails(
    tiered: World, publications: Callable[[Watch], None], number: int, moment: str
) -> None:
    """One of STARTED 1, STARTED 2, FINISHED 1 and FINISHED 2 fails, or its response is lost."""
    failed: list[int] = []

    def watch(count: int, now: str, _state: str) -> None:
        if (count, now) == (number, moment):
            failed.append(count)
            raise MetadataWriteUnknown("timed out")

    publications(watch)
    outcomes = run_on("sweep", tiered, wave_size=1, engine=Backwards())
    assert failed == [number]
    done = [outcome.status is DONE for outcome in outcomes]
    assert done == ([True, False] if number == 4 else [False, False])
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) <= {DONE}
    assert [segment.start_offset for segment in tiered.segments()] == [1200]
    check_durable(tiered)


def test_no_request_follows_a_publication_that_failed(
    tiered: World, publications: Callable[[Watch], None]
) -> None:
    """If STARTED of the second wave fails before the first wave's requests, no request is sent."""
    stores: list[Failing] = []

    def wrap(inner: Any) -> Failing:
        stores.append(Failing(inner, "delete_log_segments", 99))
        return stores[0]

    def watch(count: int, _moment: str, _state: str) -> None:
        if count == 2:
            raise MetadataWriteUnknown("timed out")

    publications(watch)
    outcomes = run_on("sweep", tiered, wrap, wave_size=1, engine=Backwards())
    assert set(statuses(outcomes)) == {FAILED}
    assert stores[0].calls["delete_log_segments"] == 0
    states = [segment.state for segment in sorted(tiered.segments(), key=lambda s: s.start_offset)]
    assert states[0] is STARTED
    assert STARTED not in states[1:]


@pytest.mark.parametrize("nth", [1, 2])
def test_one_segment_of_a_wave_fails(tiered: World, nth: int) -> None:
    outcomes = run_on("sweep", tiered, partial(OneSegmentFails, nth=nth), wave_size=10)
    assert statuses(outcomes) == [FAILED if at == nth else DONE for at in (1, 2)]
    left = {segment.segment_id: segment.state for segment in tiered.segments()}
    assert left[outcomes[nth - 1].step.segment_id] is STARTED
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) == {DONE}


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("operation", ["delete_log_segments", "objects_of_each"])
def test_a_request_of_a_wave_fails(tiered: World, operation: str, nth: int) -> None:
    """The second listing proves the deletion; if either request fails, only the wave's segments fail."""
    outcomes = run_on("sweep", tiered, partial(Failing, operation=operation, nth=nth), wave_size=10)
    expected = DONE if (operation, nth) == ("delete_log_segments", 2) else FAILED
    assert set(statuses(outcomes)) == {expected}
    assert all(isinstance(o.error, RemoteStorageError) for o in outcomes if o.status is FAILED)
    check_durable(tiered)
    run_on("sweep", tiered)
    assert [segment.start_offset for segment in tiered.segments()] == [1200]


@pytest.mark.parametrize("after", [1, 2])
def test_the_lease_is_lost_inside_a_wave(tiered: World, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the nth request of a wave no other request is sent, and FINISHED is not published."""
    lost, stop, requests = list[bool](), Stop(), list[int]()
    stop.guard(lambda: bool(lost))

    class Losing(Wrapper):
        delete_batch = 1

        def delete_log_segments(self, segments: Any) -> Any:
            requests.append(len(segments))
            errors = super().delete_log_segments(segments)
            if len(requests) == after:
                lost.append(True)
            return errors

    outcomes = run_on("sweep", tiered, Losing, wave_size=10, stop=stop)
    assert requests == [1] * after
    assert set(statuses(outcomes)) == {PENDING}
    assert sorted(s.state is STARTED for s in tiered.segments()) == [False, True, True]
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) == {DONE}


def test_the_lease_is_lost_while_the_next_wave_is_prepared(tiered: World) -> None:
    lost, stop = list[bool](), Stop()
    stop.guard(lambda: bool(lost))
    started: list[str] = []

    def observe(label: str, moment: str) -> None:
        if (label, moment) == ("sweep.started.publish", "before"):
            started.append(label)
            if len(started) == 2:
                lost.append(True)

    run_context.observe(observe)
    try:
        outcomes = run_on("sweep", tiered, wave_size=1, stop=stop, engine=Backwards())
    finally:
        run_context.observe(None)
    assert set(statuses(outcomes)) == {FAILED}
    assert all(isinstance(outcome.error, LockedError) for outcome in outcomes)
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) == {DONE}


DROPPED = Status.DROPPED
COPY_STARTED = str(RemoteLogSegmentState.COPY_SEGMENT_STARTED)
COPY_FINISHED = str(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def check_converges(world: World) -> None:
    """Another run withdraws the copies without an end, and copies the rest."""
    check_durable(world)
    assert set(statuses(run_on("copy", world))) <= {DONE}
    assert [segment.end_offset for segment in world.segments()] == [599, 1199, 1799]
    assert {str(segment.state) for segment in world.segments()} == {COPY_FINISHED}
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
            if events.count(COPY_STARTED) == 2:
                second_started.set()

    publications(watch)
    outcomes = run_on("copy", empty, Waiting, wave_size=1, engine=LocalEngine(2))
    assert set(statuses(outcomes)) == {DONE}
    assert events == [COPY_STARTED, COPY_STARTED, COPY_FINISHED, COPY_STARTED, COPY_FINISHED, COPY_FINISHED]
    check_durable(empty)


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_publication_of_a_copy_fails(
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
    assert [str(segment.state) for segment in empty.segments()] == [COPY_STARTED], (
        "a late write may still succeed"
    )
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
