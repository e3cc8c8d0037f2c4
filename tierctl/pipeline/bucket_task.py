"""The task of a bucket: fold its new events with the rows that the tables have of it, and write table files.

Spark gives a task the events of the user partitions of a bucket, by metadata partition and offset. Memory
holds the folded state of the bucket and one batch of events, however many there are.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tierctl.checks.findings import Finding, FindingKind
from tierctl.checks.metadata import (
    dropped_events,
    empty_records,
    live_segments,
    more_dropped_events,
    unusable_record,
)
from tierctl.metadata.parallel_fold import PartitionFold, chunks_of_batch
from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.model.events import dialect_of
from tierctl.pipeline.tables import (
    BATCH,
    STORED,
    AnomalyRow,
    PartitionGroup,
    anomaly_table,
    due_time,
    partition_batch,
)
from tierctl.pipeline.warehouse import (
    ANOMALIES,
    BUCKET,
    EVENTS,
    PARTITIONS,
    ROW_GROUP_ROWS,
    SEGMENTS,
    TableFile,
    WarehouseSpec,
    parquet_writer,
    read_file,
    stored_file,
    write_rows,
)
from tierctl.spark.fold_rows import (
    batch_of_columns,
    by_metadata_partition,
    partition_names,
    segment_columns,
)
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.spark.sources.metadata_splits import event_rows
from tierctl.state.queries import LiveSegments
from tierctl.state.stored_rows import listings_of, table_of_rows, words_of_ids
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import NO_OFFSET
from tierctl.state.tier_state import Anomaly, MissingEvents, TierState
from tierctl.storage.stores import ObjectStore
from tierctl.wire.arrays import Bools, Int64s, are_given
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import SEGMENT_ID, SEGMENT_ID_LOW, DecodedEvents
from tierctl.wire.metadata.values import decode, encode

EVENT_COLUMNS: Final = (
    *("metadata_partition", "metadata_offset", "timestamp_ms", "topic_id", "partition"),
    *("error", "record", "next_offset", "is_gap"),
)
"""The columns of `remote_log_metadata` that a task takes."""

FILE_ROWS: Final = 1 << 15
"""The rows of a new file of `segments`, which has the segments of a range of max timestamps."""

MERGED_FILES: Final = 8
"""So many files of `segments` with less than half of FILE_ROWS rows become one."""

_DELETED: Final = str(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_OF_DELETION: Final = pa.schema([EVENT_SCHEMA.field(name) for name in ("segment_id", "state")])


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketJob:
    """What all tasks of commit `number` share; picklable, and without secrets.

    The buckets in `woken` make their rows again without new events. `files` are the tables' files by bucket.
    `missing` are events that were gone before they were read, `cuts` the offset that was read and the lower
    end at which a log was found, by metadata partition; they are told in the bucket with that number.
    `dropped` is the number of dropped events of a bucket. Without `has_all_events` another program deleted
    rows of `events`.
    """

    warehouse: WarehouseSpec
    number: int
    now_ms: int
    partition_count: int
    bucket_count: int
    woken: frozenset[int]
    files: Mapping[str, Mapping[int, Sequence[str]]]
    missing: tuple[MissingEvents, ...] = ()
    cuts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(default_factory=dict)
    has_all_events: bool = True

    def run(self, bucket: int, batches: Iterable[pa.RecordBatch]) -> BucketResult | None:
        """Fold batches with EVENT_COLUMNS; return None if nothing is to be done.

        Raises errors of the store, and CorruptInputError for a damaged file of a table.
        """
        waiting = iter(batches)
        first = next(waiting, None)
        if first is None and bucket not in self.woken:
            return None
        with tempfile.TemporaryDirectory(prefix="tierctl-pipeline-") as folder:
            return _Bucket(self, bucket, Path(folder)).run(() if first is None else chain([first], waiting))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """What the task of a bucket did: the files by which its rows change, and its number of new events."""

    bucket: int
    added: tuple[TableFile, ...]
    removed: tuple[TableFile, ...]
    events: int
    dropped: int
    due_ms: int | None


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows that the tables have of a bucket, and the state that they are.

    `partitions` and `last_offsets` are those of each metadata partition: its rows of the table `partitions`,
    and the metadata offsets of the last events of these. `segments` are the rows of each file.
    """

    state: TierState
    segments: Mapping[str, pa.Table]
    partitions: Mapping[int, pa.Table]
    anomalies: pa.Table
    last_offsets: Mapping[int, Int64s]


