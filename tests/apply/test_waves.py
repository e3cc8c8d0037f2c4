"""Waves of deletions and copies: the order of events and requests, and what a failure leaves of them.

Also side effects on another machine, when a run begins nothing more, and its exit code.
"""

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pytest
from tierctl.apply.run import Run
from tierctl.apply.run_context import (
    LocalEngine,
    Outcome,
    SideEffect,
    SideEffectContext,
    SideEffectResult,
    Status,
    Stop,
    exit_code,
)
from tierctl.commands.copy.source import LogSources
from tierctl.errors import (
    AuthenticationError,
    ConditionsRefused,
    EngineError,
    FileNotAllowed,
    LimitExceeded,
    LockedError,
    MetadataError,
    MetadataWriteUnknown,
    NotFoundError,
    ObjectArchived,
    ObjectUnreadable,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    StoreRefused,
    StoreWriteUnknown,
    TierctlError,
    UnsupportedFormatError,
)
from tierctl.metadata.state_dir import Journal
from tierctl.model import RemoteLogSegmentState, TopicConfig
from tierctl.plan import recheck
from tierctl.plan.steps import LINEAGE_EPOCH, Action, Plan, Step
from tierctl.state.tier_state import TierState

from tests.apply.commands import OTHER_ID, copy, delete, sweep
from tests.apply.conftest import Watch
from tests.apply.faults import Failing, Meddling, OneSegmentFails, Wrapper
from tests.apply.runs import Backwards, acts_of, context_of, opened, plan_of, run_on, statuses
from tests.apply.test_faults import mark
from tests.apply.worlds import World, check_durable
from tests.cli.shell import tierctl
from tests.storage.tiers import local_tier
from tests.support.faults import Failing as FailingDisk
from tests.support.faults import observed

P = TypeVar("P")

DONE, FAILED, DROPPED, PENDING = Status.DONE, Status.FAILED, Status.DROPPED, Status.PENDING
STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
COPY_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.mark.parametrize(
    ("command", "published"),
    [
        ("sweep", [STARTED, STARTED, FINISHED, FINISHED]),
        ("copy", [COPY_STARTED, COPY_STARTED, COPY_FINISHED, COPY_STARTED, COPY_FINISHED, COPY_FINISHED]),
    ],
)
def test_the_next_wave_is_started_while_one_is_carried_out(
    command: str,
    published: list[RemoteLogSegmentState],
    empty: World,
    tiered: World,
    publications: Callable[[Watch], None],
) -> None:
    """The requests of the first wave end only after STARTED of the second wave is published."""
    world, second_started, events = {"sweep": tiered, "copy": empty}[command], threading.Event(), list[str]()

    def wait(_segment: object) -> None:
        assert second_started.wait(60), "the second STARTED waits for the requests of the first wave"

    def watch(_number: int, moment: str, state: str) -> None:
        if moment == "after":
            events.append(state)
            if events.count(str(published[0])) == 2:
                second_started.set()

    publications(watch)
    outcomes = run_on(command, world, partial(Meddling, meddle=wait), wave_size=1, engine=LocalEngine(2))
    assert set(statuses(outcomes)) == {DONE}
    assert events == [str(state) for state in published]
    check_durable(world)


