"""The part of the transport that runs on executors: apply a function to each input of a task.

Inputs arrive pickled, one row per task. Results leave as rows of RESULTS, encoded by `serialization`.
"""

import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.spark.executors.resources import measure_fetches, take_transfers
from tierctl.spark.executors.serialization import dumps
from tierctl.wire.limits import limits, use_limit_factor

SLICE_BYTES = 8 << 20
"""A larger result is split over several rows of at most this size, because Arrow limits the size of a row."""

TASKS = "task"
"""The column of a job's input: the pickled list of (number, input) of one task."""

RESULTS = pa.schema(
    [
        ("number", pa.int32()),
        ("is_error", pa.bool_()),
        ("is_retried", pa.bool_()),
        ("processed_bytes", pa.int64()),
        ("host", pa.string()),
        ("transfers", pa.binary()),
        ("data", pa.binary()),
    ]
)
"""The rows of a job's output.

`number` is that of the input. `data` is the encoded result, or the encoded error if `is_error`. `is_retried`
is True if an earlier attempt may have processed the input, and may still be running. `processed_bytes` is the
number that the function reported; it is 0 in all rows of an input except the first. `transfers` has the
encoded `Transfers` of the process since the previous row, or null.
"""
RESULTS_DDL = (
    "number INT, is_error BOOLEAN, is_retried BOOLEAN, processed_bytes BIGINT, host STRING, "
    "transfers BINARY, data BINARY"
)

Input_contra = TypeVar("Input_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Advance = Callable[[int], None]


class TaskFunction(Protocol[Input_contra, Result_co]):
    """The work of a job. It is pickled, so it consists of picklable objects and module-level functions."""

    def opened(self, advance: Advance) -> AbstractContextManager[Callable[[Input_contra], Result_co]]:
        """Provide the function that one task applies to each of its inputs.

        The function reports processed bytes through `advance`, and raises TierctlError to fail its input.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainFunction:
    """TaskFunction of a function that needs no context and reports no bytes."""

    function: Callable[[Any], Any]

    def opened(self, advance: Advance) -> AbstractContextManager[Callable[[Any], Any]]:  # noqa: ARG002
        """Implement `TaskFunction.opened`."""
        return nullcontext(self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTask:
    """The callable for `DataFrame.mapInArrow`: processes the inputs of one task, one after the other.

    `is_retried` states that an earlier job may have processed the inputs. With `measures` the reads of tiers
    are counted. `limit_factor` is that of the driver, which creates the task.
    """

    function: TaskFunction[Any, Any]
    is_retried: bool = False
    measures: bool = False
    limit_factor: int = field(default_factory=lambda: limits().factor)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of RESULTS for the tasks in `batches`."""
        use_limit_factor(self.limit_factor)
        is_retried = self.is_retried or _is_retried_by_spark()
        processed_bytes: list[int] = []
        measure_fetches(self.measures)
        with self.function.opened(processed_bytes.append) as function:
            for number, each in inputs_of(batches):
                data, is_error = outcome(function, each)
                facts = {"number": number, "is_error": is_error, "is_retried": is_retried}
                transfers = take_transfers()
                first = {
                    "processed_bytes": sum(processed_bytes),
                    "transfers": None if transfers is None else dumps(transfers),
                }
                yield from result_rows(data, facts, first)
                processed_bytes.clear()


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
        own = {"processed_bytes": 0, "transfers": None} if start else first
        row = facts | own | {"host": host, "data": data[start : start + SLICE_BYTES]}
        yield pa.RecordBatch.from_pylist([row], schema=RESULTS)


def _is_retried_by_spark() -> bool:
    # Imported here, because a driver without PySpark also imports this module.
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
