"""The commits of a warehouse: making a commit, showing it in the tables, and deleting stale files."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from tierctl.errors import CorruptInputError, LockedError, SafetyRefusal, UsageError
from tierctl.pipeline.warehouse.base import (
    COMMITS,
    COMMITS_KEPT,
    DATA,
    EMPTY,
    EVENTS,
    FORMAT,
    MARKER,
    PUBLISHED,
    TABLES,
    Commit,
    Published,
    Warehouse,
    empty_key,
)

Effect = Callable[[str], None]
_NUMBER_DIGITS: Final = 12
_BEGUN: Final = (DATA, f"{EVENTS}/batch=0/", "_new/", MARKER)
"""The beginnings of keys that a run may leave that was killed before the warehouse was ready."""


def no_op(_label: str) -> None:
    """Do nothing: used when no test observes the changes of the warehouse."""


class Ledger:
    """The commits of a warehouse that this run holds; `effect` is called with a label before each change."""

    def __init__(self, warehouse: Warehouse, effect: Effect = no_op) -> None:
        self._warehouse = warehouse
        self._effect = effect

    def begin(self, topic_id: str | None, metadata_partitions: int, empties: Mapping[str, bytes]) -> None:
        """Create the warehouse if it does not exist, and check that it belongs to this metadata topic.

        `empties` has a Parquet file without rows for each table. Raise UsageError if the place has other
        content, SafetyRefusal if the tables are of another topic.
        """
        raw = self._read(MARKER)
        if raw is not None:
            _check_marker(raw, topic_id, metadata_partitions)
            return
        if any(not key.startswith(_BEGUN) for key in self._warehouse.keys("")):
            raise UsageError("--warehouse holds something else", hint="name a new folder, or a warehouse")
        for table in (EVENTS, *TABLES):
            self._warehouse.put(empty_key(table), empties[table])
        self._warehouse.show_batch(0, {EMPTY: empty_key(EVENTS)})
        marker = {"format": FORMAT, "topic_id": topic_id, "metadata_partitions": metadata_partitions}
        # The marker is written last: after a crash before this point, the next run begins again.
        self._effect("warehouse.begin")
        self._warehouse.put(MARKER, (json.dumps(marker) + "\n").encode())

    def latest(self) -> Commit:
        """Return the last commit; its number is 0 if there is none."""
        numbers = [self._number_of(key) for key in self._warehouse.keys(COMMITS)]
        if not numbers:
            return Commit()
        key = _commit_key(max(numbers))
        return Commit.loads(self._warehouse.open(key).read(), key)

    def published(self) -> Published:
        """Return the commit that the tables show; its number is 0 if there is none."""
        raw = self._read(PUBLISHED)
        return Published() if raw is None else Published.loads(raw, PUBLISHED)

    def commit(self, commit: Commit) -> None:
        """Store a commit; raise LockedError if another run stored one with the same number."""
        self._effect("warehouse.commit")
        if not self._warehouse.create(_commit_key(commit.number), commit.dumps()):
            raise LockedError(
                f"another pipeline made commit {commit.number} of this warehouse",
                hint="wait for it to end, then run again",
            )

    def publish(self, commit: Commit) -> None:
        """Show a commit in the tables; resumes an attempt that was interrupted at any point."""
        before = self.published()
        if before.number == commit.number:
            return
        if commit.events:
            self._effect("warehouse.publish.events")
            self._warehouse.show_batch(commit.number, commit.events)
        for table in TABLES:
            files, shown = commit.files(table), before.tables.get(table, {})
            if files != shown:
                self._effect(f"warehouse.publish.{table}")
                self._warehouse.show_table(table, files, shown)
        self._effect("warehouse.published")
        tables = {table: commit.files(table) for table in TABLES}
        self._warehouse.put(PUBLISHED, Published(number=commit.number, tables=tables).dumps())

    def clean(self, commit: Commit) -> None:
        """Delete the files that the last, published commit does not refer to, and old commits."""
        kept = commit.keys() - set(commit.events.values()) | {empty_key(t) for t in (EVENTS, *TABLES)}
        stale = [key for key in self._warehouse.keys(DATA) if key not in kept]
        old = commit.number - COMMITS_KEPT
        stale += [key for key in self._warehouse.keys(COMMITS) if self._number_of(key) <= old]
        if stale:
            self._effect("warehouse.clean")
            self._warehouse.delete(stale)

    def _read(self, key: str) -> bytes | None:
        return self._warehouse.open(key).read() if self._warehouse.sizes_bytes([key]) else None

    @staticmethod
    def _number_of(key: str) -> int:
        name = key.removeprefix(COMMITS).removesuffix(".json")
        if not name.isdecimal():
            raise CorruptInputError("commit", expected="a number", found=name[:40], source=key)
        return int(name)


def _commit_key(number: int) -> str:
    return f"{COMMITS}{number:0{_NUMBER_DIGITS}d}.json"


def _check_marker(raw: bytes, topic_id: str | None, metadata_partitions: int) -> None:
    try:
        marker = json.loads(raw)
        kind, known, count = marker["format"], marker["topic_id"], int(marker["metadata_partitions"])
    except (ValueError, KeyError, TypeError) as e:
        raise CorruptInputError("warehouse", expected="JSON", found=str(e), source=MARKER) from e
    if kind != FORMAT:
        raise UsageError(
            f"the warehouse has format {kind}, not {FORMAT}", hint="use the tierctl that made it"
        )
    if known is not None and topic_id not in {None, known}:
        raise SafetyRefusal(
            f"the warehouse is of metadata topic {known}, not {topic_id}", hint="use another --warehouse"
        )
    if count != metadata_partitions:
        raise SafetyRefusal(
            f"the metadata topic has {metadata_partitions} partitions, "
            f"but had {count} when the warehouse was made",
            hint="earlier events are in partitions where lookups no longer find them; use a new --warehouse",
        )
