"""The executors' side of an engine: each opens a bench of its own, and answers in Arrow columns.

What comes from the driver is pickled, what goes back to it never is.
"""

import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import tierctl
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult, SourceTier
from tierctl.errors import StoreWriteUnknown, TierctlError
from tierctl.storage import TierSpec, open_tier
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.spool import spool_folder

PIECE = "piece"
ANSWERS = (
    "at BIGINT, begun BOOLEAN, stopped BOOLEAN, custom_metadata BINARY, error STRING, message STRING, "
    "hint STRING, done_bytes BIGINT, host STRING"
)
_ANSWERS = pa.schema(
    {
        "at": pa.int64(),
        "begun": pa.bool_(),
        "stopped": pa.bool_(),
        "custom_metadata": pa.binary(),
        "error": pa.string(),
        "message": pa.string(),
        "hint": pa.string(),
        "done_bytes": pa.int64(),
        "host": pa.string(),
    }
)
GREETINGS = "host STRING, version STRING, error STRING, message STRING, hint STRING"
_GREETINGS = pa.schema({name: pa.string() for name in ("host", "version", "error", "message", "hint")})

_tiers: dict[bytes, RemoteStorageManager] = {}
"""Of this Python worker, which does many tasks: clients are dear, and bound to their process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """What an executor needs to set up a bench; `from_remote` is the tier that is copied from."""

    remote: TierSpec
    from_remote: TierSpec | None = None

    @contextmanager
    def bench(self, advance: Callable[[int], None]) -> Iterator[SideEffectContext]:
        """A bench for one task; TierctlError when a tier can't be opened here."""
        remote = tier_of(self.remote)
        if self.from_remote is None:
            yield SideEffectContext(remote=remote, advance=advance)
            return
        with spool_folder() as spool:
            source_tier = SourceTier(remote=tier_of(self.from_remote), spool=spool)
            yield SideEffectContext(remote=remote, source_tier=source_tier, advance=advance)


def tier_of(spec: TierSpec) -> RemoteStorageManager:
    """The tier as this worker has it open; TierctlError when it can't be opened here."""
    key = pickle.dumps(spec)
    if key not in _tiers:
        _tiers[key] = open_tier(spec)
    return _tiers[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """For mapInArrow: does the pieces of one task, one after the other.

    With `again` they may have been begun by another job.
    """

    do: Callable[[SideEffectContext, Any], SideEffectResult]
    spec: BenchSpec
    again: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """ANSWERS, a batch a piece."""
        done_bytes: list[int] = []
        again = self.again or _is_retried()
        try:
            with self.spec.bench(done_bytes.append) as bench:
                for at, piece in _pieces(batches):
                    answer = self.do(bench, piece)
                    yield _answer(at, _uncertain(answer) if again else answer, sum(done_bytes))
                    done_bytes.clear()
        except TierctlError as e:
            # No bench, no work: whatever `do` meets is in its answer.
            for at, _ in _pieces(batches):
                answer = SideEffectResult(error=e)
                yield _answer(at, _uncertain(answer) if again else answer, 0)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, SideEffectInput]]:
    for batch in batches:
        for at, piece in zip(batch["at"].to_pylist(), batch[PIECE].to_pylist(), strict=True):
            yield at, pickle.loads(piece)


def _is_retried() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _uncertain(answer: SideEffectResult) -> SideEffectResult:
    """What a retried task may say: the one before it may still be at work, so no failure is certain."""
    if answer.error is None or isinstance(answer.error, StoreWriteUnknown):
        return answer
    return replace(answer, error=StoreWriteUnknown(answer.error.message, hint=answer.error.hint))


def _answer(at: int, answer: SideEffectResult, done_bytes: int) -> pa.RecordBatch:
    row = {
        "at": at,
        "begun": answer.begun,
        "stopped": answer.stopped,
        "custom_metadata": answer.custom_metadata,
        "done_bytes": done_bytes,
        "host": socket.gethostname(),
    }
    return pa.RecordBatch.from_pylist([row | error_columns(answer.error)], schema=_ANSWERS)


def error_columns(error: TierctlError | None) -> dict[str, str | None]:
    """An error as columns `error` (its class), `message` and `hint`; nulls for none."""
    if error is None:
        return {"error": None, "message": None, "hint": None}
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeter:
    """For mapInArrow: says of one task's executor whether it could work."""

    spec: BenchSpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """GREETINGS, one row a task."""
        for _ in batches:
            pass
        row = error_columns(None)
        try:
            with self.spec.bench(lambda _size_bytes: None):
                pass
        except TierctlError as e:
            row = error_columns(e)
        row |= {"host": socket.gethostname(), "version": tierctl.__version__}
        yield pa.RecordBatch.from_pylist([row], schema=_GREETINGS)
