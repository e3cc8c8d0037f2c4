"""The Parquet files of a warehouse: written with statistics for Delta, and read back."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tierctl.errors import CorruptInputError
from tierctl.pipeline.warehouse.layout import TableFile
from tierctl.storage.stores import ObjectStore
from tierctl.storage.stores.base import hashed_file

ROW_GROUP_ROWS: Final = 1 << 17
_READ_BYTES: Final = 8 << 20


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file, whose pages have checksums."""
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, write_page_checksum=True)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write the batches to a Parquet file and return the number of rows."""
    rows = 0
    with parquet_writer(path, schema) as writer:
        for table in _gathered(batches):
            writer.write_table(table, ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


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


def stored_file(store: ObjectStore, path: Path, table: str, bucket: int, name: str) -> TableFile:
    """Store a Parquet file under `name` in the folder of its table."""
    metadata = pq.read_metadata(path)
    content = hashed_file(path)
    store.put_all({f"{table}/{name}": content})
    return TableFile(
        table=table,
        bucket=bucket,
        path=name,
        size_bytes=content.size_bytes,
        stats=json.dumps(_stats(metadata)),
    )


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


def read_file(store: ObjectStore, table: str, path: str, schema: pa.Schema) -> pa.Table:
    """Return the columns `schema` of a file of a table.

    Raise CorruptInputError for a damaged file, and errors of the store.
    """
    key = f"{table}/{path}"
    stream = store.open(key)
    # A read without a size would read 8 KiB at a time.
    data = b"".join(iter(partial(stream.read, _READ_BYTES), b""))
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return file.read(schema.names).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError) as e:
        raise CorruptInputError(
            f"file of table {table}",
            expected="a Parquet file with the table's columns",
            found=f"{type(e).__name__}: {e}",
            source=key,
            hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
        ) from e
