"""The pipeline's tables as rows, and small metadata topics from which they are made."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from tierctl.model import MetadataEvent, Uuid
from tierctl.model.events import dialect_of
from tierctl.model.location import TopicLocation
from tierctl.pipeline.update import Pipeline
from tierctl.pipeline.warehouse.layout import WarehouseSpec
from tierctl.wire.metadata.partitioner import metadata_partition
from tierctl.wire.metadata.values import encode

from tests.metadata.events import started, update
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
    """Return the sorted rows of every table, without `batch`, which depends on the number of runs."""
    return {table: ordered(read(warehouse, table).to_pylist()) for table in TABLES}


def ordered(rows: Iterable[dict[str, Any]]) -> list[Any]:
    """Return sorted rows without the batch."""
    return sorted(({k: v for k, v in row.items() if k != "batch"} for row in rows), key=repr)


def write(folder: Path, events: Sequence[MetadataEvent | bytes | None]) -> None:
    """Append events, or invalid records, to a metadata topic of COUNT partitions; None only creates it."""
    records = []
    for event in events:
        if isinstance(event, bytes):
            records.append((0, event))
        elif event is not None:
            home = metadata_partition(event.topic_id, event.partition, COUNT)
            records.append((home, encode(event, dialect_of(event))))
    topic = topic_in(folder, writable=True, partition_count=COUNT, clock_ms=lambda: 1_700_000_000_000)
    if records:
        topic.append(records)
    topic.close()


def pipeline(topic: Path, warehouse: Path | str, *, now_ms: int = 10**13, **how: Any) -> Pipeline:
    """Return the request of a run from a folder to a folder or a bucket."""
    uri = warehouse if isinstance(warehouse, str) else warehouse.as_uri()
    return Pipeline(
        location=TopicLocation(uri=topic.as_uri()),
        warehouse=WarehouseSpec.of(uri),
        clock_ms=lambda: now_ms,
        **how,
    )


def run(topic: Path, warehouse: Path | str, **how: Any) -> int:
    """Run the pipeline to the end; return the number of its last commit."""
    with pipeline(topic, warehouse, **how).opened() as opened:
        return opened.step().commit


Effect = Callable[[str], None]


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
