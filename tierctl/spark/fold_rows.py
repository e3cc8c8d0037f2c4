"""The rows that a fold of metadata events yields in a task of Spark: segments, user partitions and outcomes.

A task has all events of its user partitions, in order.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl import kernel
from tierctl.metadata.parallel_fold import PartitionFold, chunks_of_batch
from tierctl.model import TopicIdPartition
from tierctl.report.formatters.templates import id_text
from tierctl.spark.sources.metadata_splits import COLUMNS, EPOCH, plain_column
from tierctl.state.fold_kernels import ACCEPTED, IGNORED, REFUSED
from tierctl.state.queries import EpochPairs, LiveSegments
from tierctl.state.stored_rows import LISTINGS, listings_of, table_of_rows
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import KIP405, STATES, TXN_INDEX_EMPTY
from tierctl.state.tier_state import Quarantined, TierState
from tierctl.wire.arrays import Int64s, are_given, numbers, runs
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import DecodedEvents

_OF_SEGMENT: Final = (
    *("topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset", "broker_id"),
    *("leader_epoch", "max_timestamp_ms", "event_timestamp_ms", "segment_leader_epochs"),
    *("segment_size_in_bytes", "custom_metadata", "state", "txn_index_empty"),
    *("metadata_partition", "metadata_offset"),
)
SEGMENTS: Final = pa.schema([*map(COLUMNS.field, _OF_SEGMENT), pa.field("listings", LISTINGS)])
"""The columns of segments that are not deleted; only events of the KIP's own dialect have `leader_epoch`.

`metadata_offset` is that of the event that changed the segment last.
"""

PARTITIONS: Final = pa.schema(
    [
        *map(COLUMNS.field, ("topic", "topic_id", "partition")),
        pa.field("delete_state", pa.string()),
        COLUMNS.field("metadata_partition"),
        pa.field("last_event_offset", pa.int64()),
    ]
)
"""The columns of user partitions: the state of their deletion, null without one, and their last event."""

OUTCOMES: Final = pa.schema(
    [
        *map(COLUMNS.field, ("metadata_partition", "metadata_offset", "topic", "topic_id", "partition")),
        *map(COLUMNS.field, ("segment_id", "state")),
        pa.field("outcome", pa.string()),
        COLUMNS.field("error"),
    ]
)
"""The columns of outcomes. `state` is the one that the event states, and `outcome` is one of

accepted         a broker applies the event
ignored          a broker ignores it: the state of the segment does not allow it, or the segment is unknown
refused          a broker's class throws an exception for it; `error` says why
not_understood   the record can't be read or decoded; `error` says why. Nothing is known about what it names

Tombstones have no outcome. An error of a whole metadata partition has a row that is not_understood.
"""

_OUTCOMES: Final = {ACCEPTED: "accepted", IGNORED: "ignored", REFUSED: "refused"}
NOT_UNDERSTOOD: Final = "not_understood"
FOLDED: Final = (*("metadata_partition", "metadata_offset", "topic_id", "partition", "error", "record"),)
"""The columns of events that the fold reads: `record` has all facts of an event."""


SLOWNESS: Final = "slowness"
"""The column that says why a fold is slow: kernel.COMPILING or kernel.WITHOUT_NUMBA, or null."""

KNOWN_SEGMENT: Final = "known_segment"
KNOWN_PARTITION: Final = "known_partition"
"""The columns of rows that are no events: of a segment and of a user partition of the state before them."""


class Rows(StrEnum):
    """The kinds of rows that a fold can yield."""

    SEGMENTS = "segments"
    PARTITIONS = "partitions"
    OUTCOMES = "outcomes"
    UNUSABLE = "unusable"
    """The outcomes that are refused or not understood."""


Columns = dict[str, pa.Array]
"""Columns of equal length by name."""

Outcomes = npt.NDArray[np.uint8]

_PIECE_ROWS: Final = 1 << 16


def rows_of_task(
    wanted: Collection[Rows],
    schema: pa.Schema,
    partition_count: int | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Fold batches with the columns FOLDED; yield the wanted kinds of rows as batches of `schema`.

    Rows with KNOWN_SEGMENT or KNOWN_PARTITION are the state before the events, and come before these.
    """
    state, last = TierState(), deque[DecodedEvents](maxlen=1)
    known = _Known(state)
    fold = PartitionFold(state, partition_count, lambda _chunk, events: last.append(events))
    outcomes_wanted = {Rows.OUTCOMES: tuple(_OUTCOMES), Rows.UNUSABLE: (REFUSED,)}
    codes = [code for kind, of_kind in outcomes_wanted.items() if kind in wanted for code in of_kind]
    for batch in batches:
        events = known.without(batch)
        is_bad = events.column("error").is_valid()
        bad = events.filter(is_bad)
        if codes and bad.num_rows:
            found = (bad.column(name) for name in ("metadata_partition", "metadata_offset", "error"))
            yield batch_of_columns(_not_understood(*found), schema)
        for chunk in chunks_of_batch(events.filter(pc.invert(is_bad))):
            known.restore()
            outcomes = fold.fold(chunk).outcomes
            chosen = np.flatnonzero(np.isin(outcomes, codes))
            astray = [each for each in state.quarantined if each.is_misplaced]
            others = (each for each in state.quarantined if not each.is_misplaced)
            refused = {each.metadata_offset: str(each.error) for each in others}
            state.quarantined.clear()
            if len(chosen):
                yield batch_of_columns(_outcomes(chunk, last[0], outcomes, chosen, refused), schema)
            if codes and astray:
                yield batch_of_columns(_misplaced(astray), schema)
    known.restore()
    for number, table in sorted(state.tables.items()):
        names = partition_names([*table.topic_id_partitions()], number)
        if Rows.PARTITIONS in wanted:
            yield batch_of_columns(_partition_columns(table, names), schema)
        live = table.live_rows() if Rows.SEGMENTS in wanted else np.empty(0, np.int64)
        for at in range(0, len(live), _PIECE_ROWS):
            piece = live[at : at + _PIECE_ROWS]
            yield batch_of_columns(segment_columns(table, piece, names, schema.names), schema)


