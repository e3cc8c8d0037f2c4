"""What runs on executors: functions applied to inputs, results encoded, tiers opened once."""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tierctl import kernel
from tierctl.errors import EngineError, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.parallel_fold import FoldResult, FoldTask, run_fold_task
from tierctl.metadata.server_properties import cluster_client
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.metadata.topic.open_topic import require_read
from tierctl.model.location import TopicLocation
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.throttle import Direction, FetchCounts, Throttle, Transfers, Waits
from tierctl.wire.primitives import limits, use_limit_factor

if TYPE_CHECKING:
    from pyspark import TaskContext

T = TypeVar("T")

# Encode results and errors on executors, and decode them on the driver without running foreign code.
#
# Executors read metadata and objects that other programs wrote, so their results are untrusted input. Only
# plain data, tierctl's own data classes and tierctl's errors are decoded: no pickled call of another
# function.

_ALLOWED = frozenset(
    {
        ("builtins", "bytearray"),
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("tierctl.apply.run_context", "SideEffectResult"),
        ("tierctl.apply.run_context", "WrittenSegment"),
        ("tierctl.errors", "_restored"),
        ("tierctl.plan.reasons", "_made"),
        ("tierctl.storage.stores.base", "RemoteObject"),
    }
)
_PACKAGES = (
    "errors",
    "model",
    "state",
    "plan",
    "checks.findings",
    "checks.metadata",
    "checks.segments",
    "checks.objects",
    "checks.bytes",
    "checks.deep",
    "checks.cross_check",
    "checks.environment",
    "metadata.daily_changes",
    "metadata.parallel_fold",
    "read.tasks",
    "wire.files.checkpoints",
    "metadata.cache_building",
    "metadata.cache_files",
    "report.html_lanes",
    "report.formatters.pages",
    "report.formatters.records",
    "wire.batches.batch_head",
    "wire.batches.scan",
    "storage.throttle",
    "spark.executors.examined",
    "commands.tier_digest",
    "commands.what_if_facts",
    "pipeline.bucket_task",
    "pipeline.warehouse",
)
"""The packages and modules below `tierctl` whose classes may be decoded."""

_PROTOCOL = 5
# A compressed value is: this magic, with which no pickle begins; the size of the pickle; a Zstandard frame.
_COMPRESSED, _SIZE = b"ZSTD", struct.Struct(">Q")
# Values with fewer bytes are not compressed.
_COMPRESSED_BYTES_MIN = 1 << 16
# A damaged or forged pickle may raise any of these.
_DECODING_ERRORS = (
    *(pickle.UnpicklingError, EOFError, ImportError, AttributeError, OSError, struct.error, MemoryError),
    *(ValueError, TypeError, LookupError, OverflowError),
)


def dumps(value: Any) -> bytes:
    """Return `value` as a pickle, a large one compressed: Spark's driver holds three copies of a result."""
    data = pickle.dumps(value, _PROTOCOL)
    if len(data) < _COMPRESSED_BYTES_MIN:
        return data
    return b"".join((_COMPRESSED, _SIZE.pack(len(data)), pa.compress(data, codec="zstd", asbytes=True)))


def loads(data: bytes) -> Any:
    """Return the value that `dumps` encoded; raise UnpicklingError for a class that may not be decoded."""
    if data.startswith(_COMPRESSED):
        at = len(_COMPRESSED)
        (size_bytes,) = _SIZE.unpack_from(data, at)
        frame = memoryview(data)[at + _SIZE.size :]
        data = pa.decompress(frame, decompressed_size=size_bytes, codec="zstd", asbytes=True)
    return _RestrictedUnpickler(io.BytesIO(data)).load()


def decoded(data: bytes, kind: type[T]) -> T:
    """Return what an executor sent; raise EngineError if it cannot be decoded, or is not of the `kind`."""
    try:
        found = loads(data)
    except _DECODING_ERRORS as e:
        raise EngineError(
            f"the result of an executor cannot be decoded: {e}",
            hint="check that executors have the same version of tierctl",
        ) from e
    if not isinstance(found, kind):
        raise EngineError(
            f"the result of an executor cannot be decoded: it is of type {type(found).__name__}"
        )
    return found


def decoded_outcome(data: bytes, *, is_error: bool) -> tuple[Any, TierctlError | None]:
    """Return the result of an executor and None, or None and its error, also if it cannot be decoded."""
    try:
        return (None, decoded(data, TierctlError)) if is_error else (decoded(data, object), None)
    except EngineError as e:
        return None, e


