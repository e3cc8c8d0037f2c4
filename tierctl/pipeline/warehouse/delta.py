"""One Delta table: its versions, commits of files that tasks have stored, compaction and vacuum.

Every commit carries a transaction id of Delta (`txn`) with the number of the pipeline's commit. Delta refuses
the second of two commits with the same id that begin at the same version, and so does this module for a
number that the table already has.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tierctl.errors import AuthenticationError, LockedError, RemoteStorageError
from tierctl.pipeline.warehouse.layout import TableFile

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
