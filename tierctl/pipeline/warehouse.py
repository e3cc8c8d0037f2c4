"""The tables of a warehouse, and the record of its last commit.

    events/ segments/ partitions/ anomalies/    Delta tables; each has one version per commit that changes it
    commits/                                    a Delta table with one row: the last commit
    _checkpoint/                                the checkpoint of Spark's stream, of a warehouse in a folder

The tables are the state: the fold continues from their rows. The rows of a user partition are in the files of
its bucket, a number that Spark computes from its topic id and its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tierctl.errors import CorruptInputError, SafetyRefusal, UsageError
from tierctl.files import PLAIN, exclusive, exists, is_dir
from tierctl.metadata.state_dir import require_own_folder
from tierctl.metadata.topic.base import translated
from tierctl.model.checked_values import natural_number, require_no_file
from tierctl.model.location import path_in_uri, require_no_credentials, split_uri
from tierctl.state.tier_state import LastRecord, MissingEvents
from tierctl.storage.lease import ObjectLease
from tierctl.storage.stores import Endpoint, ObjectStore, open_store
from tierctl.storage.stores.base import ConditionalStore, hashed_file

if TYPE_CHECKING:
    from tierctl.storage.stores.s3.client import OtherClient

EVENTS: Final = "events"
SEGMENTS: Final = "segments"
PARTITIONS: Final = "partitions"
ANOMALIES: Final = "anomalies"
COMMITS: Final = "commits"
CHECKPOINT: Final = "_checkpoint"

VERSION: Final = 1
"""The version of the stored form of all tables, which the last commit states."""

VERSION_COLUMN: Final = "version"

TABLES: Final = (EVENTS, SEGMENTS, PARTITIONS, ANOMALIES)
"""The tables for readers, in the order in which a commit reaches them."""

BUCKET: Final = pa.field("bucket", pa.int32())
"""The column by which the files of TABLES are divided: a commit replaces files of the buckets it changes."""

Effect = Callable[[str], None]
"""Receives a label before each change of a warehouse."""

_ROWS: Final = "numRecords"
_FILE: Final = pa.struct(
    [
        ("table", pa.string()),
        ("bucket", pa.int32()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("stats", pa.string()),
    ]
)
_LAST_RECORD: Final = pa.struct([(name, pa.int64()) for name in LastRecord._fields])
_MISSING: Final = pa.struct([(each.name, pa.int64()) for each in fields(MissingEvents)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A Parquet file of a table; `path` is relative to the table's folder, `stats` are Delta's, as JSON."""

    table: str
    bucket: int
    path: str
    size_bytes: int = 0
    stats: str = ""

    @property
    def rows(self) -> int:
        """The number of rows of a file with statistics."""
        return int(json.loads(self.stats)[_ROWS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit: its number, 0 before the first, and what the next one needs beside the tables.

    `ends` has the next offset to read of each metadata partition; `cuts` the log's end where it was found
    below that; `last_records` the last record that was read; `missing` the events that were gone before they
    were read. `due_ms` has the time at which rows of a bucket change without an event, `dropped` the number
    of its events that a broker drops. `rows` has the number of rows of each table; of `events`, those that
    all commits added. `query` and `batch` name the stream of Spark whose batch this is. `path` is the file of
    the commit's row. `added` and `removed` are the files by which the commit changes the tables.
    """

    number: int = 0
    committed_ms: int = 0
    tierctl: str = ""
    version: int = VERSION
    topic_id: str | None = None
    metadata_partitions: int = 0
    buckets: int = 0
    query: str | None = None
    batch: int = -1
    path: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)
    cuts: Mapping[int, int] = field(default_factory=dict)
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    due_ms: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[MissingEvents, ...] = ()
    added: tuple[TableFile, ...] = ()
    removed: tuple[TableFile, ...] = ()

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the commit in a row of COMMITS_SCHEMA; raise KeyError or TypeError for another mapping."""
        given = {each.name: row[each.name] for each in fields(cls)}
        given |= {name: dict(row[name]) for name in _MAPS}
        given["last_records"] = {number: LastRecord(**each) for number, each in row["last_records"]}
        given["missing"] = tuple(MissingEvents(**each) for each in row["missing"])
        given |= {name: tuple(TableFile(**each) for each in row[name]) for name in _FILES}
        return cls(**given)

    def row(self) -> dict[str, Any]:
        """Return the row of COMMITS_SCHEMA."""
        last_records = [(number, each._asdict()) for number, each in self.last_records.items()]
        maps = {name: list(getattr(self, name).items()) for name in _MAPS}
        return asdict(self) | maps | {"last_records": last_records}

    def require_same_topic(self, topic_id: str | None, metadata_partitions: int) -> None:
        """Raise SafetyRefusal if the commit is of another metadata topic, or of another number of partitions.

        Before the first commit it has neither.
        """
        if self.topic_id is not None and topic_id not in {None, self.topic_id}:
            raise SafetyRefusal(
                f"the warehouse is of metadata topic {self.topic_id}, not {topic_id}",
                hint="use another --warehouse",
            )
        if self.metadata_partitions not in {0, metadata_partitions}:
            raise SafetyRefusal(
                f"the metadata topic has {metadata_partitions} partitions, "
                f"but had {self.metadata_partitions} when the warehouse was made",
                hint="earlier events are in partitions where lookups no longer find them; use a new "
                "--warehouse",
            )


_NUMBERS: Final = ("ends", "cuts", "due_ms", "dropped")
_MAPS: Final = (*_NUMBERS, "rows")
_FILES: Final = ("added", "removed")

COMMITS_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("committed_ms", pa.int64()),
        ("tierctl", pa.string()),
        (VERSION_COLUMN, pa.int32()),
        ("topic_id", pa.string()),
        ("metadata_partitions", pa.int32()),
        ("buckets", pa.int32()),
        ("query", pa.string()),
        ("batch", pa.int64()),
        ("path", pa.string()),
        *((name, pa.map_(pa.int32(), pa.int64())) for name in _NUMBERS),
        ("rows", pa.map_(pa.string(), pa.int64())),
        ("last_records", pa.map_(pa.int32(), _LAST_RECORD)),
        ("missing", pa.list_(pa.field("element", _MISSING))),
        *((name, pa.list_(pa.field("element", _FILE))) for name in _FILES),
    ]
)
"""The columns of the table `commits`, which are the fields of Commit."""


