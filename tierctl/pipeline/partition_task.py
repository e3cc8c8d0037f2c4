"""The task of one metadata partition: read its events since the last commit, and write the table files.

Each record is read and decoded once, then folded and written to `events`, chunk by chunk. Memory holds the
folded state and one chunk, however many events there are.
"""

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tierctl.errors import CorruptInputError
from tierctl.metadata.fold.partitions import PartitionFold
from tierctl.model.location import TopicLocation
from tierctl.pipeline.deleted_segments import DeletedSegments
from tierctl.pipeline.tables import SCHEMAS, MetadataPartitionTables
from tierctl.pipeline.warehouse.base import EVENTS, PartState, Warehouse, data_key
from tierctl.pipeline.warehouse.open import WarehouseSpec
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.sources.metadata.rows import batch_of
from tierctl.spark.sources.metadata.splits import EventSplit
from tierctl.state.snapshot import RestoredState, read_snapshot, write_snapshot
from tierctl.state.tier import TierState
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.crc import crc32c

ROW_GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The input of the task of one metadata partition for commit `number`; picklable and without secrets.

    The log has the offsets [begin, end). `since` is the partition's state in the last commit, None without
    one.
    """

    location: TopicLocation
    warehouse: WarehouseSpec
    metadata_partition: int
    partition_count: int
    begin: int
    end: int
    number: int
    now_ms: int
    since: PartState | None = None

    @property
    def start(self) -> int:
        """Return the first offset to read."""
        return max(self.begin, self.since.end if self.since else 0)

    @property
    def offsets(self) -> int:
        """Return the number of offsets to read."""
        return max(self.end - self.start, 0)


def do_task(task: Task) -> dict[str, Any]:
    """Run the task and return its entry in the commit; its files have names of this attempt only."""
    with tempfile.TemporaryDirectory(prefix="tierctl-pipeline-") as folder:
        return _Attempt(task, Path(folder)).run()


class _Attempt:
    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder
        self._warehouse: Warehouse = task.warehouse.open()
        self._name = uuid.uuid4().hex[:12]

    def run(self) -> dict[str, Any]:
        task, number = self._task, self._task.metadata_partition
        state, notes = self._restored()
        events = _Events(self._folder / "events.parquet", task)
        # The tasks of one commit in the same process share a connection.
        topic = shared_topic(task.location, f"{task.warehouse.uri} {task.number}")
        with events.open():
            PartitionFold(state, task.partition_count, events).catch_up(topic, number, task.begin, task.end)
        tables = MetadataPartitionTables(state, number, task.now_ms)
        deleted = DeletedSegments.of_notes(notes)
        deleted.search(state, self._warehouse, number, events.path if events.rows else None)
        written = {
            "segments": self._write("segments", tables.segments()),
            "partitions": self._write("partitions", iter([tables.partitions()])),
            "anomalies": self._write("anomalies", iter([tables.anomalies(deleted.__contains__)])),
        }
        due_ms = tables.due_ms
        # Taken last, because the snapshot renumbers the rows that the tables refer to.
        snapshot = write_snapshot(state, number, deleted.notes)
        state_key = self._key("state", "arrow")
        self._warehouse.put(state_key, snapshot)
        return {
            "part": {
                "end": state.read[number],
                "batch": task.number,
                "state": state_key,
                "state_crc32c": crc32c(snapshot),
                "tables": {table: key for table, key in written.items() if key is not None},
                "due_ms": due_ms,
                "cut_at": task.end if task.end < state.read[number] else None,
            },
            "events": self._store(EVENTS, events.path) if events.rows else None,
            "rows": events.rows,
        }

    def _restored(self) -> RestoredState:
        since = self._task.since
        if since is None:
            return RestoredState(TierState(), {})
        data = self._warehouse.open(since.state).read()
        if crc32c(data) != since.state_crc32c:
            raise CorruptInputError(
                "folded state",
                expected=f"CRC-32C {since.state_crc32c:#010x}",
                found=f"{crc32c(data):#010x}",
                source=since.state,
                hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
            )
        return read_snapshot(data)

    def _key(self, table: str, suffix: str = "parquet") -> str:
        return data_key(table, self._task.metadata_partition, self._task.number, self._name, suffix)

    def _write(self, table: str, batches: Iterator[pa.RecordBatch]) -> str | None:
        """Store the rows of a table and return the key of the file, or None without rows."""
        path, rows = self._folder / f"{table}.parquet", 0
        with parquet_writer(path, SCHEMAS[table]) as writer:
            for batch in _gathered(batches):
                writer.write_table(batch, ROW_GROUP_ROWS)
                rows += batch.num_rows
        return self._store(table, path) if rows else None

    def _store(self, table: str, path: Path) -> str:
        key = self._key(table)
        self._warehouse.put(key, hashed_file(path))
        return key


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file with compression zstd."""
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into tables of at least ROW_GROUP_ROWS rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


class _Events:
    """Write the rows of each decoded chunk to a file of the `events` table."""

    def __init__(self, path: Path, task: Task) -> None:
        self.path = path
        self.rows = 0
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

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Implement `EventSink.take`: write all rows, because every event is new."""
        assert self._writer is not None
        rows = batch_of(chunk, self._split, table)
        if rows.num_rows:
            self._writer.write_batch(rows, ROW_GROUP_ROWS)
            self.rows += rows.num_rows
        return chunk, table