def read_bucket(
    store: ObjectStore, files: Mapping[str, Mapping[int, Sequence[str]]], bucket: int
) -> BucketRows:
    """Return the rows of a bucket; raise CorruptInputError for a damaged file, and errors of the store."""

    def rows(table: str) -> dict[str, pa.Table]:
        return {path: read_file(store, table, path, STORED[table]) for path in files[table].get(bucket, ())}

    empty = {table: schema.empty_table() for table, schema in STORED.items()}
    found = {table: rows(table) for table in (SEGMENTS, PARTITIONS, ANOMALIES)}
    whole = {table: pa.concat_tables([empty[table], *own.values()]) for table, own in found.items()}
    segments, partitions = (by_metadata_partition(whole[table]) for table in (SEGMENTS, PARTITIONS))
    state = TierState()
    for number in sorted({*segments, *partitions}):
        rows_of_number = segments.get(number, empty[SEGMENTS]), partitions.get(number, empty[PARTITIONS])
        state.put_table(number, table_of_rows(*rows_of_number))
    last_offsets = {n: table.partitions["last_offset"].copy() for n, table in state.tables.items()}
    return BucketRows(state, found[SEGMENTS], partitions, whole[ANOMALIES], last_offsets)


class _Bucket:
    def __init__(self, job: BucketJob, bucket: int, folder: Path) -> None:
        self._job = job
        self._bucket = bucket
        self._folder = folder
        self._store = job.warehouse.open_store()
        self._name = uuid.uuid4().hex[:12]
        self._numbers = count()
        self._added: list[TableFile] = []
        self._removed: list[TableFile] = []
        self._known = read_bucket(self._store, job.files, bucket)
        self._keys = {path: _keys_of(rows) for path, rows in self._known.segments.items()}
        self._state = self._known.state
        self._state.missing = list(job.missing)

    def run(self, batches: Iterable[pa.RecordBatch]) -> BucketResult:
        dropped = self._job.dropped.get(self._bucket, 0)
        former = _Former(self._known.anomalies, dropped, self._job.has_all_events)
        former.restore(self._state)
        events = _Events(self._folder / "events.parquet", self._state, self._job, self._keys.values())
        _forget_last_offsets(self._state)
        with events.open():
            self._tell_cuts(events.fold)
            for batch in batches:
                events.add(batch)
        new = events.path if events.rows else None
        if new is not None:
            self._store_file(new, EVENTS)
        history = self._job.files[EVENTS].get(self._bucket, ())
        former.search(self._state, self._store, history, new)
        self._write_segments(events.named())
        self._write_partitions(former, events.lost)
        due_ms = [due_time(table, self._job.now_ms) for table in self._state.tables.values()]
        return BucketResult(
            bucket=self._bucket,
            added=tuple(self._added),
            removed=tuple(self._removed),
            events=events.rows,
            dropped=self._state.anomaly_count,
            due_ms=min((each for each in due_ms if each is not None), default=None),
        )

    def _tell_cuts(self, fold: PartitionFold) -> None:
        for number, (position, end) in self._job.cuts.items():
            if number % self._job.bucket_count == self._bucket:
                self._state.read[number] = position
                fold.start(number, 0, end)

    def _write_segments(self, named: Int64s) -> None:
        """Replace the files of which a row has changed, and write the rows that are in none of the others.

        `named` are the keys of the segments in these files that events of this run name.
        """
        live = _Live.of(self._state, named)
        is_written, kept_small = np.ones(len(live.keys), bool), []
        for path, rows in self._known.segments.items():
            own = live.unchanged(rows, self._keys[path])
            if own is None:
                self._remove(SEGMENTS, path)
                continue
            is_written[own] = False
            if len(rows) < FILE_ROWS // 2:
                kept_small.append((path, own))
        if len(kept_small) >= MERGED_FILES:
            for path, own in kept_small:
                self._remove(SEGMENTS, path)
                is_written[own] = True
        for chosen in live.files(is_written):
            self._write(SEGMENTS, live.batches(chosen))

    def _write_partitions(self, former: _Former, lost: Sequence[AnomalyRow]) -> None:
        """Write the rows of user partitions that may have changed, and copy those of the others."""
        rows: list[pa.RecordBatch] = []
        found: list[AnomalyRow] = []
        kept: set[tuple[str, int]] = set()
        has_changed = False
        all_parts = list(self._state)
        for number, table in self._state.tables.items():
            known = self._known.partitions.get(number)
            is_changed = _changed(table, self._known.last_offsets.get(number))
            parts = [p for p in all_parts if p.table is table and is_changed[p.number]]
            has_changed = has_changed or bool(parts)
            if parts:
                group = PartitionGroup.of(table, parts)
                in_order = group.in_order()
                rows.append(partition_batch(group, in_order, number, self._job.now_ms))
                findings = group.findings(in_order, self._job.now_ms)
                found += [AnomalyRow(finding=each, metadata_partition=number) for each in findings]
            if known is not None:
                own = known.filter(pa.array(~is_changed[: len(known)]))
                rows += own.to_batches()
                kept |= set(zip(own["topic_id"].to_pylist(), own["partition"].to_pylist(), strict=True))
        if has_changed:
            self._replace(PARTITIONS, rows)
        of_events = former.of_events(self._state, lost)
        told = pa.concat_tables([former.of_partitions(kept), anomaly_table(found), of_events])
        if not told.equals(former.rows):
            self._replace(ANOMALIES, told.to_batches())

    def _replace(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        for path in self._job.files[table].get(self._bucket, ()):
            self._remove(table, path)
        self._write(table, batches)

    def _remove(self, table: str, path: str) -> None:
        self._removed.append(TableFile(table=table, bucket=self._bucket, path=path))

    def _write(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Store rows of a table in a new file; without rows there is no file."""
        path = self._folder / f"{table}.parquet"
        if write_rows(path, STORED[table], batches):
            self._store_file(path, table)

    def _store_file(self, path: Path, table: str) -> None:
        """Store a file under a name that no other attempt at this commit uses."""
        name = f"part-{self._job.number:05d}-{self._name}-{next(self._numbers)}.parquet"
        folder = f"{BUCKET.name}={self._bucket}"
        self._added.append(stored_file(self._store, path, table, self._bucket, f"{folder}/{name}"))


def _forget_last_offsets(state: TierState) -> None:
    """Let the events that follow be the only ones that user partitions have: `_changed` asks which do.

    Offsets alone do not tell: events of a user partition may come from several metadata partitions.
    """
    for table in state.tables.values():
        table.partitions["last_offset"] = NO_OFFSET


def _changed(table: SegmentTable, last_offsets: Int64s | None) -> Bools:
    """Return which user partitions have an event since, or an unfinished segment: their rows depend on time.

    `last_offsets` are those that `_forget_last_offsets` removed, which are restored.
    """
    partitions = table.partitions
    changed: Bools = (partitions["last_offset"] != NO_OFFSET) | (partitions["live"] > partitions["finished"])
    if last_offsets is not None:
        known = partitions["last_offset"][: len(last_offsets)]
        np.maximum(known, last_offsets, out=known)
    return changed


def _keys_of(rows: pa.Table) -> Int64s:
    """Return the keys of rows of `segments`."""
    return _keys(*words_of_ids(rows["segment_id"].combine_chunks()))


def _keys(high: Int64s, low: Int64s) -> Int64s:
    """Return a number for each segment, from the words of its id; those of others are probably different."""
    keys: Int64s = high ^ low
    return keys


@dataclass(frozen=True, slots=True)
class _Live:
    """The segments of a bucket that are not deleted, by key: the table and the row of each.

    `is_changed` says which may have changed: an event named their key, or another one has it. `listings` has
    the LISTINGS of those that have some, by key.
    """

    tables: Mapping[int, SegmentTable]
    owners: Int64s
    rows: Int64s
    keys: Int64s
    is_changed: Bools
    times_ms: Int64s
    listings: Mapping[int, Any]

    @classmethod
    def of(cls, state: TierState, named: Int64s) -> _Live:
        """Return the segments of a state; `named` are keys that events named."""
        parts: list[tuple[Int64s, ...]] = []
        listings: dict[int, Any] = {}
        for number, table in state.tables.items():
            live = LiveSegments(table, table.live_rows())
            owners = np.full(len(live), number, np.int64)
            keys = _keys(*live.id_words.T)
            parts.append((owners, live.rows, keys, live.column("max_timestamp")))
            listings |= _given(listings_of(live), keys)
        columns = zip(*parts, strict=True) if parts else [[np.empty(0, np.int64)]] * 4
        owners, rows, keys, times_ms = map(np.concatenate, columns)
        order = np.argsort(keys)
        keys = keys[order]
        is_changed = np.isin(keys, named)
        is_repeated = keys[1:] == keys[:-1]
        is_changed[1:] |= is_repeated
        is_changed[:-1] |= is_repeated
        return cls(state.tables, owners[order], rows[order], keys, is_changed, times_ms[order], listings)

    def unchanged(self, rows: pa.Table, keys: Int64s) -> Int64s | None:
        """Return the indexes of the segments in rows of a file; None if one of them may have changed."""
        places: Int64s = np.searchsorted(self.keys, keys)
        if (places == len(self.keys)).any() or (self.keys[places] != keys).any():
            return None
        if self.is_changed[places].any():
            return None
        # An event of another segment can change the listings of a segment.
        before, now = _given(rows["listings"].combine_chunks(), keys), {}
        if self.listings:
            now = {key: self.listings[key] for key in keys.tolist() if key in self.listings}
        return places if before == now else None

    def files(self, chosen: Bools) -> Iterator[Int64s]:
        """Yield the chosen segments of each new file, by max timestamp: retention deletes the oldest."""
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(self.times_ms[rows], kind="stable")]
        for at in range(0, len(rows), FILE_ROWS):
            yield rows[at : at + FILE_ROWS]

    def batches(self, chosen: Int64s) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table `segments` of chosen segments."""
        for number in np.unique(self.owners[chosen]).tolist():
            table, own = self.tables[number], np.sort(self.rows[chosen[self.owners[chosen] == number]])
            names = partition_names([*table.topic_id_partitions()], number)
            schema = STORED[SEGMENTS]
            yield batch_of_columns(segment_columns(table, own, names, schema.names), schema)


def _given(column: pa.Array, keys: Int64s) -> dict[int, Any]:
    """Return the values of a column that are not null by key."""
    chosen = np.flatnonzero(are_given(column))
    return {int(keys[at]): column[at].as_py() for at in chosen.tolist()}


class _Events:
    """Folds events and writes them to a file of the table `events`, batch by batch.

    `known` are the keys of the segments that the tables have.
    """

    def __init__(self, path: Path, state: TierState, job: BucketJob, known: Iterable[Int64s]) -> None:
        self.path = path
        self.rows = 0
        self.lost: list[AnomalyRow] = []
        self.fold = PartitionFold(state, job.partition_count, self._take)
        self._number = job.number
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._known = np.concatenate([np.empty(0, np.int64), *known])
        self._named: list[Int64s] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file open during the block."""
        with parquet_writer(self.path, STORED[EVENTS]) as self._writer:
            yield
            self._flush()

    def add(self, batch: pa.RecordBatch) -> None:
        """Fold a batch with EVENT_COLUMNS; offsets that have no readable record are only noted."""
        is_lost = batch.column("next_offset").is_valid()
        lost = batch.filter(is_lost)
        if lost.num_rows:
            self._write(batch_of_columns({n: lost.column(n) for n in _LOST}, EVENT_SCHEMA))
            self.lost += map(_lost_range, lost.to_pylist())
        for chunk in chunks_of_batch(batch.filter(pc.invert(is_lost))):
            self.fold.fold(chunk)

    def named(self) -> Int64s:
        """Return those of the keys `known` that an event named."""
        return self._known[np.isin(self._known, np.concatenate([np.empty(0, np.int64), *self._named]))]

    def _take(self, chunk: RecordChunk, events: DecodedEvents) -> None:
        keys = _keys(events.rows[:, SEGMENT_ID], events.rows[:, SEGMENT_ID_LOW])
        self._named.append(np.unique(keys))
        self._write(event_rows(chunk, events.table()))

    def _write(self, rows: pa.RecordBatch) -> None:
        batch = pa.repeat(pa.scalar(self._number, BATCH.type), rows.num_rows)
        self._waiting.append(rows.append_column(BATCH, batch))
        self.rows += rows.num_rows
        if sum(each.num_rows for each in self._waiting) >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Write the rows that wait to the file."""
        assert self._writer is not None
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), ROW_GROUP_ROWS)
        self._waiting.clear()


