"""Write the Parquet files of one attempt at a task, and store them in the warehouse with their statistics."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tierctl.pipeline.warehouse.layout import TableFile
from tierctl.storage.stores import ObjectStore
from tierctl.storage.stores.base import hashed_file

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
