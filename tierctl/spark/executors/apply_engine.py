"""Engine of apply that runs side effects on the executors of Apache Spark, through the transport.

Executors never publish metadata. The outcome of an input is unknown if no executor returned a result, or if a
retried attempt failed: the first attempt may still be running somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

from tierctl.apply.run_context import SideEffect, SideEffectContext, SideEffectResult, SourceTier, Stop
from tierctl.errors import (
    RemoteResourceNotFound,
    RemoteTierMissing,
    StoreWriteUnknown,
    TierctlError,
    UsageError,
)
from tierctl.model.choices import DELETE_WAVE_SIZE
from tierctl.model.progress import no_op
from tierctl.model.selection import names_text
from tierctl.spark.executors.task import Advance, Opened, shared_tier, with_host
from tierctl.spark.executors.transport import Executors, InputResult, JobFailedError, JobStoppedError, Tasks
from tierctl.spark.session.jvm import SPECULATION, is_connect, is_speculative
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.open_tier import TierSpec

P = TypeVar("P")
T = TypeVar("T")

COPIES_PER_SLOT = 2
"""Copies per wave for each slot: a killed run leaves two waves of begun copies for the next run."""

TASKS_PER_SLOT = 4
"""Tasks are small, so that the last ones end together and a lost executor loses little work."""

SEGMENTS_PER_REQUEST = 160
"""The minimum number of segments whose objects S3 deletes with one request."""

DELETE_WAVE_SIZE_MAX = 10_000

_STOPPED = SideEffectResult(begun=True, stopped=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectContextSpec:
    """How an executor opens a SideEffectContext; `source` is the tier that segments are copied from."""

    remote: TierSpec
    source: TierSpec | None = None

    def shared(self, by: Callable[[], int]) -> Self:
        """Return this spec for one of `by()` tasks that run at the same time and share its limits."""
        source = None if self.source is None else self.source.shared(by)
        return replace(self, remote=self.remote.shared(by), source=source)

    @contextmanager
    def opened(self, advance: Advance) -> Iterator[SideEffectContext]:
        """Provide a context for one task; raise TierctlError if a tier cannot be opened on this host."""
        remote = shared_tier(self.remote)
        if self.source is None:
            yield SideEffectContext(remote=remote, advance=advance)
            return
        with spool_folder() as spool:
            source_tier = SourceTier(remote=shared_tier(self.source), spool=spool)
            yield SideEffectContext(remote=remote, source_tier=source_tier, advance=advance)


@contextmanager
def opened_side_effect(
    side_effect: SideEffect[Any], spec: SideEffectContextSpec, advance: Advance
) -> Iterator[Callable[[Any], SideEffectResult]]:
    """Provide a side effect for the inputs of a task, with one context for all of them.

    If the context cannot be opened, every input of the task fails with that error and is not begun.
    """
    with ExitStack() as opened:
        try:
            context = opened.enter_context(spec.opened(advance))
        except TierctlError as e:
            failed = SideEffectResult(error=e)
            yield lambda _: failed
            return
        yield partial(side_effect, context)


class SparkEngine:
    """Engine on the executors of a Spark session, of Spark Connect as well.

    `title` is shown beside the progress bar of tasks. Raise UsageError if the session uses speculation.
    """

    def __init__(
        self,
        executors: Executors,
        spec: SideEffectContextSpec,
        *,
        stop: Stop | None = None,
        title: str = "segments",
    ) -> None:
        self._executors = executors
        self._spec = spec
        self._title = title
        self._stop = Stop() if stop is None else stop
        self._is_ready = False
        self._waves = 0
        # Spark's settings belong to the session, so that only one job may run at a time.
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="tierctl-jobs")
        _refuse_speculation(executors)

    @property
    def verify_on_driver(self) -> bool:
        """Implement `Engine.verify_on_driver`: True for a folder, unless Spark runs in this process."""
        session = self._executors.session
        master = str(session.conf.get("spark.master", ""))
        is_here = (master == "local" or master.startswith("local[")) and not is_connect(session)
        return self._spec.remote.uri.startswith("file:") and not is_here

    @property
    def slots(self) -> int:
        """Return how many tasks run at the same time."""
        self.ready()
        return self._probed_slots()

    def _probed_slots(self) -> int:
        """Return the slots after a probe, if one is due; called where no other job runs."""
        self._probe()
        return self._executors.slots if self._is_ready else 1

    @property
    def wave_size(self) -> int:
        """Implement `Engine.wave_size`: a segment for each slot, and one that follows it."""
        return self.slots * COPIES_PER_SLOT

    @property
    def delete_wave_size(self) -> int:
        """Implement `Engine.delete_wave_size`: a request to the store for each slot, or more."""
        return max(DELETE_WAVE_SIZE, min(self.slots * SEGMENTS_PER_REQUEST, DELETE_WAVE_SIZE_MAX))

    def ready(self) -> None:
        """Implement `Engine.ready`: probe the executors once, and again after a job failed.

        Raise UsageError if executors cannot work, because a tier cannot be opened there, a library is
        missing, or another version of tierctl is installed, and the error of a store that refuses a request.
        """
        if not self._is_ready:
            self._jobs.submit(self._probe).result()

    def _probe(self) -> None:
        if self._is_ready:
            return
        try:
            self._executors.probe(partial(_ask_once, self._spec), stopped=self._stop.asked)
        except JobStoppedError:
            # The caller checks the same `stop` before it starts further work.
            return
        self._is_ready = True

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`: the jobs run one after the other from a thread of their own."""
        return self._jobs.submit(self._run_job, side_effect, inputs, context).result

    def _run_job(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Return the result of each input; retry inputs that a failed job left without one, one by one.

        Nothing is cleaned up by guess: a lost task may still be running.
        """
        self._waves += 1
        numbered = list(enumerate(inputs))
        task = partial(opened_side_effect, side_effect, self._spec.shared(self._probed_slots))
        try:
            tasks = slices(numbered, min(len(numbered), self._probed_slots() * TASKS_PER_SLOT))
            results = self._run(task, tasks, context, title=self._title)
        except JobStoppedError:
            return [_STOPPED] * len(numbered)
        except JobFailedError as e:
            self._is_ready = False
            results = self._retry_each(task, numbered, context, e)
        return [results.get(number, _unknown(None)) for number, _ in numbered]

    def _run(
        self,
        task: Opened,
        tasks: Tasks[Any],
        context: SideEffectContext,
        *,
        is_retried: bool = False,
        title: str | None = None,
    ) -> dict[int, SideEffectResult]:
        topics = {topic for part in tasks for _, each in part for topic in getattr(each, "topics", ())}
        what = f"wave {self._waves}" + (f", {names_text(topics)}" if topics else "")
        found = self._executors.run_tasks(
            task, tasks, stopped=context.stop.asked, is_retried=is_retried, title=title, what=what
        )
        for result in found.values():
            context.advance(result.processed_bytes)
        return {number: side_effect_result(result) for number, result in found.items()}

    def _retry_each(
        self,
        task: Opened,
        numbered: Sequence[tuple[int, Any]],
        context: SideEffectContext,
        failed: JobFailedError,
    ) -> dict[int, SideEffectResult]:
        """Run one job per input, so that an input that kills its executor does not affect the others."""

        def retry(each: tuple[int, Any]) -> dict[int, SideEffectResult]:
            try:
                return self._run(task, [[each]], context, is_retried=True)
            except JobStoppedError:
                return {each[0]: _STOPPED}
            except JobFailedError as e:
                return {each[0]: _unknown(e)}

        try:
            slots = self._probed_slots()
        except TierctlError:
            return {number: _unknown(failed) for number, _ in numbered}
        with ThreadPoolExecutor(slots) as pool:
            return {number: result for found in pool.map(retry, numbered) for number, result in found.items()}


def slices(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """Cut `items` into at most `count` consecutive slices, so that a partition's segments stay in order."""
    size = -(-len(items) // max(1, count))
    return [items[start : start + size] for start in range(0, len(items), max(1, size))]


def side_effect_result(found: InputResult[SideEffectResult]) -> SideEffectResult:
    """Return the result of a side effect; a failure of a retried attempt becomes StoreWriteUnknown."""
    result = found.value
    if not isinstance(result, SideEffectResult):
        return _unknown(found.error)
    if result.error is None:
        errors = [None if error is None else with_host(error, found.host) for error in result.errors]
        return replace(result, errors=errors, is_repeated=found.is_retried)
    error = with_host(result.error, found.host)
    if found.is_retried and not isinstance(error, StoreWriteUnknown):
        error = StoreWriteUnknown(error.message, hint=error.hint)
    return replace(result, error=error)


def _unknown(cause: TierctlError | None) -> SideEffectResult:
    """Return the result of an input whose outcome is unknown because of `cause`."""
    why = "no executor answered" if cause is None else cause.message
    hint = "run the command again" if cause is None else cause.hint
    error = StoreWriteUnknown(f"the outcome of this segment is not known: {why}", hint=hint)
    return SideEffectResult(begun=True, error=error)


def _ask_once(spec: SideEffectContextSpec) -> None:
    """Open the tiers of `spec` on this executor, and list a folder of each: an answer shows the rights."""
    with spec.opened(no_op) as context:
        source = context.source_tier
        for remote in (context.remote, *(() if source is None else (source.remote,))):
            with suppress(RemoteTierMissing, RemoteResourceNotFound):
                remote.list_folder()


def _refuse_speculation(executors: Executors) -> None:
    if is_speculative(executors.session.conf.get(SPECULATION, None)):
        raise UsageError(
            f"{SPECULATION} is on: no segment may be stored or deleted twice at a time",
            hint=f"start Spark, or its Connect server, with {SPECULATION}=false",
        )
