"""The task of one metadata partition: read its events since the last commit, and write the table files.

Each record is read and decoded once, then folded and written to `events`, chunk by chunk. Memory holds the
folded state and one chunk, however many events there are.
"""

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tierctl
from tierctl.errors import CorruptInputError
from tierctl.metadata.fold.partitions import PartitionFold
from tierctl.model.location import TopicLocation
from tierctl.pipeline.deleted_segments import DeletedSegments
from tierctl.pipeline.parquet_files import ROW_GROUP_ROWS, parquet_writer, stored_file, write_rows
from tierctl.pipeline.tables import BATCH, SCHEMAS, MetadataPartitionTables
from tierctl.pipeline.warehouse.layout import EVENTS, STATE, STATE_SCHEMA, PartState, TableFile, file_name
from tierctl.pipeline.warehouse.open import WarehouseSpec
from tierctl.spark.executors.task import shared_topic
from tierctl.spark.sources.metadata import EventSplit, batch_of
from tierctl.state.snapshot import RestoredState, read_snapshot, write_snapshot
from tierctl.state.tier import TierState
from tierctl.storage.stores import ObjectStore
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.primitives import crc32c, crc32c_extend

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

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Implement `EventSink.take`: write all rows, because every event is new."""
        assert self._writer is not None
        rows = batch_of(chunk, self._split, table)
        if rows.num_rows:
            batch = pa.repeat(pa.scalar(self._number, BATCH.type), rows.num_rows)
            self._writer.write_batch(rows.append_column(BATCH, batch), ROW_GROUP_ROWS)
            self.rows += rows.num_rows
        return chunk, table