def with_host(error: TierctlError, host: str) -> TierctlError:
    """Return `error` with the executor's host in its hint."""
    place = f"on executor {host}"
    error.hint = f"{error.hint}; {place}" if error.hint else place
    return error


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_own = any(f"{module}.".startswith(f"tierctl.{package}.") for package in _PACKAGES)
        if (module, name) in _ALLOWED or is_own:
            found = super().find_class(module, name)
            if (module, name) in _ALLOWED or (isinstance(found, type) and found.__module__ == module):
                return found
        # An error class of another module. The module must be loaded: importing one may have effects.
        loaded = getattr(sys.modules.get(module), name, None)
        if isinstance(loaded, type) and issubclass(loaded, TierctlError) and loaded.__module__ == module:
            return loaded
        raise pickle.UnpicklingError(f"{module}.{name} can't be transferred from executors")


# Tiers and metadata topics that a Python worker opens once and uses for many tasks.
#
# Opening a client is expensive, and a client belongs to the process that opened it.

_tiers: dict[bytes, tuple[RemoteStorageManager, Throttle]] = {}
_fetches = FetchCounts()


def shared_tier(spec: TierSpec) -> RemoteStorageManager:
    """Return the tier of `spec`, opened at most once in this process; raises as `open_tier`."""
    key = pickle.dumps(spec)
    if key not in _tiers:
        throttle = Throttle()
        remote = open_tier(spec, throttle=throttle)
        remote.fetches = _fetches
        _tiers[key] = remote, throttle
    return _tiers[key][0]


def take_transfers() -> Transfers | None:
    """Return the transfers of this process since the last call, or None."""
    fetches = _fetches.take()
    waits: dict[Direction, Waits] = {}
    for _, throttle in _tiers.values():
        for direction, each in throttle.take_waits().items():
            waits[direction] = waits.get(direction, Waits()) + each
    if not fetches and not waits:
        return None
    return Transfers(process=f"{socket.gethostname()}:{os.getpid()}", fetches=fetches, waits=waits)


@lru_cache(maxsize=1)
def shared_topic(location: TopicLocation, job: str) -> MetadataTopic:
    """Return the topic at `location`, opened once for all tasks of `job` in this process.

    Another `job` opens the topic again, so that it reads the current end of the log.
    """
    del job
    return open_topic(location)


def fold_in_worker(location: TopicLocation, job: str, task: FoldTask) -> FoldResult:
    """Read and fold the metadata partitions of `task` in this process.

    Raise as `run_fold_task`, and EngineError if this process does not see what the driver saw.
    """
    done = run_fold_task(shared_topic(location, job), task)
    for each in task.ranges:
        require_read(each.metadata_partition, done.state.read[each.metadata_partition], each.end)
    return done


@lru_cache(maxsize=1)
def shared_cluster(location: TopicLocation, job: str) -> Cluster:
    """Return the cluster at `location`, connected once for all tasks of `job` in this process."""
    del job
    command_config, config = (
        None if path is None else Path(path) for path in (location.command_config, location.broker_config)
    )
    return Cluster(
        cluster_client(
            location.uri, command_config=command_config, broker_config=config, option=location.option
        )
    )


# The part of the transport that runs on executors: apply a function to each input of a task.
#
# Inputs arrive pickled, one row per task. Results leave as rows of RESULTS, encoded by `dumps`.

SLICE_BYTES = 8 << 20
"""A larger result is split over several rows of at most this size, because Arrow limits the size of a row."""

TASKS = "task"
"""The column of a job's input: the pickled list of (number, input) of one task."""

_ITEMS_PER_BATCH = 64

RESULTS = pa.schema(
    [
        ("number", pa.int32()),
        ("is_error", pa.bool_()),
        ("is_retried", pa.bool_()),
        ("processed_bytes", pa.int64()),
        ("host", pa.string()),
        ("transfers", pa.binary()),
        ("slowness", pa.string()),
        ("data", pa.binary()),
    ]
)
"""The rows of a job's output.

`number` is that of the input. `data` is the encoded result, or the encoded error if `is_error`. `is_retried`
is True if an earlier attempt may have processed the input, and may still be running. `processed_bytes` is the
number that the function reported; it is 0 in all rows of an input except the first. `transfers` has the
encoded `Transfers` of the process since the previous row, or null. `slowness` says why the input was slow:
kernel.COMPILING or kernel.WITHOUT_NUMBA, or null.
"""
Advance = Callable[[int], None]


