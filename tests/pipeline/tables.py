"""The pipeline's tables as rows, and small metadata topics from which they are made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pyarrow as pa
from deltalake import DeltaTable
from tierctl.metadata.topic import open_topic
from tierctl.model import MetadataEvent, RemotePartitionDeleteState, Uuid
from tierctl.model.events import dialect_of
from tierctl.model.location import TopicLocation
from tierctl.pipeline.bucket_task import EVENT_COLUMNS, BucketJob, BucketResult
from tierctl.pipeline.update import Pipeline, PipelineRun, StepResult
from tierctl.pipeline.warehouse import WarehouseSpec
from tierctl.spark.sources.metadata_splits import event_tasks, read_task
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.metadata.events import partition_delete, started, update
from tests.metadata.topics import topic_in
from tests.state.histories import S

TABLES = ("events", "segments", "partitions", "anomalies")
COUNT = 4
Rows = dict[str, list[Any]]


def delta(warehouse: Path | str, table: str, version: int | None = None) -> DeltaTable:
    """Open a table with deltalake."""
    spec = WarehouseSpec.of(warehouse if isinstance(warehouse, str) else warehouse.as_uri())
    opened = spec.open()
    return DeltaTable(f"{opened.tables_uri}/{table}", version, opened.table_options())


def read(warehouse: Path | str, table: str, version: int | None = None) -> pa.Table:
    """Return the rows of a table."""
    return delta(warehouse, table, version).to_pyarrow_table()


def rows_of(warehouse: Path | str) -> Rows:
    """Return the sorted rows of every table, as `ordered`."""
    return {table: ordered(read(warehouse, table).to_pylist()) for table in TABLES}


def ordered(rows: Iterable[dict[str, Any]]) -> list[Any]:
    """Return sorted rows without `batch`, the number of a run, and `bucket`, a hash that Spark computes."""
    kept = ({k: v for k, v in row.items() if k not in {"batch", "bucket"}} for row in rows)
    return sorted(kept, key=repr)


def write(
    folder: Path, events: Sequence[MetadataEvent | bytes | None], *, among: int = COUNT, **settings: Any
) -> None:
    """Append events, or invalid records, to a metadata topic of COUNT partitions; None only creates it.

    The events are written as if it had `among` partitions. `b""` stands for a record without a value.
    `settings` are those of FolderSettings.
    """
    records: list[Any] = []
    for event in events:
        if isinstance(event, bytes):
            records.append((0, event or None))
        elif event is not None:
            home = metadata_partition(event.topic_id, event.partition, among)
            records.append((home, encode(event, dialect_of(event))))
    how = {"partition_count": COUNT, "clock_ms": lambda: 1_700_000_000_000, **settings}
    topic = topic_in(folder, writable=True, **how)
    if records:
        topic.append(records)
    topic.close()


def write_all_kinds(folder: Path) -> None:
    """Write COUNT metadata partitions with events of all kinds, and records that are no events."""
    odd = [update(77), update(0, S.DELETE_SEGMENT_FINISHED), update(0, S.DELETE_SEGMENT_FINISHED)]
    mark = partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition=2)
    write(folder, [*lives(range(12)), *odd, mark, b"\x01\x63\x00", b"", started(40)])


def pipeline(
    topic: Path | TopicLocation, warehouse: Path | str, *, now_ms: int = 10**13, **how: Any
) -> Pipeline:
    """Return the request of a run to a folder or a bucket."""
    uri = warehouse if isinstance(warehouse, str) else warehouse.as_uri()
    return Pipeline(
        location=topic if isinstance(topic, TopicLocation) else TopicLocation(uri=topic.as_uri()),
        warehouse=WarehouseSpec.of(uri),
        clock_ms=lambda: now_ms,
        **how,
    )


def run(topic: Path | TopicLocation, warehouse: Path | str, **how: Any) -> int:
    """Run the pipeline to the end, with the tasks in this process; return the number of its last commit."""
    with pipeline(topic, warehouse, **how).opened() as opened:
        return step(opened).commit


def run_once(topic: Path, **how: Any) -> Rows:
    """Return the rows that one undisturbed run over the whole topic makes."""
    with TemporaryDirectory(dir=topic.parent) as name:
        warehouse = Path(name, "tables")
        run(topic, warehouse, **how)
        return rows_of(warehouse)


def step(run: PipelineRun, up_to: Mapping[int, int] | None = None) -> StepResult:
    """Commit the events up to the end of the topic, or up to the offsets in `up_to`, without Spark.

    Only Spark's part of a run is left out: planning of batches, the shuffle, and the processes of tasks.
    """
    with closing(open_topic(run.pipeline.location)) as topic:
        begins, ends = topic.beginning_offsets(), topic.end_offsets()
    known = run.latest.ends
    goal = {
        n: max(min(end, end if up_to is None else up_to.get(n, 0)), known.get(n, 0))
        for n, end in ends.items()
    }
    if all(end <= known.get(n, 0) for n, end in goal.items()) and not run.is_due():
        return StepResult(run.latest.number)
    ranges = {n: (max(known.get(n, 0), begins[n]), min(end, ends[n])) for n, end in goal.items()}
    ranges = {n: (start, end) for n, (start, end) in ranges.items() if start < end}
    tasks = event_tasks(run.pipeline.location, ranges, columns=EVENT_COLUMNS)
    batches = [batch for task in tasks for batch in read_task(task)]
    events = pa.Table.from_batches(batches) if batches else None

    def fold(job: BucketJob) -> Iterator[BucketResult]:
        count = job.bucket_count
        homes: list[int] = []
        if events is not None:
            pairs = zip(events["topic_id"].to_pylist(), events["partition"].to_pylist(), strict=True)
            homes = [crc32(repr(pair).encode()) % count for pair in pairs]
        for bucket in range(count):
            own = None if events is None else events.filter(pa.array([home == bucket for home in homes]))
            found = job.run(
                bucket, [] if own is None or not own.num_rows else own.combine_chunks().to_batches()
            )
            if found is not None:
                yield found

    return run.step(fold, goal)


def lives(numbers: range, partitions: int = 3) -> list[MetadataEvent]:
    """Return events of copied segments, the first of which are deleted."""
    events: list[MetadataEvent] = []
    for number in numbers:
        for partition in range(partitions):
            events += [started(number, partition=partition), update(number, partition=partition)]
            if number % 5 == 0:
                events.append(update(number, S.DELETE_SEGMENT_STARTED, partition=partition))
    return events


def moved(event: Any, partition: int) -> MetadataEvent:
    """Return the event for another partition, with another segment id."""
    whose = Uuid.from_bytes(bytes([partition]) + event.segment_id.bytes[1:])
    moved: MetadataEvent = replace(event, partition=partition, segment_id=whose)
    return moved