def no_op(_label: str) -> None:
    """Do nothing; used outside of tests."""


_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""Parts of paths that deltalake decodes, or divides the path at."""

LOCK: Final = ".tierctl-pipeline.lock"
LEASE: Final = "_lease.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSpec:
    """The address of a warehouse; picklable, so that executors open the same one, and without secrets."""

    uri: str
    endpoint: Endpoint | None = None

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the address of file:///dir or s3://bucket/folder; raise UsageError for another URI."""
        require_no_credentials("--warehouse", uri)
        if split_uri("--warehouse", uri).scheme != "s3":
            return cls(uri=uri)
        return cls(uri=uri, endpoint=open_store(uri, named_by="--warehouse").endpoint)

    def open_store(self) -> ObjectStore:
        """Open the store of the warehouse's files; nothing is created yet."""
        parts = urlsplit(self.uri)
        is_folder = parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path
        if not is_folder and parts.scheme != "s3":
            raise UsageError(
                f"not a warehouse: {self.uri!r}", hint="expected file:///dir or s3://bucket/folder"
            )
        return open_store(self.uri, endpoint=self.endpoint, named_by="--warehouse")

    def open(self) -> Warehouse:
        """Open the warehouse; nothing is created yet. Raise UsageError for a path that deltalake misreads."""
        opened = Warehouse(self, self.open_store())
        misread = _MISREAD.search(opened.tables_uri)
        if misread is not None:
            raise UsageError(
                f"--warehouse {opened.tables_uri!r}: deltalake takes {misread[0]!r} for another name",
                hint=r"name a path without % before two hexadecimal digits, without \ and control characters",
            )
        return opened