def fail_at(
    publications: Callable[[Watch], None], number: int, moment: str, error: TierctlError | None = None
) -> list[int]:
    """Let a publication fail before or after it takes effect; return the numbers of those that are begun."""
    begun: list[int] = []

    def watch(count: int, now: str, _state: str) -> None:
        begun.extend([count] if now == "before" else [])
        if (count, now) == (number, moment):
            raise error or MetadataWriteUnknown("timed out")

    publications(watch)
    return begun


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_publication_fails(
    tiered: World, publications: Callable[[Watch], None], number: int, moment: str
) -> None:
    """One of STARTED 1, STARTED 2, FINISHED 1 and FINISHED 2 fails, or its response is lost.

    If STARTED of the second wave fails before the requests of the first wave, no request is sent.
    """
    stores = list[Failing]()

    def wrap(inner: Any) -> Failing:
        stores.append(Failing(inner, "delete_log_segments", 99))
        return stores[0]

    begun = fail_at(publications, number, moment)
    outcomes = run_on("sweep", tiered, wrap, wave_size=1, engine=Backwards())
    assert begun[-1] == number, "nothing is published after a failure"
    assert (stores[0].calls["delete_log_segments"] > 0) == (number > 2)
    if (number, moment) == (2, "before"):
        states = [segment.state for segment in sorted(tiered.segments(), key=lambda s: s.start_offset)]
        assert [state is STARTED for state in states] == [True, False, False]
    done = [outcome.status is DONE for outcome in outcomes]
    assert done == ([True, False] if number == 4 else [False, False])
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) <= {DONE}
    assert [segment.start_offset for segment in tiered.segments()] == [1200]
    check_durable(tiered)


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


@pytest.mark.parametrize("wave_size", [1, 2, 10])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_behind_a_segment_without_objects_nothing_is_deleted(
    tiered: World, monkeypatch: pytest.MonkeyPatch, lost: int, wave_size: int
) -> None:
    """A reader goes from segment to segment: there must be no hole behind the one that stays."""
    monkeypatch.setattr("tests.apply.runs.CONFIGS", {"bills": TopicConfig(retention_bytes=1)})
    for path in tiered.remote.rglob(f"{600 * lost:020d}-*"):
        path.unlink()
    outcomes = run_on("sweep", tiered, wave_size=wave_size)
    assert statuses(outcomes) == [*[DONE] * lost, FAILED, *[DROPPED] * (2 - lost)]
    # If all finished segments that are left have no objects, the tier may be another one.
    is_alone = lost == 2 and wave_size < 10
    assert type(outcomes[lost].error) is (RemoteTierMissing if is_alone else RemoteResourceNotFound)
    assert all("must be deleted before it, stays" in str(each.reason) for each in outcomes[lost + 1 :])
    left = sorted(tiered.segments(), key=lambda segment: segment.start_offset)
    assert [(each.start_offset, each.state) for each in left] == [
        (600 * at, COPY_FINISHED) for at in range(lost, 3)
    ]
    assert list(Journal(tiered.state_dir).log_starts().values()) == [600 * lost][: bool(lost)]


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

    with observed(observe):
        outcomes = run_on("sweep", tiered, wave_size=1, stop=stop, engine=Backwards())
    assert set(statuses(outcomes)) == {FAILED}
    assert all(isinstance(outcome.error, LockedError) for outcome in outcomes)
    check_durable(tiered)
    assert set(statuses(run_on("sweep", tiered))) == {DONE}


def check_converges(world: World) -> None:
    """Another run withdraws the copies without an end, and copies the rest."""
    check_durable(world)
    assert set(statuses(run_on("copy", world))) <= {DONE}
    assert [segment.end_offset for segment in world.segments()] == [599, 1199, 1799]
    assert {segment.state for segment in world.segments()} == {COPY_FINISHED}
    check_durable(world)


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_publication_of_a_copy_fails(
    empty: World, publications: Callable[[Watch], None], number: int, moment: str
) -> None:
    """Of three waves: one of STARTED 1, STARTED 2, FINISHED 1, STARTED 3, FINISHED 2 and FINISHED 3."""
    begun = fail_at(publications, number, moment)
    outcomes = run_on("copy", empty, wave_size=1, engine=Backwards())
    assert begun[-1] == number, "nothing is published after a failure"
    done = {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2}[number]
    assert [outcome.status is DONE for outcome in outcomes] == [at < done for at in range(3)]
    publications(lambda *_: None)
    check_converges(empty)


