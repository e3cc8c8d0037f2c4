"""Commits over all tables of a warehouse, although a transaction of Delta changes one table only.

1. Tasks store files, which no table refers to yet.
2. The commit is made: one transaction of the table `commits` replaces its row. Its transaction ids are the
   commit's number and, of a batch of Spark's stream, the stream and the batch. The row has the processed
   offsets and the names of the files by which the commit changes the tables.
3. The tables follow, each by one transaction with the commit's number.

A run that is killed before step 2 leaves files to which nothing refers, and `vacuum` deletes them. After a
run that is killed later, the next run first repeats step 3 for the tables that lack the commit, and a batch
that Spark repeats is known by its number. Neither reads events nor writes files, so that each event is in
`events` once, and so that the fold continues from rows of whole commits.

Of two runs that make the same commit at the same time, Delta lets one pass step 2, and the other ends with
LockedError before it has changed a table.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LockedError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    UsageError,
    hint_of,
)
from tierctl.files import TEMP_SUFFIX
from tierctl.model.checked_values import require_no_newer
from tierctl.model.selection import counted
from tierctl.pipeline.tables import SCHEMAS
from tierctl.pipeline.warehouse import (
    BUCKET,
    COMMITS,
    COMMITS_SCHEMA,
    EVENTS,
    TABLES,
    VERSION,
    VERSION_COLUMN,
    Commit,
    Effect,
    TableFile,
    Warehouse,
    bytes_of,
    read_file,
    stored_file,
    write_rows,
)
from tierctl.storage.stores.base import delete_all

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

_WRITER_VERSION_MAX = 7
_FEATURES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "timestampNtz",
}
"""Writer features of Delta under which a file that no version has is unused."""

_REFUSED: Final = ("AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
_NOT_WRITABLE: Final = (
    *("Unsupported table features", "Unsupported: Feature", "Table features must be specified"),
    *("is append-only", "does not support writer version", "does not support reader version"),
)
_OS_ERROR: Final = re.compile(r"\(os error ([0-9]+)\)")
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|\u21b3|^\s+0: .*", re.MULTILINE | re.DOTALL)
_OF_A_TABLE: Final = re.compile(rf"(?:{BUCKET.name}=[0-9]+/)?part-[0-9a-z.-]+\.parquet(?:{TEMP_SUFFIX})?")
"""The paths that files of a table have, whether tierctl or another writer of Delta named them."""

_CONFIGURATION: Final = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
}

_RESTORE, _DELETE = "RESTORE", "DELETE"


def _remedy(table: str) -> str:
    return (
        f"restore the last version of {table} that has {NUMBER_KEY} in its history (DeltaTable.restore), and "
        "run again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """What a version of a table does to its rows.

    `number` is that of the pipeline's commit, if it is one, and `restored` the version that it restores.
    """

    operation: str
    number: int | None
    restored: int | None
    changes_rows: bool

    @classmethod
    def of(cls, log: bytes, source: str) -> Self:
        """Return what a file of Delta's log says, which has an action in each line.

        Delta's protocol: `dataChange` is false if an action only moves rows from file to file.
        """
        try:
            actions = [json.loads(line) for line in log.splitlines() if line.strip()]
            info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            own = [each["txn"] for each in actions if "txn" in each and each["txn"]["appId"] == APP_ID]
            files = [each[kind] for each in actions for kind in ("add", "remove") if kind in each]
            operation, given = str(info.get("operation")), info.get("operationParameters") or {}
            is_restored = operation == _RESTORE and given.get("version") is not None
            return cls(
                operation=operation,
                number=own[0]["version"] if own else None,
                restored=int(given["version"]) if is_restored else None,
                changes_rows=any(file["dataChange"] for file in files),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptInputError(
                "log of a table",
                expected="an action of Delta in each line",
                found=f"{type(e).__name__}: {e}",
                source=source,
                hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
            ) from e


class LakeTable:
    """A Delta table of the warehouse, at the version of the last `refresh` or commit."""

    def __init__(self, warehouse: Warehouse, name: str, schema: pa.Schema) -> None:
        self.name = name
        self._warehouse = warehouse
        self._schema = schema
        self._divided_by = [BUCKET.name] if BUCKET in schema else []
        self._options: dict[str, str] = {}
        self._table: DeltaTable | None = None
        self._checked = -1

    def create(self) -> None:
        """Create the table without rows if it does not exist."""

        with translated(f"creating table {self.name}"):
            DeltaTable.create(
                f"{self._warehouse.tables_uri}/{self.name}",
                Schema.from_arrow(self._schema),
                mode="ignore",
                partition_by=self._divided_by,
                name=self.name,
                configuration=dict(_CONFIGURATION),
                storage_options=self._warehouse.table_options(),
            )
        self._warehouse.synced([self._log_key(0)])

    def refresh(self) -> bool:
        """Read the newest version; return False if the table does not exist.

        Raise SafetyRefusal if it does not have the rows of the pipeline's last commit: the fold would go on
        from others.
        """
        found = self._refreshed()
        if found:
            self._require_rows_of_commit()
        return found

    def _refreshed(self) -> bool:
        options = self._warehouse.table_options()
        with translated(f"reading table {self.name}"):
            if self._table is not None and options == self._options:
                self._table.update_incremental()
                return True
            # Credentials that expire are renewed by opening the table again.
            try:
                uri = f"{self._warehouse.tables_uri}/{self.name}"
                self._table = DeltaTable(uri, storage_options=options)
            except TableNotFoundError:
                return False
        self._options = options
        return True

    def _require_rows_of_commit(self) -> None:
        newest = self.opened.version()
        if newest == self._checked:
            return
        number, found = self.number(), self._number_of_rows(newest)
        if found not in {None, number}:
            raise SafetyRefusal(
                f"table {self.name} has the rows of commit {found}, and commit {number} was made: another "
                "program restored an earlier version",
                hint=_remedy(self.name),
            )
        self._checked = newest

    def _number_of_rows(self, newest: int) -> int | None:
        """Return the number of the commit whose rows the version `newest` has; None if no log tells it.

        A log is kept for KEPT_HOURS. Raise SafetyRefusal if another program changed rows since that commit;
        it may DELETE those of `events`, from which no fold goes on.
        """
        at = newest
        while at >= 0:
            version = self._logged(at)
            if version is None or version.number is not None:
                return None if version is None else version.number
            if version.restored is not None:
                at = min(version.restored, at - 1)
                continue
            if version.changes_rows and (self.name, version.operation) != (EVENTS, _DELETE):
                raise SafetyRefusal(
                    f"another program changed rows of table {self.name}: version {at}, {version.operation}",
                    hint=_remedy(self.name),
                )
            at -= 1
        return 0

    def _logged(self, version: int) -> _Version | None:
        """Return what a version does; None if its log was deleted."""
        key = self._log_key(version)
        try:
            return _Version.of(bytes_of(self._warehouse.store, key), key)
        except RemoteResourceNotFound:
            return None

    @property
    def opened(self) -> DeltaTable:
        """Return the table at the version that was last read."""
        if self._table is None:
            raise RemoteStorageError(f"table {self.name} is not in the warehouse")
        return self._table

    def number(self) -> int:
        """Return the number of the pipeline's last commit in this table; 0 before the first."""
        return self.opened.transaction_version(APP_ID) or 0

    def paths(self) -> dict[int, list[str]]:
        """Return the paths of the table's files by bucket; all are in bucket 0 of a table that has none."""
        files = _arrow(self.opened.get_add_actions(flatten=True))
        paths = files.column("path").to_pylist()
        buckets = (
            files.column(f"partition.{BUCKET.name}").to_pylist() if self._divided_by else [0] * len(paths)
        )
        found: dict[int, list[str]] = {}
        for bucket, path in sorted(zip(buckets, paths, strict=True)):
            found.setdefault(bucket, []).append(path)
        return found

    def _row_counts(self) -> dict[str, int]:
        files = _arrow(self.opened.get_add_actions())
        counts = zip(files["path"].to_pylist(), files["num_records"].to_pylist(), strict=True)
        # Another program may combine files without Delta's statistics.
        return {path: self._rows_in(path) if count is None else count for path, count in counts}

    def _rows_in(self, path: str) -> int:
        any_column = pa.schema([self._schema.field("metadata_partition")])
        return int(read_file(self._warehouse.store, self.name, path, any_column).num_rows)

    def require_rows_of(self, commit: Commit) -> dict[str, int]:
        """Return the number of rows of each of the table's files by path.

        Raise SafetyRefusal if the table, which follows the commit, has another number of rows: this finds a
        change whose log was deleted. Another program may delete rows of `events`. Raise it as well if the
        table is ahead of the commit: it would not follow the next one.
        """
        if self.number() > commit.number:
            raise SafetyRefusal(
                f"table {self.name} has commit {self.number()}, and {COMMITS} only commit {commit.number}: "
                "the warehouse was copied during a commit, or restored in parts",
                hint="put back all of it as it was at one time, or name a new --warehouse",
            )
        counts = self._row_counts()
        expected, found = commit.rows.get(self.name, 0), sum(counts.values())
        if found > expected or (found < expected and self.name != EVENTS):
            raise SafetyRefusal(
                f"another program changed rows of table {self.name}: it has {found} rows, and commit "
                f"{commit.number} left {expected}",
                hint=f"{_remedy(self.name)}; if there is none, name a new --warehouse",
            )
        return counts

    def lacks(self, files: Iterable[TableFile]) -> bool:
        """Return whether another program removed one of the files."""
        present = set(chain(*self.paths().values()))
        return any(file.path not in present for file in files)

    def rows(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return all rows with the columns."""
        with translated(f"reading table {self.name}"):
            found: list[dict[str, Any]] = _arrow(self.opened.scan(columns=list(columns))).to_pylist()
            return found

    def commit(
        self, number: int, adds: Sequence[TableFile], removes: Sequence[TableFile], *others: Transaction
    ) -> None:
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
                partition_values=self._partition_of(file),
                modification_time=now_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in adds
        ]
        actions += [
            RemoveAction(
                path=file.path,
                data_change=True,
                deletion_timestamp=now_ms,
                partition_values=self._partition_of(file),
            )
            for file in removes
        ]
        properties = CommitProperties(
            custom_metadata={NUMBER_KEY: str(number)},
            app_transactions=[Transaction(APP_ID, number), *others],
            # A repeated try would also succeed if another program had replaced the removed files.
            max_commit_retries=0,
        )
        with translated(f"commit {number} of table {self.name}"):
            self.opened.create_write_transaction(
                actions, "append", self._schema, self._divided_by, commit_properties=properties
            )
            self.opened.update_incremental()
        self._sync()

    def _sync(self, paths: Iterable[str] = ()) -> None:
        """Make files of the table durable, and the log of its version, with Delta's checkpoint if it has one.

        Delta deletes the logs before a checkpoint.
        """
        log = self._log_key(self.opened.version())
        checkpoint = log.replace(".json", ".checkpoint.parquet")
        self._warehouse.synced([*(f"{self.name}/{path}" for path in paths), log, checkpoint])

    def _partition_of(self, file: TableFile) -> dict[str, str | None]:
        return {name: str(file.bucket) for name in self._divided_by}

    def compact(self, target_bytes: int) -> None:
        """Combine files that are smaller than `target_bytes` into files of about that size."""
        before, rows = set(chain(*self.paths().values())), sum(self._row_counts().values())
        with translated(f"compacting table {self.name}"):
            self.opened.optimize.compact(target_size=target_bytes)
            if sum(self._row_counts().values()) != rows:
                # Delta lets two programs combine the same files: each of their rows is there twice then.
                self.opened.restore(self.opened.version() - 1)
        added = sorted(set(chain(*self.paths().values())) - before)
        if added:
            self._sync(added)

    def vacuum(self) -> None:
        """Delete files that have long been in no version, and those of killed runs.

        The table's property says how long: KEPT_HOURS unless an operator changed it. Delta only names the
        files: it would also delete those that are no table's, and those behind a link. Nothing is deleted
        from a table with a feature that may give files another meaning.
        """
        protocol = self.opened.protocol()
        if (
            protocol.min_writer_version > _WRITER_VERSION_MAX
            or {*(protocol.writer_features or ())} - _FEATURES
        ):
            return
        with translated(f"vacuum of table {self.name}"):
            unused = self.opened.vacuum(dry_run=True, enforce_retention_duration=False, full=True)
        keys = [f"{self.name}/{path}" for path in unused if _OF_A_TABLE.fullmatch(path)]
        if keys:
            delete_all(self._warehouse.store, keys)

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
    except (DeltaError, OSError) as e:
        text = f"{doing}: {_one_line(e)}"
        if any(words in text for words in _NOT_WRITABLE):
            raise RemoteStorageError(
                text,
                hint="another program set a property or a feature of the table that deltalake does not write "
                "with: set it back (delta.appendOnly to false, ALTER TABLE ... DROP FEATURE), and run again",
            ) from e
        if isinstance(e, CommitFailedError):
            raise LockedError(
                f"{doing}: another program changed the table at the same time ({_one_line(e)})",
                hint="wait for it to end, then run again",
            ) from e
        if any(word in text for word in _REFUSED):
            raise AuthenticationError(
                text,
                hint="check which rights the credentials of the environment have on the bucket",
            ) from e
        number = _OS_ERROR.search(text)
        remedy = None if number is None else hint_of(OSError(int(number[1]), ""))
        again = "run again; if the error repeats, the table is damaged: use a new --warehouse"
        raise RemoteStorageError(text, hint=remedy or again) from e


def _one_line(error: Exception) -> str:
    """Return the message without colours, line breaks and the stack of the Rust library."""
    return " ".join(_DECORATION.sub(" ", str(error)).split())


def _arrow(stream: Any) -> pa.Table:
    """Return the rows of an Arrow stream; `pa.table` would import pandas."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


COMPACT_EVERY: Final = 16
"""After so many commits, small files of `events` are combined and unused files are deleted."""

_SMALL_FILE_BYTES, _LARGE_FILE_BYTES = 8 << 20, 128 << 20
_ATTEMPTS: Final = 3


def latest_commit(commits: LakeTable) -> Commit:
    """Return the last commit in the table `commits`; its number is 0 before the first.

    Raise CorruptInputError for a row of another form, and SafetyRefusal for that of a newer tierctl, and if
    there is not only that commit's.
    """
    try:
        for row in commits.rows([VERSION_COLUMN]):
            require_no_newer(f"table {COMMITS}", row[VERSION_COLUMN], VERSION, "--warehouse")
        rows = [Commit.of_row(row) for row in commits.rows(COMMITS_SCHEMA.names)]
    except (KeyError, TypeError, pa.ArrowException) as e:
        raise CorruptInputError(
            f"table {COMMITS}",
            expected="a row of this version",
            found=f"{type(e).__name__}: {e}",
            source=COMMITS,
            hint="the warehouse is damaged: use a new one, which reads the whole metadata topic",
        ) from e
    found, number = [row.number for row in rows], commits.number()
    if found != ([number] if number else []):
        raise SafetyRefusal(
            f"another program changed rows of table {COMMITS}: expected commit {number}, found {found}",
            hint=_remedy(COMMITS),
        )
    return rows[0] if rows else Commit()


class Commits:
    """The commits of a warehouse that this run holds; `effect` is called with a label before each change."""

    def __init__(self, warehouse: Warehouse, effect: Effect) -> None:
        self._warehouse = warehouse
        self._effect = effect
        self._commits = LakeTable(warehouse, COMMITS, COMMITS_SCHEMA)
        self._tables = {name: LakeTable(warehouse, name, SCHEMAS[name]) for name in TABLES}
        self._row_counts: dict[str, dict[str, int]] = {}
        """What `require_rows_of` counted last: of each table the rows of each file."""

    def begin(self) -> None:
        """Open the tables; create those that do not exist.

        Raise UsageError if the location has other content, and SafetyRefusal if a table of earlier commits is
        missing: its rows would be lost without a word.
        """
        if not self._commits.refresh():
            self._require_free()
            # `commits` is created first: it marks a location whose other tables do not exist yet.
            self._create(self._commits)
        for table in self._tables.values():
            if table.refresh():
                continue
            if self._commits.number() > 0:
                raise SafetyRefusal(
                    f"table {table.name} is not in the warehouse, in which {COMMITS} has commit "
                    f"{self._commits.number()}",
                    hint="put the table back, or name a new --warehouse, which reads the whole topic",
                )
            self._create(table)

    def _create(self, table: LakeTable) -> None:
        self._effect(f"warehouse.create.{table.name}")
        table.create()
        table.refresh()

    def _require_free(self) -> None:
        others = [key for key in self._warehouse.keys("") if not key.startswith(f"{COMMITS}/_delta_log/")]
        if others:
            raise UsageError(
                f"--warehouse is not empty and not a warehouse: it has {others[0]}",
                hint="name a new folder, or a warehouse",
            )

    def latest(self) -> Commit:
        """Return the last commit; its number is 0 before the first."""
        return latest_commit(self._commits)

    def files(self, table: str) -> dict[int, list[str]]:
        """Return the paths of the files of a table by bucket."""
        return self._tables[table].paths()

    def has_all_events(self, commit: Commit) -> bool:
        """Return whether `events` has all rows that commits up to this one, the last, added."""
        return sum(self._row_counts[EVENTS].values()) == commit.rows.get(EVENTS, 0)

    def rows_after(
        self, before: Commit, added: Sequence[TableFile], removed: Sequence[TableFile]
    ) -> dict[str, int]:
        """Return the number of rows of each table after a commit that follows `before`."""
        rows = {name: before.rows.get(name, 0) for name in self._tables}
        for file in added:
            rows[file.table] += file.rows
        for file in removed:
            rows[file.table] -= self._row_counts[file.table].get(file.path, 0)
        return rows

    def commit(self, commit: Commit, *, is_batch: bool) -> None:
        """Make a commit, which follows the latest one; raise LockedError if another run made it.

        With `is_batch` it is the batch of a stream that it names.
        """
        self._require_unchanged(commit)
        own = self._store(commit)
        self._commits.refresh()
        before = [TableFile(table=COMMITS, bucket=0, path=path) for path in self._commits.paths().get(0, ())]
        others = [Transaction(str(commit.query), commit.batch)] if is_batch else []
        self._begin("warehouse.commit")
        try:
            self._commits.commit(commit.number, [own], before, *others)
        except LockedError:
            # If the store's response was lost, the retried request finds the commit of its first attempt,
            # which is this run's own.
            self._commits.refresh()
            if own.path not in self._commits.paths().get(0, ()):
                raise
        self.finish(commit)

    def _store(self, commit: Commit) -> TableFile:
        """Store the row of a commit."""
        with TemporaryDirectory(prefix="tierctl-pipeline-") as folder:
            path = Path(folder, "commit.parquet")
            rows = pa.RecordBatch.from_pylist([commit.row()], schema=COMMITS_SCHEMA)
            write_rows(path, COMMITS_SCHEMA, [rows])
            return stored_file(self._warehouse.store, path, COMMITS, 0, commit.path)

    def _require_unchanged(self, commit: Commit) -> None:
        """Raise LockedError for a file that another program removed, RemoteStorageError without a new one."""
        for name, table in self._tables.items():
            table.refresh()
            if table.lacks(file for file in commit.removed if file.table == name):
                raise LockedError(
                    f"another program changed table {name} at the same time",
                    hint="run again once it has ended",
                )
        missing = self._missing(commit.added)
        if missing:
            raise RemoteStorageError(
                f"{counted(len(missing), 'file')} that executors stored not found in the warehouse, "
                f"{missing[0]} for one",
                hint="executors must reach --warehouse under the same name: a shared folder, or s3://",
            )

    def _missing(self, files: Iterable[TableFile]) -> list[str]:
        """Return the keys of the files that are not in the warehouse."""
        keys = {f"{file.table}/{file.path}" for file in files}
        return sorted(keys - self._warehouse.store.sizes_bytes(sorted(keys)).keys()) if keys else []

    def finish(self, commit: Commit) -> None:
        """Let the tables follow the commit, as far as they have not; a repeated call changes nothing.

        Raise SafetyRefusal if, since it was made, another program combined files that the commit removes, or
        deleted files that it adds: a vacuum does that after a day, as no table refers to them yet.
        """
        behind = {name: table for name, table in self._tables.items() if table.number() < commit.number}
        missing = self._missing(file for file in commit.added if file.table in behind)
        if missing:
            raise SafetyRefusal(
                f"commit {commit.number} is not complete, and {len(missing)} of the files that it adds are "
                f"gone, {missing[0]} for one: another program deleted them",
                hint="put them back from a backup, or name a new --warehouse, which reads the whole topic",
            )
        for name, table in behind.items():
            self._follow(name, table, commit)

    def _follow(self, name: str, table: LakeTable, commit: Commit) -> None:
        adds = [file for file in commit.added if file.table == name]
        removes = [file for file in commit.removed if file.table == name]
        if not adds and not removes:
            return
        for attempt in range(1, _ATTEMPTS + 1):
            if table.lacks(removes):
                raise SafetyRefusal(
                    f"another program replaced files of table {name} before commit {commit.number} was "
                    "complete: each of their rows would be there twice",
                    hint=_remedy(name),
                )
            self._begin(f"warehouse.follow.{name}")
            try:
                table.commit(commit.number, adds, removes)
            except LockedError:
                # Another program may change other files of the table at the same time.
                table.refresh()
                if table.number() < commit.number and attempt == _ATTEMPTS:
                    raise
            if table.number() >= commit.number:
                return

    def refresh(self, commit: Commit) -> None:
        """Read the newest version of all tables; raise LockedError if `commit` is no longer the last one.

        Raise SafetyRefusal as `require_rows_of`.
        """
        for table in (self._commits, *self._tables.values()):
            table.refresh()
        if self._commits.number() != commit.number:
            raise LockedError(
                f"another pipeline made commit {self._commits.number()} of this warehouse",
                hint="wait for it to end, then run again",
            )
        self.require_rows_of(commit)

    def require_rows_of(self, commit: Commit) -> None:
        """Raise SafetyRefusal if a table has not as many rows as `commit`, which all follow, states."""
        self._row_counts = {name: table.require_rows_of(commit) for name, table in self._tables.items()}

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
        for table in (self._commits, *self._tables.values()):
            table.vacuum()

    def _begin(self, effect: str) -> None:
        """Name the side effect that follows; LockedError if the lease is lost."""
        if self._warehouse.is_lost():
            raise LockedError(
                "the lease of this warehouse was lost: the run stops writing",
                hint="another pipeline may have the lease now; run again once it has ended",
            )
        self._effect(effect)
