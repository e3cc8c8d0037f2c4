"""The task of one metadata partition: read its events since the last commit, and write the table files.

Each record is read and decoded once, then folded and written to `events`, chunk by chunk. Memory holds the
folded state and one chunk, however many events there are.
"""

import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tierctl
from tierctl.errors import CorruptInputError
from tierctl.kernel import prepare
from tierctl.metadata.parallel_fold import PartitionFold
from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.model.location import TopicLocation
from tierctl.pipeline.tables import BATCH, SCHEMAS, MetadataPartitionTables
from tierctl.pipeline.warehouse.layout import (
    EVENTS,
    STATE,
    STATE_SCHEMA,
    PartState,
    TableFile,
    WarehouseSpec,
    file_name,
)
from tierctl.spark.executors.task import shared_topic
from tierctl.spark.sources.metadata_splits import EventSplit, batch_of
from tierctl.state.snapshot import RestoredState, read_snapshot, write_snapshot
from tierctl.state.tier_state import TierState
from tierctl.storage.stores import ObjectStore
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import DecodedEvents
from tierctl.wire.primitives import crc32c, crc32c_extend

# Find, for each event that the fold dropped, whether its segment had been deleted before.
#
# The answer is in the `events` table, so that the metadata topic is not read again, as `verify` does. Each
# segment is searched in the whole history of its metadata partition once, and later in new events only.

