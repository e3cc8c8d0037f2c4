"""With failing stores and disks, no FINISHED event lacks its objects, and later runs finish the work."""

import errno
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import Status, Stop, exit_code, stop_on_signals
from tierctl.errors import (
    ExitCode,
    LimitExceeded,
    LockedError,
    MetadataError,
    StoreWriteUnknown,
    TransferStopped,
)
from tierctl.model import RemoteLogSegmentState, RemotePartitionDeleteState

from tests.apply.faults import Custom, Failing, HalfDeleting
from tests.apply.runs import opened, run_on, statuses
from tests.apply.worlds import World, check_deleted, check_durable
from tests.cli.shell import tierctl
from tests.metadata.events import deletion_of
from tests.support.faults import Failing as FailingDisk
from tests.support.faults import observed
from tests.support.topic_settings import enabled

DONE, FAILED, DROPPED, PENDING = Status.DONE, Status.FAILED, Status.DROPPED, Status.PENDING


@pytest.fixture(scope="module")
def beginnings(beginning: World, copied: World, module_folder: Path) -> dict[str, World]:
    """Return the world in which each command begins."""
    marked = copied.clone(module_folder / "marked")
    mark(marked)
    return {"copy": beginning, "sweep": copied, "delete": marked}


def mark(world: World) -> None:
    """Mark the partition of a segment as deleted."""
    with opened(world) as manager:
        manager.refresh()
        deleted = deletion_of(world.segments()[0], RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
        manager.publish([deleted])


@pytest.fixture(scope="module")
def ends(beginnings: dict[str, World], module_folder: Path) -> dict[str, Any]:
    """Return the result of an undisturbed run."""
    facts = {}
    for command, beginning in beginnings.items():
        world = beginning.clone(module_folder / f"end-{command}")
        assert set(statuses(run_on(command, world))) == {DONE}
        facts[command] = world.facts()
    return facts


@pytest.fixture
def world(beginnings: dict[str, World], tmp_path: Path) -> Callable[[str], World]:
    return lambda command: beginnings[command].clone(tmp_path / command)


def _converge(command: str, world: World, end: Any) -> None:
    check_durable(world)
    check_deleted(world)
    run_on(command, world)
    assert world.facts() == end
    check_durable(world)


@pytest.mark.parametrize("silent", [False, True], ids=["error", "silent"])
@pytest.mark.parametrize("command", ["sweep", "delete"])
def test_half_a_deletion_is_never_finished(
    command: str, silent: bool, world: Callable[[str], World], ends: dict[str, Any]
) -> None:
    here = world(command)
    outcomes = run_on(command, here, lambda inner: HalfDeleting(inner, here.remote, silent=silent))
    assert set(statuses(outcomes)) == {FAILED}
    begun = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    assert sum(segment.state is begun for segment in here.segments()) == (2 if command == "sweep" else 3)
    _converge(command, here, ends[command])


def test_a_clean_up_that_fails_is_a_begun_deletion(
    world: Callable[[str], World], ends: dict[str, Any]
) -> None:
    here = world("copy")

    def wrap(inner: Any) -> Failing:
        return Failing(Failing(inner, "delete_log_segments", 0), "verify_log_segment_data", 2)

    outcomes = run_on("copy", here, wrap, wave_size=3)
    assert statuses(outcomes) == [DONE, FAILED, DROPPED]
    assert "not cleaned up, which the next copy does" in str(outcomes[1].reason)
    left = {segment.segment_id: segment.state for segment in here.segments()}
    begun = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    assert left[outcomes[1].segment_id] is left[outcomes[2].segment_id] is begun
    _converge("copy", here, ends["copy"])


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_transfer_that_was_stopped_is_never_finished(
    nth: int, world: Callable[[str], World], ends: dict[str, Any]
) -> None:
    """The lease seems lost while a transfer waits for its turn, and is renewed afterwards."""
    here = world("copy")
    wrap = partial(Failing, operation="copy_log_segment_data", nth=nth, error=TransferStopped)
    outcomes = run_on("copy", here, wrap, wave_size=2)
    assert statuses(outcomes) == [DONE] * (nth - 1) + [DROPPED] * (4 - nth)
    _converge("copy", here, ends["copy"])


def test_a_run_that_was_over_stays_over() -> None:
    answers = iter([False, True, False])
    stop = Stop()
    stop.guard(lambda: next(answers))
    assert [stop.asked() for _ in range(4)] == [False, True, True, True]


def test_a_write_of_unknown_outcome_is_not_cleaned_up(world: Callable[[str], World]) -> None:
    here = world("copy")
    wrap = partial(Failing, operation="copy_log_segment_data", nth=2, after=True, error=StoreWriteUnknown)
    outcomes = run_on("copy", here, wrap)
    assert statuses(outcomes) == [DONE, FAILED, DROPPED]
    begun = [s for s in here.segments() if s.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED]
    assert [segment.segment_id for segment in begun] == [outcomes[1].segment_id]
    check_durable(here)


@pytest.mark.parametrize("size_bytes", [0, 128, 129])
def test_custom_metadata_over_the_limit_stop_the_partition(
    size_bytes: int, world: Callable[[str], World]
) -> None:
    here = world("copy")
    custom = b"c" * size_bytes
    stores: list[Custom] = []

    def wrap(inner: Any) -> Custom:
        stores.append(Custom(inner, custom))
        return stores[0]

    outcomes = run_on("copy", here, wrap)
    if size_bytes <= 128:
        assert statuses(outcomes) == [DONE] * 3
        assert [segment.custom_metadata for segment in here.segments()] == [custom] * 3
        return
    assert statuses(outcomes) == [FAILED, DROPPED, DROPPED]
    assert isinstance(outcomes[0].error, LimitExceeded)
    assert exit_code(outcomes) == ExitCode.LIMIT
    first = [metadata for metadata in stores[0].deleted if metadata.start_offset == 0]
    assert [metadata.custom_metadata for metadata in first] == [custom], "one delete, with what it returned"
    assert here.segments() == []
    assert here.objects() == {}
    logs = b"".join(path.read_bytes() for path in here.metadata.glob("*/*.log"))
    assert custom not in logs, "what is over the limit is never stored"


@pytest.mark.parametrize("operation", ["write", "fsync"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("command", ["copy", "sweep", "delete"])
def test_the_metadatas_disk_fails(
    command: str, operation: str, nth: int, world: Callable[[str], World], ends: dict[str, Any]
) -> None:
    here = world(command)
    disk = FailingDisk(nth - 1, errno.ENOSPC, only=frozenset({operation}))
    outcomes = run_on(command, here, fs=disk)
    # A metadata index that can't be written is no failure, because the records are on the disk.
    if disk.failed is not None and "index" not in disk.failed.name:
        assert any(isinstance(outcome.error, MetadataError) for outcome in outcomes)
        assert not effects_after_failure(outcomes)
    _converge(command, here, ends[command])


def effects_after_failure(outcomes: Any) -> bool:
    """Return whether a step was carried out after a step whose publication failed."""
    failed = [at for at, outcome in enumerate(outcomes) if isinstance(outcome.error, MetadataError)]
    return any(outcome.status is DONE for outcome in outcomes[failed[0] :])


def _stopper(stop: Stop, met: list[str], at: int) -> Callable[[str, str], None]:
    def observe(label: str, moment: str) -> None:
        met.append(moment)
        if moment == "after" and met.count("after") == at:
            stop.ask(signal.SIGTERM)

    return observe


@pytest.mark.parametrize("command", ["copy", "sweep", "delete"])
def test_a_stop_comes_before_the_next_side_effect(
    command: str, beginnings: dict[str, World], ends: dict[str, Any], tmp_path: Path
) -> None:
    for moments in range(1, 20):
        here = beginnings[command].clone(tmp_path / str(moments))
        stop, met = Stop(), list[str]()

        with observed(_stopper(stop, met, moments)):
            outcomes = run_on(command, here, stop=stop, wave_size=1)
        if not stop.asked():
            break
        assert met.count("before") == moments, "a side effect was begun after the stop"
        assert stop.exit_code == 143
        _converge(command, here, ends[command])
    assert set(statuses(outcomes)) == {DONE}


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("copy", "copy.started.publish"),
        ("copy", "copy.finished.publish"),
        ("sweep", "sweep.started.publish"),
        ("sweep", "sweep.finished.publish"),
        ("delete", "delete.partition_started.publish"),
        ("delete", "delete.segment_started.publish"),
    ],
)
def test_no_event_is_written_once_the_lease_is_lost(
    command: str, label: str, beginnings: dict[str, World], ends: dict[str, Any], tmp_path: Path
) -> None:
    """The lease is lost after its last check, while the run reads the metadata before the event."""
    here = beginnings[command].clone(tmp_path / "world")
    stop, lost, begun = Stop(), list[bool](), list[int]()
    stop.guard(lambda: bool(lost))

    def observe(name: str, moment: str) -> None:
        if (name, moment) == (label, "before"):
            lost.append(True)
            begun.append(sum(here.state().read.values()))

    with observed(observe):
        outcomes = run_on(command, here, stop=stop)
    assert len(begun) == 1
    assert sum(here.state().read.values()) == begun[0], "an event was written"
    assert any(isinstance(outcome.error, LockedError) for outcome in outcomes)
    _converge(command, here, ends[command])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_between_side_effects(
    number: signal.Signals, world: Callable[[str], World]
) -> None:
    here = world("copy")

    def observe(label: str, moment: str) -> None:
        if (label, moment) == ("copy.segment.store", "after"):
            signal.raise_signal(number)

    with observed(observe):
        logs = ("--log-dir", here.logs, *enabled(here.logs))
        ran = tierctl("copy", *here.where, *logs, "--threads", 1, "-o", "json", "--apply")
    assert ran.code == 128 + number
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["pending"] * 3
    check_durable(here)


def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    """nohup makes the process ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals(Stop()) as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.asked()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_is_not_forgotten_while_another_run_has_the_lock() -> None:
    """The run would wait for the lock, and try again."""

    def locked_out() -> None:
        with stop_on_signals(Stop()):
            signal.raise_signal(signal.SIGINT)
            raise LockedError("another tierctl holds the lease")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        locked_out()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_third_signal_has_the_handler_that_the_second_one_set() -> None:
    """As that of the command line: the third signal ends the process at once, also while it cleans up."""

    def once(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    def twice() -> None:
        with stop_on_signals(Stop()):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, once)
    try:
        with pytest.raises(KeyboardInterrupt):
            twice()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_runs_outside_the_main_thread_leave_signals_alone() -> None:
    def body() -> bool:
        with stop_on_signals(Stop()) as stop:
            return stop.asked()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(body).result() is False
