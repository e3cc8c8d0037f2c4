"""Commits over all tables of a warehouse, although a transaction of Delta changes one table only.

1. Tasks store files, which no table refers to yet.
2. The commit is made: one transaction of the `state` table, with number N as its transaction id, replaces the
   rows of the changed metadata partitions. A row has the processed offset and the names of all files.
3. The tables follow, each by one transaction with the number N: `events` gets the files of the commit, and
   the files of the other tables become those that the rows name.

A run that is killed before step 2 leaves files to which nothing refers, and `vacuum` deletes them. After a
run that is killed later, the next run first repeats step 3 for the tables that lack commit N. It neither
reads events for that nor writes files, so that each event is in `events` once.

Of two runs that make commit N at the same time, Delta lets one pass step 2, and the other ends with
LockedError before it has changed a table.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LockedError,
    RemoteStorageError,
    SafetyRefusal,
    UsageError,
)
from tierctl.pipeline.warehouse.layout import (
    EVENTS,
    REPLACED,
    STATE,
    STATE_SCHEMA,
    TABLES,
    Commit,
    Effect,
    PartState,
    TableFile,
    Warehouse,
    no_op,
)

# One Delta table: its versions, commits of files that tasks have stored, compaction and vacuum.
#
# Every commit carries a transaction id of Delta (`txn`) with the number of the pipeline's commit. Delta
# refuses the second of two commits with the same id that begin at the same version, and so does this module
# for a number that the table already has.

APP_ID: Final = "tierctl-pipeline"
NUMBER_KEY: Final = "tierctl.commit"
"""The key of the pipeline's commit number in the history of a table."""

KEPT_HOURS: Final = 24
"""How long old files and versions of a table stay readable."""

