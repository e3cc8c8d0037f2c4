"""Folds one large metadata partition as several tasks: its records are divided by user partition.

`pieces_of` reads and decodes a range of offsets and divides its records into shares: all events of a user
partition are in one share. `fold_share` folds the pieces of a share in the order of their offsets with
`run_fold_task`, and `joined_shares` joins the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tierctl.metadata.fold.parallel import FoldResult, FoldTask, PartitionRange, run_fold_task
from tierctl.metadata.topic.base import ReadableTopic
from tierctl.metadata.user_partitions import rows_by_user_partition
from tierctl.state.joined import joined_states
from tierctl.wire.arrays import Int64s, array_of, large_binary, numbers, take_rows
from tierctl.wire.batches.chunks import RecordChunk, joined
from tierctl.wire.metadata.decode_columns import KnownLayouts, decode_column
from tierctl.wire.metadata.partitioner import metadata_partitions_of

_RECORDS: Final = pa.schema(
    [("offset", pa.int64()), ("timestamp_ms", pa.int64()), ("value", pa.large_binary())]
)
_NEXT_OFFSET, _IS_REFUSED = b"next_offset", b"is_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedRange:
    """A range of offsets of a topic with `partition_count` partitions, to be divided into `shares` shares."""

    range: PartitionRange
    partition_count: int
    shares: int


class Piece(NamedTuple):
    """Records of one share as an Arrow stream; of the offsets before `next_offset` all records were read."""

    share: int
    next_offset: int
    data: bytes


def is_divisible(task: FoldTask) -> bool:
    """Return whether `task` is one metadata partition without known state and without a state directory."""
    return len(task.ranges) == 1 and task.ledger is None and not task.state.partitions


def divided_ranges(task: FoldTask, *, shares: int, records: int) -> list[DividedRange]:
    """Return the unread range of a divisible `task`, cut into ranges of at most `records` offsets."""
    (whole,) = task.ranges
    begin = max(whole.begin, task.state.read.get(whole.metadata_partition, 0))
    return [
        DividedRange(
            range=replace(whole, begin=at, end=min(at + records, whole.end)),
            partition_count=task.partition_count,
            shares=shares,
        )
        for at in range(begin, whole.end, records)
    ]


def pieces_of(topic: ReadableTopic, divided: DividedRange, known: KnownLayouts) -> Iterator[Piece]:
    """Yield the records of a range: one batch of each share for each chunk; raise the errors of `topic`.

    `known` are the byte layouts that other ranges taught.
    """
    own = divided.range
    for chunk in joined(topic.read(own.metadata_partition, own.begin, own.end)):
        shares, is_misplaced = _shares_of(chunk, divided, known)
        is_refused = is_misplaced or bool(chunk.damage)
        for share in range(divided.shares):
            data = _stored(chunk, np.flatnonzero(shares == share), is_refused=is_refused)
            yield Piece(share, chunk.next_offset, data)


def _shares_of(chunk: RecordChunk, divided: DividedRange, known: KnownLayouts) -> tuple[Int64s, bool]:
    """Return the share of each record, and whether an event belongs in another metadata partition.

    Records without a user partition are in share 0.
    """
    table = decode_column(chunk.values, known, columns=("topic_id", "partition"))
    found = rows_by_user_partition(table)
    raw = b"".join(topic_id for topic_id, _ in found.keys)
    partitions = np.array([number for _, number in found.keys], dtype=np.int64)
    count = divided.partition_count
    # hash % (count * shares) gives both: % count is the metadata partition, // count is the share.
    homes = metadata_partitions_of(np.frombuffer(raw, np.uint8), partitions, count * divided.shares)
    shares = np.zeros(len(chunk.offsets), dtype=np.int64)
    shares[found.rows] = np.repeat(homes // count, np.diff(found.bounds))
    return shares, bool((homes % count != divided.range.metadata_partition).any())


def _stored(chunk: RecordChunk, rows: Int64s, *, is_refused: bool) -> bytes:
    facts = {_NEXT_OFFSET: str(chunk.next_offset).encode(), _IS_REFUSED: b"1" if is_refused else b""}
    schema = _RECORDS.with_metadata(facts)
    columns = [
        array_of(pa.int64(), chunk.offsets[rows]),
        array_of(pa.int64(), chunk.timestamps_ms[rows]),
        large_binary(take_rows(chunk.values, rows)),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


class _RefusedError(Exception):
    """A record is unreadable or misplaced; how it is reported depends on the records around it."""


class _Pieces:
    """Implement ReadableTopic over the pieces of a share, in the order of their offsets."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Implement `ReadableTopic.read`; the pieces have exactly these offsets."""
        del start_offset, end_offset
        for piece in self._pieces:
            with pa.ipc.open_stream(piece) as reader:
                facts = reader.schema.metadata
                if facts[_IS_REFUSED]:
                    raise _RefusedError
                records = reader.read_next_batch()
            yield RecordChunk(
                partition,
                numbers(records.column("offset")),
                numbers(records.column("timestamp_ms")),
                records.column("value"),
                int(facts[_NEXT_OFFSET]),
            )


def fold_share(task: FoldTask, pieces: Iterable[bytes]) -> FoldResult | None:
    """Fold the `data` of the pieces of one share, in the order of their offsets.

    Return None if the metadata partition has unreadable or misplaced records: it is then not to be divided.
    """
    try:
        return run_fold_task(_Pieces(pieces), task)
    except _RefusedError:
        return None


def joined_shares(task: FoldTask, results: Sequence[FoldResult]) -> FoldResult:
    """Return the result of `task` from the results of its shares, which are not used afterwards."""
    (metadata_partition,) = (each.metadata_partition for each in task.ranges)
    state = joined_states([result.state for result in results], metadata_partition)
    return FoldResult(metadata_partitions=(metadata_partition,), state=state, ledger=None)
