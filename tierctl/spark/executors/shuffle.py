"""The part of a shuffle that runs on executors: divide inputs into shares, then combine each share.

A task of the first stage divides its inputs into pieces, each of one share. Spark sends the pieces of each
share to one task of the second stage, which combines them. Pieces are only sent between executors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.spark.executors.serialization import decoded_error, dumps
from tierctl.spark.executors.task import SLICE_BYTES, inputs_of, outcome, result_rows
from tierctl.wire.limits import limits, use_limit_factor

Divide = Callable[[Any], Iterator[tuple[int, bytes]]]
"""Yields the pieces of an input, each with the number of its share; raises TierctlError."""

Combine = Callable[[Iterator[bytes]], Any]
"""Returns the result of a share from its pieces, in the order of the inputs and of their pieces."""

SHARE = "share"

PIECES = pa.schema(
    [
        (SHARE, pa.int32()),
        ("number", pa.int32()),
        ("piece", pa.int32()),
        ("slice", pa.int32()),
        ("is_error", pa.bool_()),
        ("data", pa.binary()),
    ]
)
"""The rows between the stages: slice `slice` of piece `piece` of input `number`, or its encoded error."""
PIECES_DDL = "share INT, number INT, piece INT, slice INT, is_error BOOLEAN, data BINARY"


@dataclass(frozen=True, slots=True)
class DivideTask:
    """The callable of the first stage: yields rows of PIECES; an error goes to share 0."""

    function: Divide
    limit_factor: int = field(default_factory=lambda: limits().factor)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide the inputs in `batches`."""
        use_limit_factor(self.limit_factor)
        for number, each in inputs_of(batches):
            piece = 0
            try:
                for share, data in self.function(each):
                    yield from _slices((share, number, piece), data)
                    piece += 1
            except TierctlError as e:
                yield from _slices((0, number, piece), dumps(e), is_error=True)


def _slices(place: tuple[int, int, int], data: bytes, *, is_error: bool = False) -> Iterator[pa.RecordBatch]:
    for at, start in enumerate(range(0, len(data), SLICE_BYTES)):
        values = [*place, at, is_error, data[start : start + SLICE_BYTES]]
        row = dict(zip(PIECES.names, values, strict=True))
        yield pa.RecordBatch.from_pylist([row], schema=PIECES)


@dataclass(frozen=True, slots=True)
class CombineTask:
    """The callable of the second stage: yields rows of RESULTS, in which `number` is that of the share."""

    function: Combine

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Combine `batches`, which have the pieces of one share in any order."""
        found = [batch for batch in batches if batch.num_rows]
        if found:
            table = pa.Table.from_batches(found)
            data, is_error = outcome(self._combined, table)
            facts = {"number": table.column(SHARE)[0].as_py(), "is_error": is_error, "is_retried": False}
            yield from result_rows(data, facts, {"processed_bytes": 0, "transfers": None})

    def _combined(self, table: pa.Table) -> Any:
        for data, is_error in zip(table.column("data"), table.column("is_error"), strict=True):
            if is_error.as_py():
                raise decoded_error(data.as_py())
        return self.function(_pieces(table))


def _pieces(table: pa.Table) -> Iterator[bytes]:
    """Yield the pieces of one share in order."""
    names = ("number", "piece", "slice")
    places = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    slices: list[bytes] = []
    for row, (_, _, at) in sorted(enumerate(places), key=lambda each: each[1]):
        if at == 0 and slices:
            yield b"".join(slices)
            slices = []
        slices.append(table.column("data")[row].as_py())
    if slices:
        yield b"".join(slices)
