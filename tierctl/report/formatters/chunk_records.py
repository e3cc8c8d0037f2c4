"""Convert a chunk of the metadata log to the records that a formatter receives."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tierctl.report.formatters.records import EncodedRecords
from tierctl.wire.batches.segment_file import DamagedRange, RecordChunk


def from_chunk(chunk: RecordChunk, *, first_offset: int = 0) -> EncodedRecords:
    """Return the records of a chunk, with one row per unreadable range of bytes; gaps have no row.

    Ranges that begin before `first_offset` have no row either: the reader of the preceding records has it.
    """
    damaged = [bad for bad in chunk.damage if not bad.is_gap and bad.offset >= first_offset]
    if not damaged:
        offsets, timestamps_ms = pa.array(chunk.offsets), pa.array(chunk.timestamps_ms)
        return EncodedRecords(
            metadata_partition=chunk.partition,
            offsets=offsets,
            timestamps_ms=timestamps_ms,
            values=chunk.values,
        )
    return _with_damage(chunk, damaged)


def _with_damage(chunk: RecordChunk, damaged: Sequence[DamagedRange]) -> EncodedRecords:
    count = len(chunk.offsets)
    offsets = np.concatenate([chunk.offsets, np.array([bad.offset for bad in damaged], np.int64)])
    order = np.argsort(offsets, kind="stable")
    rows, nothing = pa.array(order), [None] * len(damaged)
    timestamps_ms = pa.concat_arrays([pa.array(chunk.timestamps_ms), pa.array(nothing, pa.int64())])
    values = pa.concat_arrays([chunk.values, pa.array(nothing, chunk.values.type)])
    errors = {int(row): str(damaged[order[row] - count]) for row in np.flatnonzero(order >= count)}
    return EncodedRecords(
        metadata_partition=chunk.partition,
        offsets=pa.array(offsets[order]),
        timestamps_ms=timestamps_ms.take(rows),
        values=values.take(rows),
        errors=errors,
    )