_LOST: Final = ("metadata_partition", "metadata_offset", "error", "next_offset", "is_gap")


def _lost_range(row: Mapping[str, Any]) -> AnomalyRow:
    """Return the anomaly of offsets that have no readable record."""
    number, offset = row["metadata_partition"], row["metadata_offset"]
    # The text of a DamagedRange begins with its offsets.
    why = row["error"].partition(": ")[2]
    found = unusable_record(number, offset, why)
    return AnomalyRow(finding=found, metadata_partition=number, metadata_offset=offset)


_UNKNOWN: Final = (
    ", or the segment was deleted before: another program deleted rows of the table events, which would tell"
)


class _Former:
    """The anomalies of a bucket in the last commit, and what they say about later ones.

    The `events` table tells whether the segment of a dropped event was deleted, so that the metadata topic is
    not read again, as `verify` does. Each segment is searched in all of its bucket's events once, and later
    in new events only. Without `has_all` of these events, one that is not found may have been deleted.
    """

    def __init__(self, rows: pa.Table, dropped: int, has_all: bool) -> None:
        self.rows = rows
        self._dropped = dropped
        self._has_all = has_all
        self._searched: set[str] = set()
        self._deleted: set[str] = set()
        self._unknown: set[str] = set()

    def restore(self, state: TierState) -> None:
        """Add the events that brokers dropped, and the numbers of records without a value, to `state`."""
        for row in self._of(FindingKind.EMPTY_RECORD).to_pylist():
            count = int(row["found"].partition(" ")[0])
            state.tombstones[row["metadata_partition"]] = row["start_offset"], count
        for row in self.rows.filter(self.rows["record"].is_valid()).to_pylist():
            event: Any = decode(row["record"])
            state.note(
                Anomaly(row["metadata_partition"], row["metadata_offset"], event.topic_id_partition, event)
            )
            if isinstance(event, RemoteLogSegmentMetadataUpdate):
                known = {None: self._unknown, True: self._deleted, False: self._searched}
                known[row["was_deleted"]].add(row["segment_id"])
        state.count_anomalies(0, self._dropped - state.anomaly_count)

    def search(self, state: TierState, store: ObjectStore, history: Sequence[str], new: Path | None) -> None:
        """Search for the segments of all dropped events.

        `history` are the keys of the files in `store` that have the earlier events of the bucket, `new` is
        the file with those of this run.
        """
        updated = {
            (each.topic_id_partition.key, each.event.segment_id)
            for each in state.anomalies
            if isinstance(each.event, RemoteLogSegmentMetadataUpdate)
        }
        wanted = {str(segment_id) for _, segment_id in updated}
        if new is not None and wanted - self._deleted:
            self._deleted |= _deleted_in(new, wanted - self._deleted)
        unsearched = wanted - self._searched - self._deleted - self._unknown
        for path in history if unsearched else ():
            self._deleted |= _deleted_in(read_file(store, EVENTS, path, _OF_DELETION), unsearched)
        if not self._has_all:
            self._unknown |= unsearched - {str(segment_id) for _, segment_id in live_segments(state, updated)}
        self._searched |= unsearched - self._unknown

    def of_partitions(self, kept: Collection[tuple[str, int]]) -> pa.Table:
        """Return the rows about the user partitions `kept`, without those about single events."""
        rows = self.rows.filter(
            pc.and_(self.rows["metadata_offset"].is_null(), self.rows["topic_id"].is_valid())
        )
        whose = zip(rows["topic_id"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        return rows.filter(pa.array([each in kept for each in whose], pa.bool_()))

    def of_events(self, state: TierState, lost: Sequence[AnomalyRow]) -> pa.Table:
        """Return the rows about records: unusable ones, empty ones, and events that brokers drop."""
        former = self._of(FindingKind.CORRUPT_METADATA)
        known = set(zip(former["partition"].to_pylist(), former["found"].to_pylist(), strict=True))
        new = list(lost)
        for bad in state.quarantined:
            whose = bad.metadata_partition
            if not bad.is_misplaced or (whose, bad.error.message) not in known:
                found = unusable_record(whose, bad.metadata_offset, bad.error.message)
                new.append(
                    AnomalyRow(finding=found, metadata_partition=whose, metadata_offset=bad.metadata_offset)
                )
        for found in empty_records(state):
            offset = found.start_offset
            new.append(AnomalyRow(finding=found, metadata_partition=found.partition, metadata_offset=offset))
        findings = dropped_events(state, lambda ids: {each for each in ids if str(each) in self._deleted})
        new += map(self._dropped_row, state.anomalies, findings)
        more = state.anomaly_count - len(state.anomalies)
        if more > 0:
            new.append(AnomalyRow(finding=more_dropped_events(more)))
        return pa.concat_tables([former, anomaly_table(new)])

    def _of(self, kind: FindingKind) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows["check"], str(kind)))

    def _dropped_row(self, anomaly: Anomaly, found: Finding) -> AnomalyRow:
        segment_id = str(found.segment_id)
        was_deleted = segment_id in self._deleted
        is_unknown = segment_id in self._unknown and not was_deleted
        if is_unknown:
            found = replace(found, found=f"{found.found}{_UNKNOWN}")
        return AnomalyRow(
            finding=found,
            metadata_partition=anomaly.metadata_partition,
            metadata_offset=anomaly.metadata_offset,
            record=encode(anomaly.event, dialect_of(anomaly.event)),
            was_deleted=None if found.segment_id is None or is_unknown else was_deleted,
        )


def _deleted_in(source: pa.Table | Path, wanted: Collection[str]) -> set[str]:
    """Return the wanted segments that have a DELETE_SEGMENT_FINISHED event in rows of `events`."""
    rows = source if isinstance(source, pa.Table) else pq.read_table(source, columns=_OF_DELETION.names)
    ids = rows.filter(pc.equal(rows["state"], _DELETED))["segment_id"].to_pylist()
    return set(ids) & set(wanted)
