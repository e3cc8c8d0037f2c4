"""What a run works with, and how it ends: stores, clock, engine, side effects with labels, stop, outcomes.

All of these objects are passed in. Engines run side effects in parallel, also in other processes. They never
publish metadata: only the driver does. With the labels a test can kill the process around each side effect.
In production the observer does nothing. No code may depend on which observer is installed.

A run stops before its next side effect on SIGINT, SIGTERM or SIGHUP, or when its lease is lost.
"""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from tierctl.errors import ExitCode, LockedError, TierctlError, combined_exit_code
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, Uuid
from tierctl.model.choices import DELETE_WAVE_SIZE, NOT_A_BROKER_ID, THREADS, WAVE_SIZE
from tierctl.model.progress import Advance, no_op
from tierctl.model.settings.scopes import LATEST, KafkaVersion
from tierctl.plan.steps import Step
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.batches.batch_head import BatchHead

if TYPE_CHECKING:
    from tierctl.read.tasks import KeyRecord


STOPPED = "the run was told to stop"


class Status(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"
    """Not begun: a precondition of the step no longer holds, or an earlier step of its partition failed."""
    PENDING = "pending"
    """Not finished: the run was told to stop. The next run continues with this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of `step`.

    `segment_id` is the id that a copy was stored under. `reason` states why a step was dropped
    or is pending, what was done already, or what is unusual about a segment that was copied.
    """

    step: Step
    status: Status
    segment_id: Uuid | None = None
    error: TierctlError | None = None
    reason: str | None = None

    @property
    def is_own(self) -> bool:
        """Return whether this run did the step: otherwise it was found done, for the `reason`.

        The reason of a copy that this run stored, under `segment_id`, is a note.
        """
        return self.status is Status.DONE and (self.reason is None or self.segment_id is not None)

    def to_json(self) -> dict[str, Any]:
        """Return one flat JSON object: the fields of the step, then those of its outcome."""
        error = None if self.error is None else self.error.message
        return self.step.to_json() | {
            "segment_id": self.segment_id or self.step.segment_id,
            "status": str(self.status),
            "error": error,
            "why": self.reason,
        }


def exit_code(outcomes: Sequence[Outcome], *, quarantined: bool = False, has_changed: bool = False) -> int:
    """Return the run's exit code.

    That of the failed steps, as `combined_exit_code` says, with CORRUPT if some input was `quarantined`; if
    no step failed, PARTIAL if one was dropped or is pending. REFUSED promises that nothing was changed: of a
    run that `has_changed` something it is PARTIAL.
    """
    statuses = {outcome.status for outcome in outcomes}
    codes = {
        ExitCode.INTERNAL if each.error is None else each.error.exit_code
        for each in outcomes
        if each.status is Status.FAILED
    }
    if has_changed and ExitCode.REFUSED in codes:
        codes = codes - {ExitCode.REFUSED} | {ExitCode.PARTIAL}
    if quarantined:
        codes.add(ExitCode.CORRUPT)
    if not codes and not statuses <= {Status.DONE}:
        codes.add(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=Status.DONE in statuses)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A request to stop the run, also by the stop `outer`, and the signal that made the request."""

    def __init__(self, outer: Stop | None = None) -> None:
        self._outer = outer
        self._event = threading.Event()
        self._guards: list[Callable[[], bool]] = []
        self._is_over = False
        self.signal_number: int | None = None

    def asked(self) -> bool:
        """Return True if no further side effect may begin."""
        is_asked = self._event.is_set() or (self._outer is not None and self._outer.asked())
        return is_asked or self.is_over()

    def is_over(self) -> bool:
        """Return True if a guard ended the run: the tier may be another run's now.

        A run that is over stays over, even if its lease is renewed later: some of its work has stopped.
        """
        self._is_over = self._is_over or any(guard() for guard in self._guards)
        return self._is_over

    def guard(self, is_over: Callable[[], bool]) -> None:
        """Also stop the run once `is_over()` is True; every thread calls it before each side effect."""
        self._guards.append(is_over)

    def ask(self, signal_number: int | None = None) -> None:
        """Ask the run to stop before its next side effect."""
        self.signal_number = self.signal_number or signal_number
        self._event.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the timeout or a request to stop; return True if there is such a request."""
        return self._event.wait(timeout_seconds)

    @property
    def exit_code(self) -> int | None:
        """Return 128 + the number of the signal received, or None without a signal."""
        return None if self.signal_number is None else 128 + self.signal_number


@contextmanager
def calling_on_signals(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` on the first of STOP_SIGNALS, before the handler of the signal that was set before.

    `do` ends the waits of other threads, for which the main thread waits when it ends. Outside the main
    thread nothing is called.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in before.items() if callable(handler)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        do()
        handler = before[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[Stop]:
    """Set `stop` on the first of STOP_SIGNALS; a second signal is passed to the previous handlers.

    The previous handlers are restored after the block. A LockedError of the block, after which callers wait
    and try again, does not end a run that a signal asked to stop: the signal is passed on. A signal that the
    process ignores (SIGHUP under nohup) stays ignored. Outside the main thread, where Python allows no signal
    handlers, signals have no effect on `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            # A previous handler may have set another one, for the signal after it.
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.ask(number)
        restore()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    except LockedError:
        restore()
        if stop.signal_number is not None:
            signal.raise_signal(stop.signal_number)
        raise
    finally:
        restore()


Change = tuple[BatchHead, bytes]
"""A transactional batch: its head, at position 0, and for a marker the bytes of the batch, else none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """Name the files of one segment in `folder`, which is below the staging folder.

    `next_offset` is the offset after the last batch. `changes` are those of the log's transactions. `emptied`
    are the records that were written without key, value and headers.
    """

    folder: str
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    changes: tuple[Change, ...]
    emptied: tuple[KeyRecord, ...] = ()

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of the files."""
        return (log_name(self.base_offset), *index_names(self.base_offset))


def log_name(base_offset: int) -> str:
    """Return the name of the segment's log."""
    return f"{base_offset:020d}.log"


def index_names(base_offset: int) -> tuple[str, str]:
    """Return the names of the offset index and the time index."""
    return f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"


class StoppedCopies:
    """For each partition, the start offset of the segment at which copying stopped.

    No later segment of that partition may be copied: brokers would never fill the gap.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[Uuid, int], int] = {}

    def stop(self, key: tuple[Uuid, int], start_offset: int) -> None:
        """Stop the copying of partition `key` at the segment that begins at `start_offset`."""
        self._offsets[key] = min(start_offset, self._offsets.get(key, start_offset))

    def stopped_before(self, key: tuple[Uuid, int], start_offset: int) -> int | None:
        """Return the offset at which copying of `key` stopped, or None if it is not below `start_offset`."""
        stopped_at = self._offsets.get(key)
        return stopped_at if stopped_at is not None and start_offset > stopped_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTier:
    """The tier that segments are copied from, and the local folder that they are fetched to."""

    remote: RemoteStorageManager
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectContext:
    """The stores and callbacks that the side effects of one process use.

    A side effect calls `advance` with a segment's size in bytes once the segment's objects are stored, and
    `deleted` with the number of segments whose objects are deleted; the calling thread is the one that runs
    the side effect. `stopped_copies` has only the failures of this process; the publisher decides from the
    results.
    """

    remote: RemoteStorageManager
    source_tier: SourceTier | None = None
    stop: Stop = field(default_factory=Stop)
    advance: Advance = no_op
    deleted: Advance = no_op
    stopped_copies: StoppedCopies = field(default_factory=StoppedCopies)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectResult:
    """The result of one side effect.

    `begun` is True once the store may have been changed. `stopped` is True if the run was told to stop before
    that. If both are False, an earlier segment of the partition failed. `error` is StoreWriteUnknown if the
    outcome is unknown. `errors` has one entry per segment of a deletion: the error of this segment, or None.
    `custom_metadata` belongs to the copied segment (KIP-917); `written` are the files of a segment of a local
    log. `note` says what is unusual about a copied segment. `is_repeated` is True if an earlier attempt may
    still be running.
    """

    begun: bool = False
    stopped: bool = False
    error: TierctlError | None = None
    errors: Sequence[TierctlError | None] = ()
    custom_metadata: bytes | None = None
    written: WrittenSegment | None = None
    note: str | None = None
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectInput:
    """The segment that one side effect works on; small and picklable."""

    metadata: RemoteLogSegmentMetadata

    @property
    def topics(self) -> set[str]:
        """Return the topic of the segment."""
        return {self.metadata.topic}


Label = Literal[
    "tier.identity.write",
    "copy.started.publish",
    "copy.segment.store",
    "copy.finished.publish",
    "copy.cleanup_started.publish",
    "copy.cleanup.delete",
    "copy.cleanup_finished.publish",
    "sweep.log_start.write",
    "sweep.started.publish",
    "sweep.segment.delete",
    "sweep.finished.publish",
    "delete.marked.publish",
    "delete.partition_started.publish",
    "delete.segment_started.publish",
    "delete.segment.delete",
    "delete.segment_finished.publish",
    "delete.partition_finished.publish",
    "rebuild.epochs.write",
    "rebuild.log_starts.write",
    "rebuild.segments.publish",
    "repair.orphans.publish",
    "repair.indexes.store",
    "repair.offsets.write",
    "materialise.segment.write",
    "materialise.left_out.write",
    "restore.objects.copy",
    "restore.staging.create",
    "restore.old_folder.rename",
    "restore.partition.rename",
    "restore.staging.delete",
    "restore.checkpoints.write",
    "restore.segments.publish",
    "restore.bootstrap.write",
]

LABELS: tuple[Label, ...] = get_args(Label)
"""All labels, in the order in which a run reaches them."""

Moment = Literal["before", "after"]
Observer = Callable[[Label, Moment], None]


def _no_op(label: Label, moment: Moment) -> None:
    """Do nothing; this is the observer outside of tests."""


_observer: Observer = _no_op


def observe(observer: Observer | None) -> None:
    """Call `observer` before and after each side effect, in the thread that runs it; None removes it."""
    global _observer  # noqa: PLW0603
    _observer = observer or _no_op


@contextmanager
def effect(label: Label) -> Iterator[None]:
    """Mark the block as the side effect `label`; the observer gets "after" only if the block succeeds."""
    _observer(label, "before")
    yield
    _observer(label, "after")


P = TypeVar("P")

SideEffect = Callable[[SideEffectContext, P], SideEffectResult]
"""A module-level function, or a `partial` of one, so that it can be sent to another process."""


class Engine(Protocol):
    """Runs the independent side effects of a wave, in parallel where possible."""

    @property
    def verify_on_driver(self) -> bool:
        """Return True if the driver must check each side effect on its own view of the tier.

        That is the case when `file:` may name another folder in the process that runs the side effect.
        """
        ...

    @property
    def wave_size(self) -> int:
        """Return the number of segments to copy per wave when the operator gave none."""
        ...

    @property
    def delete_wave_size(self) -> int:
        """Return the number of segments to delete per wave when the operator gave none."""
        ...

    def ready(self) -> None:
        """Raise TierctlError if the engine can take no work; called before a wave is published."""
        ...

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Begin `side_effect` on each input; return a function that waits for the results and returns them.

        The results are in the order of `inputs`, which follow those of earlier calls. An engine that does one
        thing at a time begins when the results are first requested. `side_effect` reports a failure in its
        result. `context` is that of this process; an engine that uses other processes opens an equal one
        there. An input without a result gets StoreWriteUnknown, or `stopped` if the run was told to stop.
        """
        ...


class LocalEngine:
    """Runs side effects on a pool of `threads` threads in this process."""

    verify_on_driver = False
    wave_size = WAVE_SIZE
    delete_wave_size = DELETE_WAVE_SIZE

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tierctl-side-effect")

    def ready(self) -> None:
        """Implement `Engine.ready`: threads are always ready."""

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`; with one thread the thread that requests the results does the work."""
        if self._threads == 1:
            return cache(lambda: [side_effect(context, each) for each in inputs])
        return partial(_results, [self._pool.submit(side_effect, context, each) for each in inputs])


def _results(futures: Sequence[Future[SideEffectResult]]) -> list[SideEffectResult]:
    """Return the results; if one raises, wait until none is under way, and raise."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Inputs of a run besides its plan.

    `clock_ms` returns the timestamp for each event, `new_segment_id` the id for each attempt to copy a
    segment. `advance` and `deleted` are passed to `SideEffectContext`. With `allow_missing_objects` the run
    accepts the tier without looking for objects, and treats segments without objects as deleted. With
    `adopt_tier` it assigns the tier to its metadata topic, whatever the tier's identity is. Published events
    have the fields that brokers of `kafka_version` write. `changed` is set once an event was published or a
    log start was raised.
    """

    remote: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    clock_ms: Callable[[], int]
    new_segment_id: Callable[[], Uuid]
    broker_id: int = NOT_A_BROKER_ID
    engine: Engine = field(default_factory=lambda: LocalEngine(THREADS))
    wave_size: int = WAVE_SIZE
    delete_wave_size: int = DELETE_WAVE_SIZE
    stop: Stop = field(default_factory=Stop)
    allow_missing_objects: bool = False
    adopt_tier: bool = False
    kafka_version: KafkaVersion = LATEST
    advance: Advance = no_op
    deleted: Advance = no_op
    changed: threading.Event = field(default_factory=threading.Event)

    def waves(self, copies: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield consecutive slices of `copies`, each of at most `wave_size` items."""
        return slices(copies, self.wave_size)

    def delete_waves(self, deletes: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield consecutive slices of `deletes`, each of at most `delete_wave_size` items."""
        return slices(deletes, self.delete_wave_size)

    def publish(self, events: Sequence[MetadataEvent]) -> None:
        """Publish `events`; raise LockedError if the lease was lost while the metadata before them were read.

        Another run may have copied or deleted the same segments since the caller last asked `stop`.
        """
        self.metadata.publish(events, before_append=self._require_lease)
        self.changed.set()

    def _require_lease(self) -> None:
        if self.stop.is_over():
            raise LockedError(
                "the lease of the tier was lost, so the next metadata event was not written",
                hint="another tierctl may be running; run again when it has ended",
            )

    def side_effect_context(self, stopped_copies: StoppedCopies | None = None) -> SideEffectContext:
        """Return the context of the side effects that run in this process."""
        return SideEffectContext(
            remote=self.remote,
            stop=self.stop,
            advance=self.advance,
            deleted=self.deleted,
            stopped_copies=stopped_copies or StoppedCopies(),
        )


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of `items`, each of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def new_segment_id() -> Uuid:
    """Return a random id that does not begin with '-', so that no tool takes it for an option.

    Source: Kafka's Uuid.randomUuid.
    """
    while True:
        candidate = Uuid.from_bytes(uuid.uuid4().bytes)
        if not candidate.startswith("-"):
            return candidate
