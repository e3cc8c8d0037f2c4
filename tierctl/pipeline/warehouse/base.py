"""Where the pipeline keeps its tables: a folder, or a place in an S3 bucket.

    events/batch=N/part-P.parquet     appended to: the events that commit N read of metadata partition P
    segments/ partitions/ anomalies/  part-P.parquet each, as of the last commit that is published
    _commits/N.json                   what commit N is made of; made once, never replaced
    _data/                            what commits refer to: folded state, and the tables' files
    _published.json                   the commit that the tables are of, and the files of each table

Names that begin with `_` are tierctl's own, and Parquet readers pass over them. A run writes files of its own
to `_data`, then makes the commit, then shows it in the tables, then notes so in `_published.json`. Killed
before the commit it leaves files that nobody refers to; killed after it, the next run shows the commit first.
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
"""The tables that each commit replaces, file by metadata partition."""

COMMITS_KEPT: Final = 20

EMPTY: Final = -1
"""Instead of a metadata partition: the file without rows that tells a table's columns while it has none."""

Files = Mapping[int, str]
"""Keys in `_data` by metadata partition."""


class Warehouse(Protocol):
    """A place of tables, and how one kind of place shows them."""

    def held(self) -> AbstractContextManager[None]:
        """Be the only pipeline here; LockedError when another run is."""
        ...

    def put(self, key: str, source: Source) -> None:
        """Store a whole file, durably."""
        ...

    def open(self, key: str) -> BinaryIO:
        """A file's bytes; RemoteResourceNotFound."""
        ...

    def create(self, key: str, body: bytes) -> bool:
        """Store a small file that must not be there; whether it is now ours. LockedError when not held."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Every key that begins so; `prefix` is "" or ends with `/`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete exactly these."""
        ...

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """The sizes of those of the keys that are there."""
        ...

    def show_batch(self, batch: int, files: Files) -> None:
        """Let `events/batch=N/` have these files and no other; the same again changes nothing."""
        ...

    def show_table(self, table: str, files: Files, shown: Files) -> None:
        """Let the table have these files and no other; `shown` are those that it had so far.

        LockedError when not held.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """How far a metadata partition is in the warehouse, and the files that say so.

    `end` is the next offset to be read. `tables` has the key of each table's file, none where it has no rows.
    `due_ms` is when its tables say something else although nothing was written, None for never. `cut_at` is
    where the log ended when it was found shorter than what had been read. `batch` is the last commit that
    changed it.
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
    """A commit whole: every metadata partition as of it, and its own events' files by metadata partition."""

    number: int = 0
    made_ms: int = 0
    tierctl: str = ""
    parts: Mapping[int, PartState] = field(default_factory=dict)
    events: Mapping[int, str] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    """First offset by metadata partition that this commit read."""

    def dumps(self) -> bytes:
        """The file's bytes."""
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
        """From `dumps`; CorruptInputError for anything else."""
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
        """The table's files as of this commit."""
        parts = sorted(self.parts.items())
        files = {number: part.tables[table] for number, part in parts if table in part.tables}
        return files or {EMPTY: empty_key(table)}

    def keys(self) -> set[str]:
        """Everything in `_data` that this commit refers to."""
        kept = {part.state for part in self.parts.values()} | set(self.events.values())
        return kept | {key for part in self.parts.values() for key in part.tables.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The commit that the tables show, and every table's files: its names and what they were made of."""

    number: int = 0
    tables: Mapping[str, Files] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """The file's bytes."""
        return (json.dumps({"format": FORMAT, "commit": self.number, "tables": self.tables}) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, source: str) -> Self:
        """From `dumps`; CorruptInputError for anything else."""
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
    """Where one attempt at commit `number` keeps a file; no other attempt writes there."""
    return f"{DATA}{table}/part-{metadata_partition:05d}-{number}-{attempt}.{suffix}"


def empty_key(table: str) -> str:
    """A file of the table without rows."""
    return f"{DATA}empty/{table}.parquet"


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise ValueError(found)