def with_slowness(
    fold: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fold with the column SLOWNESS: the reason, once the fold was slow."""
    found: list[str] = []
    with kernel.reported(found.append):
        for rows in fold(batches):
            why = pa.array(found[-1:] * rows.num_rows or [None] * rows.num_rows, pa.string())
            yield rows.set_column(rows.schema.get_field_index(SLOWNESS), SLOWNESS, why)


class _Known:
    """Collects the rows of the state before the events, and makes the tables of segments from them."""

    def __init__(self, state: TierState) -> None:
        self._state = state
        self._rows: dict[int, dict[str, list[pa.Table]]] = {}
        self._empty: dict[str, pa.Table] = {}

    def without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows that are no events out of a batch; return the others."""
        is_event = np.ones(batch.num_rows, bool)
        for name in (KNOWN_SEGMENT, KNOWN_PARTITION):
            if name not in batch.schema.names:
                continue
            column = batch.column(name)
            is_known = are_given(column)
            is_event &= ~is_known
            rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(column.drop_null())])
            self._empty[name] = rows.slice(0, 0)
            for number, own in by_metadata_partition(rows).items():
                self._rows.setdefault(number, {}).setdefault(name, []).append(own)
        return batch if is_event.all() else batch.filter(pa.array(is_event))

    def restore(self) -> None:
        """Give the state all segments that were collected."""
        for number, found in sorted(self._rows.items()):
            tables = (
                pa.concat_tables(found.get(name, [self._empty[name]]))
                for name in (KNOWN_SEGMENT, KNOWN_PARTITION)
            )
            self._state.put_table(number, table_of_rows(*tables))
        self._rows.clear()


def by_metadata_partition(rows: pa.Table) -> dict[int, pa.Table]:
    """Return the rows of each metadata partition, which keep their order."""
    keys = numbers(rows["metadata_partition"].combine_chunks())
    order = np.argsort(keys, kind="stable")
    ordered = rows.take(pa.array(order))
    return {int(keys[order[first]]): ordered.slice(first, end - first) for first, end in runs(keys[order])}


def _outcomes(
    chunk: RecordChunk, events: DecodedEvents, outcomes: Outcomes, chosen: Int64s, refused: Mapping[int, str]
) -> Columns:
    """Return the columns of OUTCOMES of the chosen events of a chunk; `refused` has errors by offset."""
    named = events.take(chosen).table(("topic", "topic_id", "partition", "segment_id", "state"))
    offsets, codes = chunk.offsets[chosen], outcomes[chosen]
    errors = np.where(codes == REFUSED, offsets, -1).tolist()
    names = pa.array([_OUTCOMES.get(code, "") for code in range(max(_OUTCOMES) + 1)])
    return {
        **{name: plain_column(named.column(name).combine_chunks()) for name in named.column_names},
        "metadata_partition": pa.array(np.full(len(offsets), chunk.partition, np.int32)),
        "metadata_offset": pa.array(offsets),
        "outcome": names.take(pa.array(codes)),
        "error": pa.array(map(refused.get, errors), pa.string()),
    }


