"""The tables of a warehouse, and the `state` table: what a commit says about each metadata partition.

    events/ segments/ partitions/ anomalies/    Delta tables; each has one version per commit that changes it
    state/                                      a Delta table with one row per metadata partition

A row of `state` has the processed offset, the folded state, and the files of the metadata partition in the
other tables. A task writes each row to a file of its own, which it names in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.files import PLAIN, exclusive
from tierctl.metadata.topic.base import translated
from tierctl.model.location import require_no_credentials
from tierctl.storage.lease import ObjectLease, Owner
from tierctl.storage.stores import Endpoint, ObjectStore, open_store
from tierctl.storage.stores.base import ConditionalStore, delete_all

if TYPE_CHECKING:
    from tierctl.storage.stores.s3.client import OtherClient

EVENTS: Final = "events"
STATE: Final = "state"
REPLACED: Final = ("segments", "partitions", "anomalies")
"""The tables in which a commit replaces the files of the metadata partitions that it changes."""

TABLES: Final = (EVENTS, *REPLACED)
"""The tables for readers, in the order in which a commit reaches them."""

NO_BLOCK: Final = -1

Effect = Callable[[str], None]
"""Receives a label before each change of a warehouse."""

_FILE: Final = pa.struct(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("block", pa.int32()),
        ("first_ms", pa.int64()),
        ("checksum", pa.int64()),
    ]
)

STATE_SCHEMA: Final = pa.schema(
    [
        ("metadata_partition", pa.int32()),
        ("end_offset", pa.int64()),
        ("batch", pa.int64()),
        ("committed_ms", pa.int64()),
        ("due_ms", pa.int64()),
        ("cut_at", pa.int64()),
        ("topic_id", pa.string()),
        ("metadata_partitions", pa.int32()),
        ("tierctl", pa.string()),
        ("path", pa.string()),
        ("files", pa.list_(pa.field("element", _FILE))),
        ("snapshot_crc32c", pa.int64()),
        ("snapshot", pa.binary()),
    ]
)
"""The columns of the `state` table.

