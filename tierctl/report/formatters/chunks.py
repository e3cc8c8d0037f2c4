"""A chunk of the metadata log as the records that a formatter is given."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tierctl.report.formatters.base import Records
from tierctl.wire.batches.chunks import DamagedRange, RecordChunk


def from_chunk(chunk: RecordChunk, *, first_offset: int = 0) -> Records:
    """The records of a chunk, with a row for each stretch of bytes that can't be read; gaps have none.

    A stretch that begins before `first_offset` is told of by whoever reads there.
    """
    damaged = [bad for bad in chunk.damage if not bad.is_gap and bad.offset >= first_offset]
    if not damaged:
        offsets, timestamps_ms = pa.array(chunk.offsets), pa.array(chunk.timestamps_ms)
        return Records.of(chunk.partition, offsets, timestamps_ms, chunk.values)
    return _with_damage(chunk, damaged)


def _with_damage(chunk: RecordChunk, damaged: Sequence[DamagedRange]) -> Records:
    count = len(chunk.offsets)
    offsets = np.concatenate([chunk.offsets, np.array([bad.offset for bad in damaged], np.int64)])
    order = np.argsort(offsets, kind="stable")
    rows, nothing = pa.array(order), [None] * len(damaged)
    timestamps_ms = pa.concat_arrays([pa.array(chunk.timestamps_ms), pa.array(nothing, pa.int64())])
    values = pa.concat_arrays([chunk.values, pa.array(nothing, chunk.values.type)])
    errors = {int(row): str(damaged[order[row] - count]) for row in np.flatnonzero(order >= count)}
    return Records.of(
        chunk.partition,
        pa.array(offsets[order]),
        timestamps_ms.take(rows),
        values.take(rows),
        errors,
    )