_DELETED: Final = str(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


@dataclass(slots=True)
class DeletedSegments:
    """Ids of the segments searched for, and of those that have a DELETE_SEGMENT_FINISHED event."""

    searched: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    @classmethod
    def of_notes(cls, notes: Mapping[str, Sequence[str]]) -> Self:
        """Return the object from the `notes` of an earlier run."""
        return cls(set(notes.get("asked", ())), set(notes.get("deleted", ())))

    @property
    def notes(self) -> dict[str, list[str]]:
        """Return the state to store for the next run, as JSON."""
        return {"asked": sorted(self.searched), "deleted": sorted(self.found)}

    def __contains__(self, segment_id: object) -> bool:
        return str(segment_id) in self.found

    def search(
        self,
        state: TierState,
        store: ObjectStore,
        history: Sequence[str],
        metadata_partition: int,
        new: Path | None,
    ) -> None:
        """Search for the segments of all events in `state.anomalies`.

        `history` are the keys of the files in `store` that have the events of earlier runs, also of other
        metadata partitions. `new` is the file with the events of this run.
        """
        wanted = {
            str(anomaly.event.segment_id)
            for anomaly in state.anomalies
            if isinstance(anomaly.event, RemoteLogSegmentMetadataUpdate)
        }
        unsearched = wanted - self.searched
        if new is not None and wanted - self.found:
            self._search_file(new, metadata_partition, wanted - self.found)
        if unsearched - self.found:
            for key in history:
                source = pa.BufferReader(store.open(key).read())
                self._search_file(source, metadata_partition, unsearched - self.found)
        self.searched |= wanted

    def _search_file(self, source: Any, metadata_partition: int, wanted: set[str]) -> None:
        ids = pa.array(sorted(wanted), pa.string())
        for batch in pq.ParquetFile(source).iter_batches(
            columns=["metadata_partition", "segment_id", "state"]
        ):
            is_own = pc.equal(batch.column("metadata_partition"), metadata_partition)
            is_deletion = pc.and_(is_own, pc.equal(batch.column("state"), _DELETED))
            chosen = pc.and_(is_deletion, pc.is_in(batch.column("segment_id"), value_set=ids))
            self.found |= set(batch.column("segment_id").filter(chosen).to_pylist())


ROW_GROUP_ROWS: Final = 1 << 17


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file with compression zstd."""
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write the batches to a Parquet file and return the number of rows."""
    rows = 0
    with parquet_writer(path, schema) as writer:
        for table in _gathered(batches):
            writer.write_table(table, ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


def stored_file(store: ObjectStore, path: Path, table: str, name: str, **facts: int) -> TableFile:
    """Store a Parquet file under `name` in the folder of its table; `facts` are fields of TableFile."""
    metadata = pq.read_metadata(path)
    content = hashed_file(path)
    store.put_all({f"{table}/{name}": content})
    return TableFile(
        table=table,
        path=name,
        size_bytes=content.size_bytes,
        rows=metadata.num_rows,
        stats=json.dumps(_stats(metadata)),
        **facts,
    )


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into tables of at least ROW_GROUP_ROWS rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _stats(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return Delta's statistics of a file: the rows, and bounds and nulls of its columns of integers."""
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns if groups else 0):
        columns = [group.column(at) for group in groups]
        name = columns[0].path_in_schema
        found = [column.statistics for column in columns]
        if "." in name or not all(s is not None and s.has_null_count for s in found):
            continue
        bounds = [s for s in found if s.has_min_max]
        nulls[name] = sum(s.null_count for s in found)
        if bounds and all(type(s.min) is int for s in bounds):
            lows[name], highs[name] = min(s.min for s in bounds), max(s.max for s in bounds)
    return {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The input of the task of one metadata partition for commit `number`; picklable and without secrets.

    The log has the offsets [begin, end). `since` is the partition's state in the last commit, None without
    one; files that are missing in it are written again. `history` are the keys of files with events of
    earlier commits.
    """

    location: TopicLocation
    warehouse: WarehouseSpec
    metadata_partition: int
    partition_count: int
    topic_id: str | None
    begin: int
    end: int
    number: int
    now_ms: int
    since: PartState | None = None
    history: tuple[str, ...] = ()

    @property
    def start(self) -> int:
        """Return the first offset to read."""
        return max(self.begin, self.since.end_offset if self.since else 0)

    @property
    def offsets(self) -> int:
        """Return the number of offsets to read."""
        return max(self.end - self.start, 0)


def do_task(task: Task) -> dict[str, Any]:
    """Run the task; return {"part": its row of the `state` table, "rows": the number of events}.

    The names of its files are of this attempt only.
    """
    with tempfile.TemporaryDirectory(prefix="tierctl-pipeline-") as folder:
        return _Attempt(task, Path(folder)).run()


class _Attempt:
    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder
        self._store = task.warehouse.open_store()
        self._name = uuid.uuid4().hex[:12]
        self._files: list[TableFile] = []
        self._numbers = count()

    def run(self) -> dict[str, Any]:
        task, number = self._task, self._task.metadata_partition
        state, notes = self._restored()
        events = _Events(self._folder / "events.parquet", task)
        # The tasks of one commit in the same process share a connection.
        topic = shared_topic(task.location, f"{task.warehouse.uri} {task.number}")
        prepare(task.offsets)
        with events.open():
            PartitionFold(state, task.partition_count, events).catch_up(topic, number, task.begin, task.end)
        since_offset, files = (task.since.end_offset, task.since.files) if task.since else (0, ())
        tables = MetadataPartitionTables(state, number, task.now_ms, since_offset=since_offset, files=files)
        deleted = DeletedSegments.of_notes(notes)
        new = events.path if events.rows else None
        deleted.search(state, self._store, task.history, number, new)
        if new is not None:
            self._files.append(stored_file(self._store, new, EVENTS, self._next_name()))
        self._write_segments(tables)
        self._write_blocks(tables, deleted)
        due_ms = tables.due_ms
        # The snapshot is taken last, because it renumbers the rows to which the tables refer.
        snapshot = write_snapshot(state, number, deleted.notes)
        return {"part": self._store_state(snapshot, state.read[number], due_ms).row(), "rows": events.rows}

    def _restored(self) -> RestoredState:
        since = self._task.since
        if since is None:
            return RestoredState(TierState(), {})
        return read_folded(self._store, since.path)

    def _next_name(self) -> str:
        return file_name(self._task.metadata_partition, self._task.number, self._name, next(self._numbers))

    def _write_segments(self, tables: MetadataPartitionTables) -> None:
        plan = tables.segment_files()
        self._files += plan.kept()
        for own, chosen in plan.to_write():
            self._write("segments", tables.segments(chosen), first_ms=own.first_ms, checksum=own.checksum)

    def _write_blocks(self, tables: MetadataPartitionTables, deleted: DeletedSegments) -> None:
        written = set()
        for block, partitions, anomalies in tables.blocks(deleted.__contains__):
            self._write("partitions", partitions.to_batches(), block=block)
            self._write("anomalies", anomalies.to_batches(), block=block)
            written.add(block)
        former = self._task.since.files if self._task.since else ()
        blocks = {"partitions", "anomalies"}
        self._files += [file for file in former if file.table in blocks and file.block not in written]

    def _write(self, table: str, batches: Iterable[pa.RecordBatch], **facts: int) -> None:
        """Store the rows of a table in a new file; without rows there is no file."""
        path = self._folder / f"{table}.parquet"
        if write_rows(path, SCHEMAS[table], batches):
            self._files.append(stored_file(self._store, path, table, self._next_name(), **facts))

    def _store_state(self, snapshot: bytes, end_offset: int, due_ms: int | None) -> PartState:
        """Store the row of the metadata partition in the `state` table, and return it."""
        task = self._task
        part = PartState(
            end_offset=end_offset,
            batch=task.number,
            path=self._next_name(),
            files=tuple(self._files),
            topic_id=task.topic_id,
            metadata_partitions=task.partition_count,
            due_ms=due_ms,
            cut_at=task.end if task.end < end_offset else None,
        )
        row = part.row() | {
            "metadata_partition": task.metadata_partition,
            "committed_ms": task.now_ms,
            "tierctl": tierctl.__version__,
            "snapshot_crc32c": crc32c(snapshot),
            "snapshot": snapshot,
        }
        path = self._folder / "state.parquet"
        # Statistics would store the whole snapshot again, as the minimum and the maximum of its column.
        pq.write_table(
            pa.Table.from_pylist([row], STATE_SCHEMA),
            path,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        stored_file(self._store, path, STATE, part.path)
        return part


def read_folded(store: ObjectStore, path: str) -> RestoredState:
    """Return the folded state in the file `path` of the table `state`; CorruptInputError if it is damaged."""
    key = f"{STATE}/{path}"
    columns = ["snapshot", "snapshot_crc32c"]
    try:
        stream = store.open(key)
        # A read without a size would read 8 KiB at a time.
        data = b"".join(iter(partial(stream.read, READ_BYTES), b""))
        row = pq.ParquetFile(pa.BufferReader(data)).read(columns).to_batches()[0]
        snapshot, expected = row.column(0)[0].as_buffer(), row.column(1)[0].as_py()
    except (pa.ArrowException, OSError, IndexError) as e:
        raise _damaged(key, "a Parquet file with a row", f"{type(e).__name__}: {e}") from e
    found = crc32c_extend(0, np.frombuffer(snapshot, np.uint8))
    if found != expected:
        raise _damaged(key, f"CRC-32C {expected:#010x}", f"{found:#010x}")
    return read_snapshot(snapshot)


def _damaged(key: str, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError(
        "folded state",
        expected=expected,
        found=found,
        source=key,
        hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
    )


class _Events:
    """Write the rows of each decoded chunk to a file of the `events` table."""

    def __init__(self, path: Path, task: Task) -> None:
        self.path = path
        self.rows = 0
        self._number = task.number
        self._split = EventSplit(
            location=task.location,
            metadata_partition=task.metadata_partition,
            start_offset=task.start,
            end_offset=task.end,
        )
        self._writer: pq.ParquetWriter | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file open during the block."""
        with parquet_writer(self.path, SCHEMAS[EVENTS]) as self._writer:
            yield

    def take(self, chunk: RecordChunk, events: DecodedEvents) -> None:
        """Implement `EventSink.take`: write the rows."""
        assert self._writer is not None
        rows = batch_of(chunk, self._split, events.table())
        if rows.num_rows:
            batch = pa.repeat(pa.scalar(self._number, BATCH.type), rows.num_rows)
            self._writer.write_batch(rows.append_column(BATCH, batch), ROW_GROUP_ROWS)
            self.rows += rows.num_rows