`end_offset` is the next offset to read; `batch` is the number of the commit that last changed the row.
`path` is the file of the row, and `files` are the files of the metadata partition in the other tables; of
`events` only those of this commit. `snapshot` is the folded state in the format of `tierctl.state.snapshot`.
"""

_PART_COLUMNS: Final = ("end_offset", "batch", "due_ms", "cut_at", "topic_id", "metadata_partitions", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A Parquet file of a table; `path` is relative to the table's folder.

    `stats` are Delta's statistics as JSON. `block` is the number of the group of user partitions whose rows
    are in the file, or NO_BLOCK. A file of `segments` has the rows with a max timestamp of at least
    `first_ms`, up to the next file's, and `checksum` of their contents.
    """

    table: str
    path: str
    size_bytes: int
    rows: int
    stats: str
    block: int = NO_BLOCK
    first_ms: int = 0
    checksum: int = 0

    @property
    def key(self) -> str:
        """Return the key of the file in the warehouse."""
        return f"{self.table}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """The state of a metadata partition in a commit: a row of the `state` table without the snapshot.

    `due_ms` is the time at which rows of tables change without a new event, or None. `cut_at` is the log's
    end when it was found below `end_offset`, otherwise None.
    """

    end_offset: int
    batch: int
    path: str
    files: tuple[TableFile, ...]
    topic_id: str | None
    metadata_partitions: int
    due_ms: int | None = None
    cut_at: int | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the state in a row of STATE_SCHEMA; raise KeyError or TypeError for another mapping."""
        files = tuple(TableFile(**file) for file in row["files"])
        return cls(files=files, **{name: row[name] for name in _PART_COLUMNS})

    def row(self) -> dict[str, Any]:
        """Return the columns of STATE_SCHEMA that this object has."""
        files = [asdict(file) for file in self.files]
        return {"files": files, **{name: getattr(self, name) for name in _PART_COLUMNS}}

    def files_of(self, table: str) -> tuple[TableFile, ...]:
        """Return the files of one table."""
        return tuple(file for file in self.files if file.table == table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit: its number, 0 before the first, and the state of every metadata partition."""

    number: int = 0
    parts: Mapping[int, PartState] = field(default_factory=dict)

    def files(self, table: str) -> list[TableFile]:
        """Return the files of a table in this commit; of `events` only those that the commit adds."""
        parts: Iterable[PartState] = self.parts.values()
        if table == EVENTS:
            parts = [part for part in parts if part.batch == self.number]
        return [file for part in parts for file in part.files_of(table)]


def no_op(_label: str) -> None:
    """Do nothing; used outside of tests."""


def file_name(metadata_partition: int, number: int, attempt: str, part: int) -> str:
    """Return the name of a file of one attempt at commit `number`; no other attempt uses it."""
    return f"part-{metadata_partition:05d}-{number}-{attempt}-{part}.parquet"


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
        parts = urlsplit(uri)
        if parts.scheme != "s3":
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
        """Open the warehouse; nothing is created yet."""
        return Warehouse(self, self.open_store())


class Warehouse:
    """The location of the tables; one run at a time has its lock or, in a bucket, its lease."""

    def __init__(self, spec: WarehouseSpec, store: ObjectStore) -> None:
        self._spec = spec
        self._store = store
        self._lease: ObjectLease | None = None

    @property
    def _root(self) -> Path | None:
        parts = urlsplit(self._spec.uri)
        return Path(unquote(parts.path)).absolute() if parts.scheme == "file" else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exclude other runs during the block; raise LockedError if another run holds the warehouse."""
        root = self._root
        if root is not None:
            with translated(f"opening {root}"):
                PLAIN.make_folder(root)
            with exclusive(root, LOCK):
                yield
            return
        assert isinstance(self._store, ConditionalStore)
        with ObjectLease(self._store, LEASE, owner=Owner.of_this_run()) as self._lease:
            yield

    def is_lost(self) -> bool:
        """Return whether another run may have the lock now, so that this run must not write."""
        return self._lease is not None and self._lease.is_lost()

    @property
    def tables_uri(self) -> str:
        """Return the location of the tables for deltalake: a path, or the URI of a bucket's folder."""
        return str(self._root) if self._root is not None else self._spec.uri.rstrip("/")

    def table_options(self) -> dict[str, str]:
        """Return the settings with which deltalake reaches the store; in a bucket they have credentials."""
        return {} if self._bucket_options is None else self._bucket_options()

    @cached_property
    def _bucket_options(self) -> OtherClient | None:
        if self._root is not None:
            return None
        # Imported here, because boto3 is slow to import and only buckets need it.
        from tierctl.storage.stores.s3.client import OtherClient

        return OtherClient(self._spec.endpoint)

    def synced(self, keys: Sequence[str]) -> None:
        """Make files durable that deltalake wrote to a folder, which it does not do itself."""
        if self._root is None:
            return
        for path in (self._root / key for key in keys):
            with translated(f"writing {path}"):
                with path.open("rb") as stream:
                    PLAIN.sync(stream.fileno(), path)
                PLAIN.sync_folder(path.parent)

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that begins with `prefix`, without those of the lock and the lease."""
        root = self._root
        if root is not None and not root.is_dir():
            return
        for found in self._store.list_objects(prefix):
            if found.key not in {LOCK, LEASE}:
                yield found.key

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the existing files among `keys`."""
        return self._store.sizes_bytes(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete exactly `keys`."""
        delete_all(self._store, keys)


def require_deltalake() -> None:
    """Raise UsageError if deltalake is not installed."""
    if find_spec("deltalake") is None:
        raise UsageError(
            "the tables of a warehouse need deltalake, which is not installed",
            hint="pip install tierctl[pipeline]",
        )