Opened = Callable[[Advance], AbstractContextManager[Callable[[Any], Any]]]
"""Provides the function that one task applies to each of its inputs; it is pickled.

The function reports processed bytes through the argument, and raises TierctlError to fail its input.
"""


def plain(function: Callable[[Any], Any], _advance: Advance) -> AbstractContextManager[Callable[[Any], Any]]:
    """Provide a function that needs no context and reports no bytes."""
    return nullcontext(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTask:
    """The callable for `DataFrame.mapInArrow`: processes the inputs of one task, one after the other.

    `is_retried` states that an earlier job may have processed the inputs. With `takes_rows` the only input of
    a task are its rows, and its number is that of the task.
    `limit_factor` is that of the driver, which creates the task.
    """

    opened: Opened
    is_retried: bool = False
    takes_rows: bool = False
    limit_factor: int = field(default_factory=lambda: limits().factor)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of RESULTS for the tasks in `batches`."""
        use_limit_factor(self.limit_factor)
        is_retried = self.is_retried or _is_retried_by_spark()
        processed_bytes: list[int] = []
        slowness: list[str] = []
        # Earlier tasks of this process returned what they transferred.
        take_transfers()
        with kernel.reported(slowness.append), self.opened(processed_bytes.append) as function:
            for number, each in [(task_number(), batches)] if self.takes_rows else inputs_of(batches):
                data, is_error = outcome(function, each)
                facts = {"number": number, "is_error": is_error, "is_retried": is_retried}
                transfers = take_transfers()
                first = {
                    "processed_bytes": sum(processed_bytes),
                    "transfers": None if transfers is None else dumps(transfers),
                    "slowness": slowness[-1] if slowness else None,
                }
                yield from result_rows(data, facts, first)
                processed_bytes.clear()
                slowness.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class DivideTask:
    """The callable for `DataFrame.mapInArrow`: yields a row for each item that `function` returns."""

    function: Callable[[Any], Iterable[Any]]
    limit_factor: int = field(default_factory=lambda: limits().factor)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of TASKS; instead of the items of an input that failed, one with the error."""
        use_limit_factor(self.limit_factor)
        for _, each in inputs_of(batches):
            try:
                items = iter(self.function(each))
                while rows := [pickle.dumps(item) for item in islice(items, _ITEMS_PER_BATCH)]:
                    yield pa.RecordBatch.from_arrays([pa.array(rows, pa.binary())], [TASKS])
            except TierctlError as e:
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(e)], pa.binary())], [TASKS])


def gathered(gather: Callable[[Iterator[Any]], Any], batches: Iterator[pa.RecordBatch]) -> Any:
    """Return what `gather` makes of the items that `DivideTask` yielded; raise an error among them."""

    def items() -> Iterator[Any]:
        for batch in batches:
            for row in batch.column(TASKS):
                item = pickle.loads(row.as_py())
                if isinstance(item, TierctlError):
                    raise item
                yield item

    return gather(items())


def inputs_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """Yield the inputs of a task with their numbers."""
    for batch in batches:
        for task in batch.column(TASKS):
            yield from pickle.loads(task.as_py())


def outcome(function: Callable[[Any], Any], each: Any) -> tuple[bytes, bool]:
    """Return the encoded result of `function` for one input, or its encoded error and True."""
    try:
        return dumps(function(each)), False
    except TierctlError as e:
        return dumps(e), True


def result_rows(data: bytes, facts: dict[str, Any], first: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield `data` in slices, each with `facts`; only the first row has the facts in `first`."""
    host = socket.gethostname()
    for start in range(0, len(data), SLICE_BYTES):
        own = {"processed_bytes": 0, "transfers": None, "slowness": None} if start else first
        row = facts | own | {"host": host, "data": data[start : start + SLICE_BYTES]}
        yield pa.RecordBatch.from_pylist([row], schema=RESULTS)


def _is_retried_by_spark() -> bool:
    context = _task_context()
    return context is not None and context.attemptNumber() > 0


def task_number() -> int:
    """Return the number of the task that runs in this process among those of its job; 0 outside of one."""
    context = _task_context()
    return 0 if context is None else context.partitionId()


def _task_context() -> TaskContext | None:
    """Return what Spark tells about the task that runs in this process; None outside of one."""
    # Imported here, because a driver without PySpark also imports this module.
    from pyspark import TaskContext

    return TaskContext.get()
