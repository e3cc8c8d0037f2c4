"""The layout of a warehouse in a folder or an S3 bucket, the format of its commits, and its protocol.

    events/batch=N/part-P.parquet     appended: the events that commit N read from metadata partition P
    segments/ partitions/ anomalies/  part-P.parquet each, as of the last commit that is published
    _commits/N.json                   the content of commit N; created once, never replaced
    _data/                            the files of commits: folded state, and files of tables
    _published.json                   the commit that the tables show, and the files of each table

Parquet readers ignore names that begin with `_`. A run writes new files to `_data`, then stores the commit,
then shows it in the tables, and then writes `_published.json`. A run killed before the commit leaves files
that no commit refers to; after a run killed later, the next run shows the commit first.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Protocol, Self

from tierctl.errors import CorruptInputError
from tierctl.storage.stores.base import Source

FORMAT: Final = 1
MARKER: Final = "_warehouse.json"
PUBLISHED: Final = "_published.json"
COMMITS: Final = "_commits/"
DATA: Final = "_data/"
EVENTS: Final = "events"
TABLES: Final = ("segments", "partitions", "anomalies")
"""The tables that each commit replaces, with one file per metadata partition."""

COMMITS_KEPT: Final = 20

EMPTY: Final = -1
"""The number, in place of a metadata partition, of the file without rows that an empty table has."""

Files = Mapping[int, str]
"""Keys in `_data` by metadata partition."""


class Warehouse(Protocol):
    """Storage for the tables, in a folder or a bucket."""

    def held(self) -> AbstractContextManager[None]:
        """Exclude other runs during the block; raise LockedError if another run holds the warehouse."""
        ...

    def put(self, key: str, source: Source) -> None:
        """Store a whole file durably."""
        ...

    def open(self, key: str) -> BinaryIO:
        """Open a file for reading; raise RemoteResourceNotFound if it does not exist."""
        ...

    def create(self, key: str, body: bytes) -> bool:
        """Store a small file that does not exist yet, and return True if this call created it.

        Raise LockedError if this run no longer holds the warehouse.
        """
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that begins with `prefix`, which is "" or ends with `/`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete exactly `keys`."""
        ...

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the existing files among `keys`."""
        ...

    def show_batch(self, batch: int, files: Files) -> None:
        """Make `files` the only files of `events/batch=N/`; a repeated call changes nothing."""
        ...

    def show_table(self, table: str, files: Files, shown: Files) -> None:
        """Make `files` the only files of the table; `shown` are its files so far.

        Raise LockedError if this run no longer holds the warehouse.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """The state of a metadata partition in a commit.

    `end` is the next offset to read, and `batch` the last commit that changed the partition. `tables` has the
    key of each table's file, without tables that have no rows. `due_ms` is the time at which rows change
    without a new event, or None. `cut_at` is the log's end when it was found below `end`, otherwise None.
    """

    end: int
    batch: int
    state: str
    state_crc32c: int
    tables: Mapping[str, str]
    due_ms: int | None = None
    cut_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit: the state of every metadata partition, and the files of the commit's own events."""

    number: int = 0
    made_ms: int = 0
    tierctl: str = ""
    parts: Mapping[int, PartState] = field(default_factory=dict)
    events: Mapping[int, str] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    """The first offset that this commit read, by metadata partition."""

    def dumps(self) -> bytes:
        """Return the bytes of the file."""
        raw = {
            "format": FORMAT,
            "number": self.number,
            "made_ms": self.made_ms,
            "tierctl": self.tierctl,
            "start_offsets": dict(sorted(self.starts.items())),
            "end_offsets": {number: part.end for number, part in sorted(self.parts.items())},
            "events": dict(sorted(self.events.items())),
            "parts": {
                number: {
                    "batch": part.batch,
                    "state": part.state,
                    "state_crc32c": part.state_crc32c,
                    "tables": dict(part.tables),
                    "due_ms": part.due_ms,
                    "cut_at": part.cut_at,
                }
                for number, part in sorted(self.parts.items())
            },
        }
        return (json.dumps(raw, indent=1) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, source: str) -> Self:
        """Parse the bytes that `dumps` returned; raise CorruptInputError for other bytes."""
        try:
            raw = json.loads(data)
            _require(raw["format"] == FORMAT, f"format {raw['format']}")
            ends = raw["end_offsets"]
            return cls(
                number=int(raw["number"]),
                made_ms=int(raw["made_ms"]),
                tierctl=str(raw["tierctl"]),
                parts={int(n): PartState(end=int(ends[n]), **part) for n, part in raw["parts"].items()},
                events={int(n): str(key) for n, key in raw["events"].items()},
                starts={int(n): int(start) for n, start in raw["start_offsets"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptInputError(
                "commit", expected=f"format {FORMAT}", found=f"{type(e).__name__}: {e}", source=source
            ) from e

    def files(self, table: str) -> dict[int, str]:
        """Return the files of a table in this commit."""
        parts = sorted(self.parts.items())
        files = {number: part.tables[table] for number, part in parts if table in part.tables}
        return files or {EMPTY: empty_key(table)}

    def keys(self) -> set[str]:
        """Return the keys in `_data` that this commit refers to."""
        kept = {part.state for part in self.parts.values()} | set(self.events.values())
        return kept | {key for part in self.parts.values() for key in part.tables.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The number of the commit that the tables show, and the key of each file by metadata partition."""

    number: int = 0
    tables: Mapping[str, Files] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """Return the bytes of the file."""
        return (json.dumps({"format": FORMAT, "commit": self.number, "tables": self.tables}) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, source: str) -> Self:
        """Parse the bytes that `dumps` returned; raise CorruptInputError for other bytes."""
        try:
            raw = json.loads(data)
            tables = {
                str(table): {int(number): str(key) for number, key in files.items()}
                for table, files in raw["tables"].items()
            }
            return cls(number=int(raw["commit"]), tables=tables)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptInputError(
                "published tables",
                expected=f"format {FORMAT}",
                found=f"{type(e).__name__}: {e}",
                source=source,
            ) from e


def data_key(table: str, metadata_partition: int, number: int, attempt: str, suffix: str = "parquet") -> str:
    """Return the key of a file of one attempt at commit `number`; no other attempt uses it."""
    return f"{DATA}{table}/part-{metadata_partition:05d}-{number}-{attempt}.{suffix}"


def empty_key(table: str) -> str:
    """Return the key of the table's file without rows."""
    return f"{DATA}empty/{table}.parquet"


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise ValueError(found)