_REFUSED: Final = ("AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|\u21b3|^\s+0: .*", re.MULTILINE | re.DOTALL)
_CONFIGURATION: Final = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where the tables are: `uri` of the warehouse without a final `/`, and how to reach its store.

    `options` returns deltalake's settings of the store, which may contain credentials: they are asked for
    when they are used, and stored nowhere. `synced` makes files durable that deltalake wrote, given their
    keys in the warehouse.
    """

    uri: str
    options: Callable[[], dict[str, str]]
    synced: Callable[[Sequence[str]], None]


class LakeTable:
    """A Delta table of the warehouse, at the version of the last `refresh` or commit."""

    def __init__(self, place: TablePlace, name: str, schema: pa.Schema) -> None:
        self.name = name
        self._place = place
        self._schema = schema
        self._options: dict[str, str] = {}
        self._table: DeltaTable | None = None

    def create(self) -> None:
        """Create the table without rows if it does not exist."""

        with translated(f"creating table {self.name}"):
            DeltaTable.create(
                f"{self._place.uri}/{self.name}",
                Schema.from_arrow(self._schema),
                mode="ignore",
                name=self.name,
                configuration=dict(_CONFIGURATION),
                storage_options=self._place.options(),
            )
        self._place.synced([self._log_key(0)])

    def refresh(self) -> bool:
        """Read the newest version; return False if the table does not exist."""

        options = self._place.options()
        with translated(f"reading table {self.name}"):
            if self._table is not None and options == self._options:
                self._table.update_incremental()
                return True
            # Credentials that expire are renewed by opening the table again.
            try:
                self._table = DeltaTable(f"{self._place.uri}/{self.name}", storage_options=options)
            except TableNotFoundError:
                return False
        self._options = options
        return True

    @property
    def opened(self) -> DeltaTable:
        """Return the table at the version that was last read."""
        if self._table is None:
            raise RemoteStorageError(f"table {self.name} is not in the warehouse")
        return self._table

    def number(self) -> int:
        """Return the number of the pipeline's last commit in this table; 0 before the first."""
        return self.opened.transaction_version(APP_ID) or 0

    def paths(self) -> set[str]:
        """Return the paths of the table's files."""
        return set(self._files().column("path").to_pylist())

    def paths_of(self, metadata_partition: int) -> list[str]:
        """Return the paths of the files that may have rows of the metadata partition."""
        files = self._files()
        if "min.metadata_partition" not in files.column_names:
            return sorted(files.column("path").to_pylist())
        columns = ("path", "min.metadata_partition", "max.metadata_partition")
        rows = zip(*(files.column(name).to_pylist() for name in columns), strict=True)
        return sorted(
            path
            for path, low, high in rows
            if low is None or high is None or low <= metadata_partition <= high
        )

    def _files(self) -> pa.Table:
        return _arrow(self.opened.get_add_actions(flatten=True))

    def rows(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return all rows with the columns."""
        with translated(f"reading table {self.name}"):
            found: list[dict[str, Any]] = _arrow(self.opened.scan(columns=list(columns))).to_pylist()
            return found

    def commit(self, number: int, adds: Sequence[TableFile], removes: Sequence[str]) -> None:
        """Add stored files and remove others in one version of the table, as commit `number`.

        Raise LockedError if another program has committed the number, or has removed one of the files.
        """

        if self.number() >= number:
            raise LockedError(
                f"another pipeline made commit {number} of this warehouse",
                hint="wait for it to end, then run again",
            )
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values={},
                modification_time=now_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in adds
        ]
        actions += [
            RemoveAction(path=path, data_change=True, deletion_timestamp=now_ms, partition_values={})
            for path in removes
        ]
        with translated(f"commit {number} of table {self.name}"):
            self.opened.create_write_transaction(
                actions, "append", self._schema, commit_properties=_properties(number)
            )
            self.opened.update_incremental()
        self._place.synced([self._log_key(self.opened.version())])

    def compact(self, target_bytes: int) -> None:
        """Combine files that are smaller than `target_bytes` into files of about that size."""
        before = self.paths()
        with translated(f"compacting table {self.name}"):
            self.opened.optimize.compact(target_size=target_bytes)
        added = sorted(self.paths() - before)
        if added:
            self._place.synced(
                [*(f"{self.name}/{path}" for path in added), self._log_key(self.opened.version())]
            )

    def vacuum(self, hours: int = KEPT_HOURS) -> None:
        """Delete files that have been in no version for KEPT_HOURS, and those of killed runs."""
        with translated(f"vacuum of table {self.name}"):
            self.opened.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _log_key(self, version: int) -> str:
        return f"{self.name}/_delta_log/{version:020d}.json"


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise deltalake's errors as tierctl's, with `doing` as context.

    A commit that another program's commit excludes raises LockedError.
    """

    try:
        yield
    except TableNotFoundError:
        raise
    except CommitFailedError as e:
        raise LockedError(
            f"{doing}: another program changed the table at the same time ({_one_line(e)})",
            hint="wait for it to end, then run again",
        ) from e
    except (DeltaError, OSError) as e:
        text = f"{doing}: {_one_line(e)}"
        if any(word in text for word in _REFUSED):
            raise AuthenticationError(
                text,
                hint="check which rights the credentials of the environment have on the bucket",
            ) from e
        raise RemoteStorageError(
            text, hint="run again; if the error repeats, the table is damaged: use a new --warehouse"
        ) from e


def _one_line(error: Exception) -> str:
    """Return the message without colours, line breaks and the stack of the Rust library."""
    return " ".join(_DECORATION.sub(" ", str(error)).split())


def _arrow(stream: Any) -> pa.Table:
    """Return the rows of an Arrow stream; `pa.table` would import pandas."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


def _properties(number: int) -> CommitProperties:

    return CommitProperties(
        custom_metadata={NUMBER_KEY: str(number)}, app_transactions=[Transaction(APP_ID, number)]
    )


COMPACT_EVERY: Final = 16
"""After so many commits, small files of `events` are combined and unused files are deleted."""

_SMALL_FILE_BYTES, _LARGE_FILE_BYTES = 8 << 20, 128 << 20
_ATTEMPTS: Final = 3
_STATE_COLUMNS: Final = tuple(name for name in STATE_SCHEMA.names if not name.startswith("snapshot"))


def latest_commit(state: LakeTable) -> Commit:
    """Return the last commit in the table `state`; its number is 0 before the first."""
    try:
        rows = state.rows(_STATE_COLUMNS)
        parts = {int(row["metadata_partition"]): PartState.of_row(row) for row in rows}
    except (KeyError, TypeError, pa.ArrowException) as e:
        raise CorruptInputError(
            "state table",
            expected="rows of this version",
            found=f"{type(e).__name__}: {e}",
            source=STATE,
            hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
        ) from e
    return Commit(number=state.number(), parts=parts)


class Commits:
    """The commits of a warehouse that this run holds; `effect` is called with a label before each change."""

    def __init__(
        self, warehouse: Warehouse, schemas: Mapping[str, pa.Schema], effect: Effect = no_op
    ) -> None:
        self._warehouse = warehouse
        self._effect = effect
        place = TablePlace(warehouse.tables_uri, warehouse.table_options, warehouse.synced)
        self._state = LakeTable(place, STATE, STATE_SCHEMA)
        self._tables = {name: LakeTable(place, name, schemas[name]) for name in TABLES}

    def begin(self) -> None:
        """Open the tables; create those that do not exist.

        Raise UsageError if the location has other content.
        """
        if not self._state.refresh():
            self._require_free()
            # `state` is created first: it marks a location whose other tables do not exist yet.
            self._create(self._state)
        for table in self._tables.values():
            if not table.refresh():
                self._create(table)

    def _create(self, table: LakeTable) -> None:
        self._effect(f"warehouse.create.{table.name}")
        table.create()
        table.refresh()

    def _require_free(self) -> None:
        others = [key for key in self._warehouse.keys("") if not key.startswith(f"{STATE}/_delta_log/")]
        if others:
            raise UsageError(
                f"--warehouse is not empty and not a warehouse: it has {others[0]}",
                hint="name a new folder, or a warehouse",
            )

    def latest(self) -> Commit:
        """Return the last commit; its number is 0 before the first."""
        return latest_commit(self._state)

    def commit(self, commit: Commit, before: Commit) -> None:
        """Make `commit`, which follows `before`; raise LockedError if another run made it."""
        adds = self._state_files(commit)
        kept = {part.path for part in commit.parts.values()}
        removes = sorted({part.path for part in before.parts.values()} - kept)
        self._begin("warehouse.commit")
        try:
            self._state.commit(commit.number, adds, removes)
        except LockedError:
            # If the store's response was lost, the retried request finds the commit of its first attempt,
            # which is this run's own.
            self._state.refresh()
            if not adds or not self._state.paths().issuperset(file.path for file in adds):
                raise
        self.finish(commit)
        # No reader needs the previous folded state, which is the largest file of a commit: delete it.
        self._effect("warehouse.clean")
        self._warehouse.delete([f"{STATE}/{path}" for path in removes])

    def _state_files(self, commit: Commit) -> list[TableFile]:
        """Return the files of the rows of `state` that the commit changes."""
        names = [part.path for part in commit.parts.values() if part.batch == commit.number]
        sizes = self._warehouse.sizes_bytes([f"{STATE}/{name}" for name in names]) if names else {}
        missing = sorted({f"{STATE}/{name}" for name in names} - sizes.keys())
        if missing:
            raise _missing(missing)
        return [
            TableFile(
                table=STATE, path=name, size_bytes=sizes[f"{STATE}/{name}"], rows=1, stats='{"numRecords":1}'
            )
            for name in names
        ]

    def finish(self, commit: Commit) -> None:
        """Let the tables follow the commit, as far as they have not; a repeated call changes nothing."""
        for name, table in self._tables.items():
            if table.number() < commit.number:
                self._follow(name, table, commit)

    def _follow(self, name: str, table: LakeTable, commit: Commit) -> None:
        files = {file.path: file for file in commit.files(name)}
        for attempt in range(1, _ATTEMPTS + 1):
            present = table.paths()
            adds = [file for path, file in files.items() if path not in present]
            removes = [] if name == EVENTS else sorted(present - files.keys())
            if not adds and not removes:
                return
            missing = self._missing_files(adds)
            if missing and name in REPLACED:
                # `lost` reports the metadata partitions of these files, and the next step writes the files
                # again.
                return
            if missing:
                raise _missing(missing)
            self._begin(f"warehouse.follow.{name}")
            try:
                table.commit(commit.number, adds, removes)
            except LockedError:
                # Another program may compact the table at the same time, which changes no row.
                table.refresh()
                if table.number() < commit.number and attempt == _ATTEMPTS:
                    raise
            if table.number() >= commit.number:
                return

    def _missing_files(self, files: list[TableFile]) -> list[str]:
        keys = sorted(file.key for file in files)
        return sorted(set(keys) - self._warehouse.sizes_bytes(keys).keys()) if keys else []

    def require_stored(self, commit: Commit) -> None:
        """Raise RemoteStorageError if this process does not see the files that tasks stored for a commit."""
        parts = [part for part in commit.parts.values() if part.batch == commit.number]
        stored = f"-{commit.number}-"
        missing = self._missing_files([f for part in parts for f in part.files if stored in f.path])
        if missing:
            raise _missing(missing)

    def refresh(self, commit: Commit) -> None:
        """Read the newest version of all tables; raise LockedError if `commit` is no longer the last one."""
        for table in (self._state, *self._tables.values()):
            table.refresh()
        if self._state.number() != commit.number:
            raise LockedError(
                f"another pipeline made commit {self._state.number()} of this warehouse",
                hint="wait for it to end, then run again",
            )

    def lost(self, commit: Commit) -> set[int]:
        """Return the metadata partitions of which a table lacks a file: another program changed it."""
        lost: set[int] = set()
        for name in REPLACED:
            present = self._tables[name].paths()
            lost |= {n for n, part in commit.parts.items() if {f.path for f in part.files_of(name)} - present}
        return lost

    def history(self, metadata_partition: int) -> tuple[str, ...]:
        """Return the keys of the files of `events` that may have events of the metadata partition."""
        paths = self._tables[EVENTS].paths_of(metadata_partition)
        return tuple(f"{EVENTS}/{path}" for path in paths)

    def maintain(self, number: int) -> None:
        """Combine small files of `events`, and delete unused files of all tables, in every 16th commit.

        Files grow in two sizes, so that an event is rewritten only a few times.
        """
        if number % COMPACT_EVERY:
            return
        is_large = number % (COMPACT_EVERY * COMPACT_EVERY) == 0
        self._begin("warehouse.compact")
        self._tables[EVENTS].compact(_LARGE_FILE_BYTES if is_large else _SMALL_FILE_BYTES)
        self._begin("warehouse.vacuum")
        for table in self._tables.values():
            table.vacuum()
        self._state.vacuum(0)

    def _begin(self, effect: str) -> None:
        """Name the side effect that follows; LockedError if the lease is lost."""
        if self._warehouse.is_lost():
            raise LockedError(
                "the lease of this warehouse was lost: the run stops writing",
                hint="another pipeline may have the lease now; run again once it has ended",
            )
        self._effect(effect)


def require_same_topic(commit: Commit, topic_id: str | None, metadata_partitions: int) -> None:
    """Raise SafetyRefusal if the commit is of another metadata topic, or of another number of partitions."""
    part = next(iter(commit.parts.values()), None)
    if part is None:
        return
    if part.topic_id is not None and topic_id not in {None, part.topic_id}:
        raise SafetyRefusal(
            f"the warehouse is of metadata topic {part.topic_id}, not {topic_id}",
            hint="use another --warehouse",
        )
    if part.metadata_partitions != metadata_partitions:
        raise SafetyRefusal(
            f"the metadata topic has {metadata_partitions} partitions, "
            f"but had {part.metadata_partitions} when the warehouse was made",
            hint="earlier events are in partitions where lookups no longer find them; use a new --warehouse",
        )


def _missing(keys: list[str]) -> RemoteStorageError:
    return RemoteStorageError(
        f"{len(keys)} files that executors stored are missing in the warehouse, {keys[0]} for one",
        hint="executors must reach --warehouse under the same name: a shared folder, or s3://",
    )