class Warehouse:
    """The location of the tables; one run at a time has its lock or, in a bucket, its lease."""

    def __init__(self, spec: WarehouseSpec, store: ObjectStore) -> None:
        self._spec = spec
        self.store = store
        self._lease: ObjectLease | None = None

    @property
    def _root(self) -> Path | None:
        parts = urlsplit(self._spec.uri)
        return path_in_uri(parts.path).absolute() if parts.scheme == "file" else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exclude other runs during the block.

        Raise LockedError if another run holds the warehouse, and UsageError for a place of something else.
        """
        root = self._root
        if root is not None:
            require_no_file("--warehouse", root)
            require_own_folder("--warehouse", root)
            with translated(f"opening {root}"):
                PLAIN.make_folder(root)
            with exclusive(root, LOCK):
                yield
            return
        assert isinstance(self.store, ConditionalStore)
        with ObjectLease(self.store, LEASE) as self._lease:
            yield

    def is_lost(self) -> bool:
        """Return whether another run may have the lock now, so that this run must not write."""
        return self._lease is not None and self._lease.is_lost()

    @property
    def tables_uri(self) -> str:
        """Return the location of the tables for deltalake: a path, or the URI of a bucket's folder."""
        return str(self._root) if self._root is not None else self._spec.uri.rstrip("/")

    def table_options(self) -> dict[str, str]:
        """Return the settings with which deltalake reaches the store.

        In a bucket they have credentials: they are asked for when they are used, and stored nowhere.
        """
        return {} if self._bucket_options is None else self._bucket_options()

    @cached_property
    def _bucket_options(self) -> OtherClient | None:
        if self._root is not None:
            return None
        # Imported here, because boto3 is slow to import and only buckets need it.
        from tierctl.storage.stores.s3.client import OtherClient

        return OtherClient(self._spec.endpoint)

    def synced(self, keys: Sequence[str]) -> None:
        """Make those files durable that deltalake wrote to a folder, which it does not do itself."""
        if self._root is None:
            return
        for path in filter(exists, (self._root / key for key in keys)):
            with translated(f"writing {path}"):
                with path.open("rb") as stream:
                    PLAIN.sync(stream.fileno(), path)
                PLAIN.sync_folder(path.parent)

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that begins with `prefix`, without those of lock, lease and checkpoint."""
        root = self._root
        if root is not None and not is_dir(root):
            return
        for found in self.store.list_objects(prefix):
            if found.key not in {LOCK, LEASE} and not found.key.startswith(f"{CHECKPOINT}/"):
                yield found.key

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint of Spark's stream; None in a bucket, which Spark can't reach."""
        return None if self._root is None else self._root / CHECKPOINT


# The checkpoint of a stream: its id in the file `metadata`, and a file per batch in `offsets` and `commits`.


def query_of(checkpoint: Path) -> str:
    """Return the id of the checkpoint's stream."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def last_batch(checkpoint: Path) -> int:
    """Return the last batch that was planned.

    Raise OSError, ValueError, LookupError, TypeError or AttributeError if Spark could not go on from it, as
    from a file that a power cut left empty: it reads the last two plans and the last commit.
    """
    planned, committed = (_batches_in(checkpoint / name) for name in ("offsets", "commits"))
    for number in planned[-2:]:
        offsets_of(checkpoint, number)
    for number in committed[-1:]:
        _last_line(checkpoint / "commits" / str(number))
    return planned[-1]


def _batches_in(folder: Path) -> list[int]:
    numbers = (natural_number(path.name) for path in folder.iterdir())
    return sorted(number for number in numbers if number is not None)


def offsets_of(checkpoint: Path, batch: int) -> dict[int, int]:
    """Return the next offset of each metadata partition after a batch, from Spark's log of offsets."""
    offsets = _last_line(checkpoint / "offsets" / str(batch))["next_offsets"]
    return {int(number): int(at) for number, at in offsets.items()}


def _last_line(path: Path) -> Any:
    """Return the JSON in the last line of a batch's file.

    In `offsets` there are a line with the version, one with settings, and one with the offset of each source:
    version 2 names the source before it, as in 0:{...}.
    """
    line = path.read_text().splitlines()[-1]
    return json.loads(line[line.index("{") :])


def require_deltalake() -> None:
    """Raise UsageError if deltalake is not installed."""
    if find_spec("deltalake") is None:
        raise UsageError(
            "the tables of a warehouse need deltalake, which is not installed",
            hint="pip install tierctl[pipeline]",
        )


# The Parquet files of a warehouse: written with statistics for Delta, and read back.

ROW_GROUP_ROWS: Final = 1 << 17
_READ_BYTES: Final = 8 << 20


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file, whose pages have checksums."""
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, write_page_checksum=True)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write the batches to a Parquet file and return the number of rows."""
    rows = pa.Table.from_batches(batches, schema)
    with parquet_writer(path, schema) as writer:
        writer.write_table(rows, ROW_GROUP_ROWS)
    count: int = rows.num_rows
    return count


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
    return {_ROWS: metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def bytes_of(store: ObjectStore, key: str) -> bytes:
    """Return the bytes of a file; raise errors of the store."""
    with closing(store.open(key)) as stream:
        # A read without a size would read 8 KiB at a time.
        return b"".join(iter(partial(stream.read, _READ_BYTES), b""))


def read_file(store: ObjectStore, table: str, path: str, schema: pa.Schema) -> pa.Table:
    """Return the columns `schema` of a file of a table.

    Raise CorruptInputError for a damaged file, and errors of the store.
    """
    key = f"{table}/{path}"
    data = bytes_of(store, key)
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