@pytest.mark.parametrize(
    ("command", "number", "done"),
    [
        # STARTED of the partition, STARTED 1 and 2, FINISHED 1, STARTED 3, FINISHED 2 and 3, and FINISHED.
        *(("delete", number, done) for number, done in enumerate((0, 0, 0, 0, 1, 1, 2, 3), start=1)),
        # STARTED, FINISHED of the first segment, and both events of the clean-up of the others.
        *(("copy", number, int(number > 2)) for number in range(1, 5)),
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_was_confirmed_before_a_publication_fails_is_done(
    *,
    command: str,
    number: int,
    done: int,
    moment: str,
    empty: World,
    tiered: World,
    publications: Callable[[Watch], None],
) -> None:
    """Of one partition, deleted in three waves, or copied in one wave whose second segment fails."""
    if command == "delete":
        mark(tiered)
        fail_at(publications, number, moment)
        outcomes = run_on("delete", tiered, wave_size=1)
        statuses_of_segments = statuses(outcomes)[1:]
        assert outcomes[0].status is FAILED
    else:
        fail_at(publications, number, moment)
        fails = partial(Failing, operation="verify_log_segment_data", nth=2)
        statuses_of_segments = statuses(run_on("copy", empty, fails, wave_size=3))
    assert [status is DONE for status in statuses_of_segments] == [at < done for at in range(3)]


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
    assert [each.state for each in empty.segments()] == [COPY_STARTED], "a late write may still succeed"
    check_converges(empty)


@pytest.mark.parametrize("place", ["copy", "sweep", "state directory"])
def test_a_full_disk_has_a_hint_and_names_the_file(
    place: str, empty: World, tiered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/file")

    wrap: Any = partial(Meddling, meddle=full)
    if place == "state directory":
        monkeypatch.setattr(Journal, "raise_log_starts", full)
        wrap = Wrapper
    outcomes = run_on("copy", empty, wrap) if place == "copy" else run_on("sweep", tiered, wrap)
    error = outcomes[0].error
    assert error is not None
    assert error.message.endswith(": No space left on device (/disk/file)")
    assert error.hint == "the disk is full: free space, then run again"


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("command", ["copy", "sweep"])
def test_a_fence_refuses_a_wave(
    empty: World, tiered: World, monkeypatch: pytest.MonkeyPatch, command: str, number: int
) -> None:
    """The wave before it, which is being carried out then, is finished; nothing of later waves begins."""
    monkeypatch.setattr("tests.apply.runs.CONFIGS", {"bills": TopicConfig(retention_bytes=1)})
    world, waves = {"copy": empty, "sweep": tiered}[command], list[Any]()

    def fence(partitions: Any) -> None:
        waves.append(partitions)
        if len(waves) == number:
            raise SafetyRefusal("a broker runs")

    outcomes = run_on(command, world, wave_size=1, engine=Backwards(), fence=fence)
    assert statuses(outcomes) == [DONE] * (number - 1) + [FAILED] + [DROPPED] * (3 - number)
    ends, done = [599, 1199, 1799], slice(number - 1) if command == "copy" else slice(number - 1, 3)
    assert [segment.end_offset for segment in world.segments()] == ends[done]
    assert {segment.state for segment in world.segments()} <= {COPY_FINISHED}
    if command == "copy":
        check_converges(world)


def test_a_partition_delete_whose_next_wave_is_refused_finishes_the_wave_before(tiered: World) -> None:
    """The objects of the last segment are lost: nothing shows then that this is its tier."""
    mark(tiered)
    for path in tiered.remote.rglob("00000000000000001200-*"):
        path.unlink()
    outcomes = run_on("delete", tiered, wave_size=1)
    assert [(each.step.action, each.status) for each in outcomes] == [
        (Action.DELETE_PARTITION, FAILED),
        (Action.DELETE_SEGMENT, DONE),
        (Action.DELETE_SEGMENT, DONE),
        (Action.DELETE_SEGMENT, PENDING),
    ]
    assert isinstance(outcomes[0].error, RemoteTierMissing)
    assert [(each.start_offset, each.state) for each in tiered.segments()] == [(1200, COPY_FINISHED)]


@pytest.mark.parametrize("case", [(copy, 1, 4), (copy, 2, 3), (sweep, 1, 3), (delete, 1, 4), (delete, 2, 3)])
def test_a_refusal_after_something_was_changed_is_no_refusal_of_the_run(
    empty: World, tiered: World, publications: Callable[[Watch], None], case: tuple[Any, int, int]
) -> None:
    """Exit code 4 promises that nothing was changed; a sweep raises the log start before it publishes."""
    command, number, code = case
    world = empty if command is copy else tiered
    if command is delete:
        mark(world)
    fail_at(publications, number, "before", SafetyRefusal("the topic was created again"))
    more = ("--state-dir", world.state_dir) if command is sweep else ()
    assert tierctl(*command(world, "--apply", *more)).code == code


class Elsewhere(LocalEngine):
    """An engine that works in a folder of its own."""

    verify_on_driver = True

    def __init__(self, folder: Path) -> None:
        super().__init__(1)
        self._folder = folder

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        return super().begin(side_effect, inputs, replace(context, remote=local_tier(self._folder)))


class Repeating(LocalEngine):
    """An engine whose earlier attempts may still be running."""

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        results = super().begin(side_effect, inputs, context)
        return lambda: [replace(result, is_repeated=True) for result in results()]


class Gone(LocalEngine):
    """An engine that accepts no work."""

    def ready(self) -> None:
        raise EngineError("Spark is gone")


def test_a_copy_that_is_not_seen_from_here_is_not_finished(empty: World, tmp_path: Path) -> None:
    outcomes = run_on("copy", empty, engine=Elsewhere(tmp_path / "elsewhere"), wave_size=2)
    assert statuses(outcomes) == [FAILED, FAILED, DROPPED]
    assert isinstance(outcomes[0].error, StoreWriteUnknown)
    assert {segment.state for segment in empty.segments()} == {COPY_STARTED}


def test_copies_that_an_earlier_attempt_may_still_store_are_not_cleaned_up(empty: World) -> None:
    """Its objects would belong to no segment: the copies of a partition after the one that failed, too."""
    fails = partial(Failing, operation="verify_log_segment_data", nth=2, error=StoreWriteUnknown)
    outcomes = run_on("copy", empty, fails, engine=Repeating(1), wave_size=3)
    assert statuses(outcomes) == [DONE, FAILED, DROPPED]
    assert [segment.state for segment in empty.segments()] == [COPY_FINISHED, COPY_STARTED, COPY_STARTED]
    check_converges(empty)


def test_a_deletion_that_is_not_seen_from_here_is_not_finished(empty: World, tmp_path: Path) -> None:
    run_on("copy", empty)
    shutil.copytree(empty.remote, tmp_path / "elsewhere")
    outcomes = run_on("sweep", empty, engine=Elsewhere(tmp_path / "elsewhere"))
    assert set(statuses(outcomes)) == {FAILED}
    assert STARTED in {segment.state for segment in empty.segments()}
    assert set(statuses(run_on("sweep", empty))) == {DONE}


def test_nothing_is_published_for_an_engine_that_is_gone(empty: World) -> None:
    outcomes = run_on("copy", empty, engine=Gone(1), wave_size=2)
    assert statuses(outcomes) == [FAILED, FAILED, DROPPED]
    assert empty.segments() == []


DENIED, STORE = AuthenticationError("x"), RemoteStorageError("x")
ENDED = (DONE, None)
MEETS_ALL = (
    AuthenticationError,
    ConditionsRefused,
    EngineError,
    NotFoundError,
    RemoteTierMissing,
    StoreRefused,
)
"""Errors that each further step would meet, too."""
OF_ONE = (
    ObjectArchived,
    ObjectUnreadable,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteUnknown,
)
"""Errors of one object, and errors after which a retry may help."""


def steps(count: int) -> list[Step]:
    shared: dict[str, Any] = {"reason": "", "topic": "t", "topic_id": OTHER_ID, "partition": 0}
    details = {LINEAGE_EPOCH: 0}
    return [
        Step(action=Action.DELETE_SEGMENT, start_offset=at, details=details, **shared) for at in range(count)
    ]


def run_of(wave: list[Step]) -> Run:
    stop = SimpleNamespace(asked=lambda: False)
    context: Any = SimpleNamespace(metadata=SimpleNamespace(refresh=TierState), stop=stop)
    return Run(Plan(command="x", steps=tuple(wave), read={}), context, None)


@pytest.mark.parametrize(
    ("ends", "is_halted"),
    [
        ([(FAILED, DENIED)] * 2, True),
        ([(FAILED, DENIED), (DROPPED, None)], True),
        ([(FAILED, DENIED), ENDED], False),
        ([(FAILED, DENIED), (FAILED, STORE)], False),
        ([ENDED, (DROPPED, None)], False),
        ([(DROPPED, None)], False),
        *(([(FAILED, error("x"))] * 2, True) for error in MEETS_ALL),
        *(([(FAILED, error("x"))], not issubclass(error, StoreRefused)) for error in MEETS_ALL),
        ([(FAILED, DENIED), (FAILED, StoreRefused("x"))], True),
        *(([(FAILED, StoreRefused("x")), (FAILED, error("x"))], False) for error in OF_ONE),
        *(([(FAILED, error("x"))] * 2, False) for error in OF_ONE),
        ([(FAILED, StoreRefused("x")), ENDED], False),
    ],
)
def test_a_wave_of_which_all_is_refused_is_the_last(
    ends: list[tuple[Status, TierctlError | None]], is_halted: bool
) -> None:
    wave = steps(len(ends))
    this = run_of(wave)
    this.record(Outcome(step=s, status=end, error=error) for s, (end, error) in zip(wave, ends, strict=True))
    assert this.is_halted == is_halted
    assert this.may_begin() != is_halted


@pytest.mark.parametrize(("between", "is_halted"), [((DROPPED, None), True), (ENDED, False)])
def test_a_store_that_refuses_two_keys_and_takes_none_ends_the_run(
    between: tuple[Status, TierctlError | None], is_halted: bool
) -> None:
    """A key that is too long for the store says nothing about the others."""
    wave = steps(3)
    this = run_of(wave)
    for step, (end, error) in zip(
        wave, [refused := (FAILED, StoreRefused("x")), between, refused], strict=True
    ):
        this.record([Outcome(step=step, status=end, error=error)])
    assert this.is_halted == is_halted


def test_without_the_right_to_delete_only_the_waves_that_were_begun_are_tried(
    tiered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wave is begun while the first one is deleted."""
    monkeypatch.setattr("tests.apply.runs.CONFIGS", {"bills": TopicConfig(retention_bytes=1)})
    denied = FailingDisk(0, errno.EACCES, only=frozenset({"unlink"}), lasts=True)
    outcomes = run_on("sweep", tiered, lambda _: local_tier(tiered.remote, fs=denied), wave_size=1)
    assert len(outcomes) > 2
    assert statuses(outcomes) == [FAILED, FAILED, *[DROPPED] * (len(outcomes) - 2)]
    assert sum(segment.state is STARTED for segment in tiered.segments()) == 2
    assert set(statuses(run_on("sweep", tiered))) == {DONE}


class Unmounted(LocalEngine):
    """An engine on a host on which the disk of the log directory is not mounted."""

    def __init__(self, logs: Path, left: str) -> None:
        super().__init__(1)
        self._logs, self._left = logs, left

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        wait = super().begin(side_effect, inputs, context)
        return lambda: self._without_logs(wait)

    def _without_logs(self, wait: Callable[[], list[SideEffectResult]]) -> list[SideEffectResult]:
        away = self._logs.rename(self._logs.with_name("away"))
        if self._left == "folder":
            self._logs.mkdir()
        elif self._left == "file":
            self._logs.touch()
        try:
            return wait()
        finally:
            if self._left == "file":
                self._logs.unlink()
            away.replace(self._logs)


@pytest.mark.parametrize("left", ["nothing", "folder", "file"])
def test_where_the_log_directory_is_not_mounted_only_the_waves_that_were_begun_are_tried(
    empty: World, left: str
) -> None:
    outcomes = run_on("copy", empty, engine=Unmounted(empty.logs, left), wave_size=1)
    assert statuses(outcomes) == [FAILED, DROPPED, DROPPED]
    error = outcomes[0].error
    assert isinstance(error, NotFoundError)
    assert error.message == f"there is no log directory at {empty.logs}"
    assert empty.segments() == []
    assert set(statuses(run_on("copy", empty))) == {DONE}


class _Refused(NamedTuple):
    number: int
    is_closed: bool
    kind: type[TierctlError]
    is_halted: bool


@pytest.mark.parametrize(
    "case",
    [
        _Refused(errno.EACCES, True, AuthenticationError, True),
        _Refused(errno.EACCES, False, FileNotAllowed, False),
        _Refused(errno.EIO, False, RemoteStorageError, False),
    ],
)
def test_a_log_directory_that_is_closed_ends_the_run_and_a_file_or_a_failing_disk_does_not(
    monkeypatch: pytest.MonkeyPatch, empty: World, case: _Refused
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(case.number, "x", "y")

    monkeypatch.setattr(sys.modules[LogSources.__module__], "check_and_hash", refuse)
    with opened(empty) as manager:
        context = context_of(empty, manager, wave_size=1)
        plan = plan_of("copy", empty, manager)
        this = Run(plan, context, None)
        with monkeypatch.context() as patched:
            if case.is_closed:
                patched.setattr(os, "scandir", refuse)
            acts_of("copy", empty)[Action.COPY_SEGMENT](this, plan.steps)
    assert type(this.outcomes()[0].error) is case.kind
    assert this.is_halted == case.is_halted


def test_what_follows_a_dropped_step_is_dropped_in_later_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(reason: str | None) -> None:
        monkeypatch.setattr(recheck._Checker, "check", lambda _checker, _step: reason)

    monkeypatch.setattr(recheck._Checker, "check_contiguous", lambda *_: None)
    first, second, third, fourth = steps(4)
    this = run_of([first, second, third, fourth])
    answer(recheck._Done("another program did it"))
    assert this.recheck([first]) == ([], [])
    answer(None)
    assert this.recheck([second]) == ([second], [])
    answer("it no longer holds")
    assert this.recheck([third]) == ([], [third])
    answer(None)
    assert this.recheck([fourth]) == ([], [fourth])


_LIMIT = LimitExceeded("x")
_UNREAD = UnsupportedFormatError("x", expected="y", found="z")


@pytest.mark.parametrize(
    ("ends", "quarantined", "code"),
    [
        ([], False, 0),
        ([], True, 7),
        ([ENDED], False, 0),
        ([ENDED], True, 7),
        ([(FAILED, STORE)] * 2, False, 5),
        ([(FAILED, STORE)] * 2, True, 7),
        ([ENDED, (FAILED, _UNREAD), (DROPPED, None)], False, 7),
        ([(FAILED, ObjectArchived("x")), (FAILED, STORE)], False, 7),
        ([ENDED, (FAILED, STORE)], True, 7),
        ([(FAILED, DENIED), (DROPPED, None)], False, 11),
        ([ENDED, (FAILED, DENIED)], False, 3),
        ([(FAILED, DENIED)], True, 7),
        ([(FAILED, _LIMIT), (DROPPED, None)], False, 8),
        ([(FAILED, _LIMIT), (FAILED, STORE)], False, 3),
        ([(FAILED, MetadataError("x")), (FAILED, STORE)], False, 5),
        ([ENDED, (FAILED, STORE)], False, 3),
        ([ENDED, (DROPPED, None)], False, 3),
        ([(DROPPED, None)], True, 7),
        ([(PENDING, None)], False, 3),
        ([(FAILED, SafetyRefusal("x")), (DROPPED, None)], False, 4),
    ],
)
def test_exit_codes(ends: list[tuple[Status, Any]], quarantined: bool, code: int) -> None:
    (step,) = steps(1)
    outcomes = [Outcome(step=step, status=status, error=error) for status, error in ends]
    assert exit_code(outcomes, quarantined=quarantined) == code