def _not_understood(metadata_partition: Any, offsets: Any, errors: Any) -> Columns:
    """Return the columns of OUTCOMES of records, or of a whole metadata partition, with an error."""
    found = {"metadata_partition": metadata_partition, "metadata_offset": offsets, "error": errors}
    return {**found, "outcome": pa.array([NOT_UNDERSTOOD] * len(offsets), pa.string())}


def _misplaced(astray: Sequence[Quarantined]) -> Columns:
    """Return the columns of OUTCOMES for user partitions whose events are in a wrong metadata partition."""
    return _not_understood(
        pa.array([each.metadata_partition for each in astray], pa.int32()),
        pa.array([each.metadata_offset for each in astray], pa.int64()),
        pa.array([str(each.error) for each in astray], pa.string()),
    )


def partition_names(partitions: Sequence[TopicIdPartition], metadata_partition: int) -> Columns:
    """Return the columns that name user partitions, by their index in `partitions`."""
    return {
        "topic": pa.array([each.topic for each in partitions], pa.string()),
        "topic_id": pa.array([str(each.topic_id) for each in partitions], pa.string()),
        "partition": pa.array([each.partition for each in partitions], pa.int32()),
        "metadata_partition": pa.repeat(pa.scalar(metadata_partition, pa.int32()), len(partitions)),
    }


def segment_columns(table: SegmentTable, rows: Int64s, names: Columns, wanted: Collection[str]) -> Columns:
    """Return the wanted columns of SEGMENTS of the segments in `rows`.

    `names` are the columns that name the user partitions by number.
    """
    live, owners = LiveSegments(table, rows), pa.array(table.segments["owner"][rows])
    columns: dict[str, Callable[[], pa.Array]] = {
        **{name: partial(column.take, owners) for name, column in names.items()},
        "segment_id": lambda: id_text(_ids(live)),
        "start_offset": lambda: pa.array(live.column("start")),
        "end_offset": lambda: pa.array(live.column("end")),
        "broker_id": lambda: pa.array(live.column("writer"), mask=live.flags(KIP405)),
        "leader_epoch": lambda: pa.array(live.column("writer"), mask=~live.flags(KIP405)),
        "max_timestamp_ms": lambda: pa.array(live.column("max_timestamp")),
        "event_timestamp_ms": lambda: pa.array(live.column("event_timestamp")),
        "segment_leader_epochs": lambda: _lists(live.epoch_pairs()),
        "segment_size_in_bytes": lambda: pa.array(live.column("size")),
        "custom_metadata": lambda: pa.array(live.customs() or [None] * len(live), pa.binary()),
        "state": lambda: pa.array(map(str, STATES)).take(pa.array(live.states)),
        "txn_index_empty": lambda: pa.array(live.flags(TXN_INDEX_EMPTY)),
        "metadata_offset": lambda: pa.array(live.column("offset")),
        "listings": lambda: listings_of(live),
    }
    return {name: column() for name, column in columns.items() if name in wanted}


def _partition_columns(table: SegmentTable, names: Columns) -> Columns:
    """Return the columns PARTITIONS of the user partitions whose segments are in a table."""
    own = np.flatnonzero(table.partitions["is_foreign"] == 0)
    return {
        **{name: column.take(pa.array(own)) for name, column in names.items()},
        "delete_state": pa.array(map(table.delete_state, own.tolist()), pa.string()),
        "last_event_offset": pa.array(np.maximum(table.partitions["last_offset"][own], -1)),
    }


def _ids(live: LiveSegments) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(live), [None, pa.py_buffer(live.id_bytes)])


def _lists(pairs: EpochPairs) -> pa.Array:
    epochs, offsets = pa.array(pairs.epochs.astype(np.int32)), pa.array(pairs.offsets)
    values = pa.StructArray.from_arrays([epochs, offsets], fields=list(EPOCH))
    ends = np.concatenate([[0], np.cumsum(pairs.counts)]).astype(np.int32)
    kind = SEGMENTS.field("segment_leader_epochs").type
    return pa.ListArray.from_arrays(pa.array(ends), values, type=kind)


def batch_of_columns(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`, arrays or lists; those that are missing with null in all rows."""
    count = len(next(iter(columns.values())))

    def array(of: pa.Field) -> pa.Array:
        column = columns[of.name] if of.name in columns else pa.nulls(count, of.type)
        return column if isinstance(column, pa.Array) else pa.array(column, of.type)

    return pa.RecordBatch.from_arrays(list(map(array, schema)), schema=schema)
