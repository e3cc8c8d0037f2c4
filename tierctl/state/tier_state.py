"""The state of the whole tier: the result of folding all events of the metadata topic, and its sizes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from tierctl.errors import CorruptInputError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import RemotePartitionDeleteMetadata, writer_text
from tierctl.model.times import iso_utc
from tierctl.state.fold_kernels import numbered
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.queries import PartitionSegments, SegmentGroups
from tierctl.state.table import SegmentTable, topics_of
from tierctl.state.table_arrays import DELETE_FINISHED, FINISHED, KIP405, NO_BROKER, NO_START, STARTED, STATES
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.decode import rows_of

Answer = TypeVar("Answer")

# Bounds the memory for a log whose events are mostly invalid.
ANOMALIES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A metadata record that cannot be used; no deletion is planned from its metadata partition."""

    metadata_partition: int
    metadata_offset: int
    error: CorruptInputError
    is_misplaced: bool = False
    """Whether it belongs in another metadata partition: it contradicts the number of partitions."""


@dataclass(frozen=True, slots=True)
class MissingEvents:
    """Events of a metadata partition that its retention deleted before they were read.

    Their offsets are [first_offset, end_offset). Without a state directory `first_offset` is 0; otherwise
    earlier events may be known.
    """

    metadata_partition: int
    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        if self.first_offset == 0:
            begins = f"metadata partition {self.metadata_partition} begins at offset {self.end_offset}"
            return f"{begins}: the events before it are gone"
        last = self.end_offset - 1
        return (
            f"the events at offsets {self.first_offset} to {last} of metadata partition "
            f"{self.metadata_partition} are gone"
        )


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A well-formed event that a broker ignores without an error.

    The current state of the segment or partition does not allow the transition, or the event updates a
    segment that does not exist.
    """

    metadata_partition: int
    metadata_offset: int
    topic_id_partition: TopicIdPartition
    event: MetadataEvent


@dataclass(frozen=True, slots=True)
class HeldState:
    """A snapshot of one metadata partition at `offset`, before the first record that was not understood."""

    offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCopies:
    """The copies of a user partition that failed since a copy last reached the offset where they begin.

    A copy failed if its segment went from COPY_SEGMENT_STARTED to DELETE_SEGMENT_STARTED, or if it stays in
    COPY_SEGMENT_STARTED while another copy was begun from the same offset. The last one of
    `attempts` began at `start_offset`, at `last_ms`, by `broker_id` (None if the event does not state it);
    the first one at `since_ms`.
    """

    attempts: int
    start_offset: int
    since_ms: int
    last_ms: int
    broker_id: int | None

    def __str__(self) -> str:
        what = f"to copy the log from offset {self.start_offset} on failed"
        first, last = iso_utc(self.since_ms), iso_utc(self.last_ms)
        by = "" if self.broker_id is None else f" by {writer_text(self.broker_id)}"
        if self.attempts == 1:
            return f"1 attempt {what}: begun at {first}{by}"
        return f"{self.attempts} attempts {what} since {first}, the last one begun at {last}{by}"


@dataclass(slots=True)
class PartitionState:
    """One user partition: its segments, under `number` in `table`, and the state of its deletion."""

    topic_id_partition: TopicIdPartition
    metadata_partition: int
    table: SegmentTable
    number: int

    @property
    def cache(self) -> RemoteLogMetadataCache:
        """Return the segments as a broker's cache."""
        return RemoteLogMetadataCache(self.table, self.number)

    @property
    def segment_count(self) -> int:
        """Return the number of segments that are not deleted."""
        return self._fact("live")

    @property
    def finished_count(self) -> int:
        """Return the number of segments in state COPY_SEGMENT_FINISHED."""
        return self._fact("finished")

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return a segment by id, in any state; None if it is unknown or deleted."""
        return self.cache.get(segment_id)

    @property
    def segments(self) -> PartitionSegments:
        """Return the segments for questions that need no object of each; fold no events meanwhile."""
        return PartitionSegments(self.table, self.number, self.table.groups)

    @property
    def last_event_offset(self) -> int:
        """Return the metadata offset of the last event; -1 if there is none."""
        return max(self._fact("last_offset"), -1)

    @property
    def lowest_start_offset(self) -> int | None:
        """Return the lowest start offset of the segments, deleted ones included, that an event added.

        Return None without any.
        """
        lowest = self._fact("lowest_start")
        return None if lowest == NO_START else lowest

    @property
    def delete_state(self) -> RemotePartitionDeleteState | None:
        """Return the state of the deletion; None without one."""
        return self.table.delete_state(self.number)

    @property
    def delete_marked_offset(self) -> int | None:
        """Return the metadata offset at which a deletion that is not finished was marked first."""
        marked = self._fact("delete_marked")
        return None if marked < 0 else marked

    @property
    def failed_copies(self) -> FailedCopies | None:
        """Return the copies that failed; None without any, and if the partition is deleted."""
        if self.delete_state is not None:
            return None
        attempts = self._fact("failed_copies")
        if attempts:
            broker_id = self._fact("failed_by")
            return FailedCopies(
                attempts=attempts,
                start_offset=self._fact("failed_start"),
                since_ms=self._fact("failed_since"),
                last_ms=self._fact("failed_last"),
                broker_id=None if broker_id == NO_BROKER else broker_id,
            )
        has_several = self.segment_count - self.finished_count > 1 and self.table.sums is None
        return self._abandoned_copies() if has_several else None

    def _abandoned_copies(self) -> FailedCopies | None:
        """Return the copies that were begun again from the same offset, without an end of the earlier ones.

        Brokers before Kafka 4 do not withdraw a copy that failed. The last attempt may still run.
        """
        segments = self.table.segments[self.table.rows_of(self.number)]
        begun = segments[(segments["state"] == STARTED) & (segments["start"] > self._fact("copied_end"))]
        begun = begun[(begun["writer"] >= 0) | (begun["flags"] & KIP405 != 0)]
        begun = begun[np.argsort(begun["offset"])]
        failed = begun[begun["start"] == begun["start"][-1]][:-1] if len(begun) else begun
        if not len(failed):
            return None
        last = failed[-1]
        return FailedCopies(
            attempts=len(failed),
            start_offset=int(last["start"]),
            since_ms=int(failed["event_timestamp"].min()),
            last_ms=int(failed["event_timestamp"].max()),
            broker_id=None if int(last["flags"]) & KIP405 else int(last["writer"]),
        )

    def keep_failed_copies(self) -> None:
        """Note `failed_copies` among the facts about the partition, because its segments will be dropped."""
        failed = self.failed_copies
        if failed is None:
            return
        row = self.table.arrays.partitions[self.number]
        row["failed_copies"], row["failed_start"] = failed.attempts, failed.start_offset
        row["failed_since"], row["failed_last"] = failed.since_ms, failed.last_ms
        row["failed_by"] = NO_BROKER if failed.broker_id is None else failed.broker_id

    def _fact(self, name: str) -> int:
        return int(self.table.arrays.partitions[self.number][name])

    @property
    def is_to_remove(self) -> bool:
        """Whether the deletion of the partition was marked and is not finished, or left segments."""
        if self.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            return self.segment_count > 0
        return self.delete_state is not None


class LastRecord(NamedTuple):
    """A record of a metadata partition; `size_bytes` of its value is -1 for a tombstone, and `crc` a CRC-32C.

    Another record at its offset shows that the partition was cut, and other records were written since.
    """

    offset: int
    timestamp_ms: int
    size_bytes: int
    crc: int


@dataclass(slots=True)
class TierState:
    """The state after all events before `read`, which maps a metadata partition to its next offset.

    User partitions are keyed by (topic id, partition), so a recreated topic is a different one. With
    `keep_deleted`, deleted segments stay readable through `deleted_segments`.
    """

    listed: dict[tuple[Uuid, int], PartitionState] = field(default_factory=dict)
    """The user partitions that have an object; `partitions` has all of them."""
    read: dict[int, int] = field(default_factory=dict)
    quarantined: list[Quarantined] = field(default_factory=list)
    missing: list[MissingEvents] = field(default_factory=list)
    complete: set[tuple[Uuid, int]] = field(default_factory=set)
    """User partitions with a complete history although their metadata partition has `missing` events.

    `plan.preconditions` decides that.
    """
    accepts_missing: bool = False
    """Whether the remaining events decide, as on a broker, for the partitions that are not in `complete`."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """The first ANOMALIES_KEPT of the anomalies."""
    anomaly_counts: dict[int, int] = field(default_factory=dict)
    """The number of anomalies by metadata partition."""
    tombstones: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The offset of the first record without a value, and their number, by metadata partition."""
    keep_deleted: bool = False
    tables: dict[int, SegmentTable] = field(default_factory=dict)
    """The segments by metadata partition."""
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    """The last record before `read`, by metadata partition."""
    held: dict[int, HeldState] = field(default_factory=dict)
    """What a state directory keeps of a metadata partition with a record that was not understood."""
    elsewhere: "Elsewhere | None" = None
    """Answers questions about the segments, if only facts about them were kept here."""
    _unlisted: dict[int, int] = field(default_factory=dict)
    """The first number in each metadata partition's table that is not `listed`."""

    @property
    def partitions(self) -> dict[tuple[Uuid, int], PartitionState]:
        """The user partitions; each gets its object when this is read for the first time after a fold."""
        if self._unlisted:
            self.list_partitions()
        return self.listed

    def list_partitions(self) -> None:
        """Add user partitions to `listed`, each from the table that had its first event.

        In other tables it `is_foreign`; in one of these, if the table with its first event is unknown, it
        is so no longer.
        """
        new = [(number, self.tables[number], first) for number, first in self._unlisted.items()]
        self._unlisted.clear()
        for was_foreign in (False, True):
            for metadata_partition, table, first in new:
                rows = table.partitions
                is_asked = rows["is_foreign"] == was_foreign
                is_asked[:first] &= was_foreign
                numbers = np.flatnonzero(is_asked)
                is_foreign = np.zeros(len(numbers), np.bool_)
                for i, partition in enumerate(table.topic_id_partitions(numbers)):
                    own = PartitionState(partition, metadata_partition, table, int(numbers[i]))
                    is_foreign[i] = self.listed.setdefault(partition.key, own) is not own
                rows["is_foreign"][numbers] = is_foreign

    def table(self, metadata_partition: int) -> SegmentTable:
        """Return the table of a metadata partition, which is empty if no event was folded."""
        found = self.tables.get(metadata_partition)
        if found is None:
            found = self.tables[metadata_partition] = SegmentTable(keep_deleted=self.keep_deleted)
        return found

    def put_table(self, metadata_partition: int, table: SegmentTable) -> None:
        """Add the table of a metadata partition, which was stored, with its user partitions."""
        self.tables[metadata_partition] = table
        self._unlisted[metadata_partition] = 0
        self.list_partitions()

    def note_partitions(self, metadata_partition: int, known: int) -> None:
        """Note that a metadata partition's table has user partitions from number `known` on, before a fold.

        Those that another table has are told apart: all events of a user partition are folded into the table
        that had the first.
        """
        rows = self.tables[metadata_partition].partitions
        has_foreign = len(self.tables) > 1 or rows["is_foreign"][:known].any()
        if has_foreign or known < len(rows):
            self._unlisted.setdefault(metadata_partition, known)
        if has_foreign:
            self.list_partitions()

    def merge(self, parts: Sequence["TierState"]) -> None:
        """Add the states of other metadata partitions, as if these had been folded one after the other."""
        by_number = attrgetter("metadata_partition")
        self.quarantined += sorted((q for part in parts for q in part.quarantined), key=by_number)
        for missing in sorted((m for part in parts for m in part.missing), key=by_number):
            self.add_missing(missing)
        # If not all anomalies can be stored, they are those of a fold of the partitions in order.
        anomalies = sorted((a for part in parts for a in part.anomalies), key=by_number)
        self.anomalies += anomalies[: self.anomaly_room]
        self.listed.clear()
        for part in parts:
            self.read |= part.read
            self.last_records |= part.last_records
            self.tombstones |= part.tombstones
            self.tables |= part.tables
            self.held = part.held | self.held
            for number, count in part.anomaly_counts.items():
                self.count_anomalies(number, count)
        self._unlisted = dict.fromkeys(self.tables, 0)

    @property
    def anomaly_room(self) -> int:
        """Return how many further anomalies `note` will store."""
        return max(ANOMALIES_KEPT - len(self.anomalies), 0)

    def note(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and store it unless ANOMALIES_KEPT are stored."""
        self.count_anomalies(anomaly.metadata_partition, 1)
        if len(self.anomalies) < ANOMALIES_KEPT:
            self.anomalies.append(anomaly)

    def count_anomalies(self, metadata_partition: int, count: int) -> None:
        """Count anomalies that are not stored."""
        if count:
            known = self.anomaly_counts.get(metadata_partition, 0)
            self.anomaly_counts[metadata_partition] = known + count

    @property
    def anomaly_count(self) -> int:
        """Return the number of all anomalies."""
        return sum(self.anomaly_counts.values())

    def partition(self, topic_id_partition: TopicIdPartition) -> PartitionState | None:
        """Return the state of one user partition; None if no event names it."""
        return self.partitions.get(topic_id_partition.key)

    def segment(
        self, topic_id_partition: TopicIdPartition, segment_id: Uuid
    ) -> RemoteLogSegmentMetadata | None:
        """Return the current metadata of a segment; None if it is unknown or deleted."""
        part = self.partition(topic_id_partition)
        return None if part is None else part.get(segment_id)

    def segments_of(self, topic_id_partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """Return the segments of a user partition that are not deleted, in no particular order."""
        part = self.partition(topic_id_partition)
        return [] if part is None else list(part.cache.list_remote_log_segments())

    def map_parts(
        self,
        function: Callable[["TierState"], Iterable[Answer]],
        among: Collection[tuple[Uuid, int]] | None = None,
    ) -> Iterator[Answer]:
        """Yield what `function` yields for states that together have all segments of this one, in no order.

        This is the one such state, unless the segments are `elsewhere`: then `function` runs there and must
        be picklable, and its answers of the classes that `spark.executors.task` decodes. Of metadata
        partitions it sees those with a user partition in `among` at least; None for all.
        """
        if self.elsewhere is None:
            yield from function(self)
            return
        known = self.partitions.keys() if among is None else self.partitions.keys() & set(among)
        chosen = {self.partitions[key].metadata_partition for key in known}
        if chosen:
            yield from self.elsewhere(function, chosen)

    def map_in_order(
        self,
        function: Callable[["TierState"], Iterable[tuple[TopicIdPartition, Answer]]],
        among: Collection[tuple[Uuid, int]] | None = None,
    ) -> Iterator[tuple[TopicIdPartition, Answer]]:
        """Yield as `map_parts` the answers about user partitions, in the order of these.

        `function` yields them in this order.
        """
        found = self.map_parts(function, among)
        return found if self.elsewhere is None else iter(sorted(found, key=lambda each: _order(each[0])))

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield each deleted segment in its last state; only if `keep_deleted` was set before the fold."""
        for part in self.partitions.values():
            yield from part.cache.list_deleted_segments()

    def is_damaged(self, metadata_partition: int) -> bool:
        """Return whether a record of that metadata partition could not be used."""
        return any(q.metadata_partition == metadata_partition for q in self.quarantined)

    def missing_of(self, metadata_partition: int) -> list[MissingEvents]:
        """Return the missing events of that metadata partition; empty if all, from offset 0 on, were read."""
        return [missing for missing in self.missing if missing.metadata_partition == metadata_partition]

    def add_missing(self, missing: MissingEvents) -> None:
        """Add missing events; no history counts as complete until `plan.preconditions` decides again."""
        self.missing.append(missing)
        self.complete.clear()

    @property
    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(topics_of([*self.tables.values()])[1])

    def by_metadata_partition(self) -> Iterator[PartitionState]:
        """Yield user partitions grouped by metadata partition; fold no events meanwhile.

        Their `segments` are cheapest here: the facts of one metadata partition's segments are computed at
        once.
        """
        tables: dict[int, list[PartitionState]] = {}
        for part in self:
            tables.setdefault(id(part.table), []).append(part)
        for parts in tables.values():
            table = parts[0].table
            table.groups = None if table.facts is not None else SegmentGroups.by_owner(table)
            try:
                yield from parts
            finally:
                table.groups = None

    def __iter__(self) -> Iterator[PartitionState]:
        """Yield user partitions by topic name, topic id and number."""
        return iter(sorted(self.partitions.values(), key=lambda part: _order(part.topic_id_partition)))


def _order(partition: TopicIdPartition) -> tuple[str, Uuid, int]:
    return partition.topic, partition.topic_id, partition.partition


@dataclass(frozen=True, slots=True)
class Spread:
    """A question with much work for few answers: what `divide` yields can be worked on anywhere.

    `gather` returns the one answer of some of it. Where a question is asked `elsewhere`, any process may
    receive any part of what `divide` yields, so that `gather` is called several times.
    """

    divide: Callable[[TierState], Iterable[Any]]
    gather: Callable[[Iterator[Any]], Any]

    def __call__(self, state: TierState) -> Iterator[Any]:
        """Yield the one answer for all segments of `state`."""
        yield self.gather(iter(self.divide(state)))


Question = Callable[[TierState], Iterable[Any]]
"""Yields answers from a state; see `TierState.map_parts`."""
Elsewhere = Callable[[Question, Collection[int]], Iterator[Any]]
"""Yields the answers to a question from the states of these metadata partitions."""


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """How many segments are in each state, and their `segment_size_in_bytes` in total.

    Both have one row per group of segments and one column per state, in the order of STATES.
    """

    counts: Int64s
    sizes_bytes: Int64s

    @classmethod
    def empty(cls, groups: int) -> Self:
        """Return the sizes of groups without segments."""
        shape = (groups, len(STATES))
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))

    def add(self, groups: Int64s, other: Self, rows: Int64s) -> None:
        """Add row `rows[i]` of `other` to row `groups[i]`."""
        np.add.at(self.counts, groups, other.counts[rows])
        np.add.at(self.sizes_bytes, groups, other.sizes_bytes[rows])

    def total(self, rows: Int64s) -> Self:
        """Return the sizes of the one group that consists of these."""
        counts, sizes_bytes = self.counts[rows], self.sizes_bytes[rows]
        return type(self)(counts.sum(axis=0, keepdims=True), sizes_bytes.sum(axis=0, keepdims=True))

    def of(self, group: int, state: RemoteLogSegmentState) -> tuple[int, int]:
        """Return the number of segments of one group that are in `state`, and their size in bytes."""
        at = group, STATES.index(state)
        return int(self.counts[at]), int(self.sizes_bytes[at])


def keep_sizes(state: TierState) -> None:
    """Replace the segments of `state` by the sizes of their user partitions: about 150 bytes for each.

    A process that folds for another one returns them where no segment is read.
    """
    for table in state.tables.values():
        table.drop_segments(_stacked(_sums(table)))


def keep_facts(state: TierState) -> None:
    """Replace the segments of `state` by facts about those of each user partition: about 250 bytes for each.

    `TierState.map_parts` answers questions about single segments.
    """
    for part in state.partitions.values():
        part.keep_failed_copies()
    for table in state.tables.values():
        table.drop_segments(_stacked(_sums(table)), SegmentGroups.by_owner(table).facts)


def _stacked(sizes: SegmentSizes) -> Int64s:
    return np.stack([sizes.counts, sizes.sizes_bytes], axis=1)


def add_sizes(state: TierState, metadata_partition: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add user partitions of a metadata partition with the sums of their segments.

    A row has `topic`, `topic_id`, `partition`, `delete_state` or None, and for each state of a segment, in
    lower case, the number of segments, and their bytes under the name with `_bytes`.
    """
    by_partition = {TopicIdPartition(Uuid.parse(r["topic_id"]), r["topic"], r["partition"]): r for r in rows}
    table, marks = state.table(metadata_partition), [str(each) for each in RemotePartitionDeleteState]
    numbered(table, rows_of([_named(each) for each in by_partition]))
    partitions = table.partitions
    sums = np.zeros((len(partitions), 2, len(STATES)), np.int64)
    for number, row in enumerate(by_partition.values()):
        sums[number] = [[row.get(f"{each.lower()}{of}", 0) for each in STATES] for of in ("", "_bytes")]
        found = row["delete_state"]
        partitions[number]["delete_state"] = -1 if found is None else marks.index(found)
        partitions[number]["last_offset"] = row["last_event_offset"]
    partitions["live"] = sums[:, 0].sum(axis=1)
    partitions["finished"] = sums[:, 0, FINISHED]
    state.note_partitions(metadata_partition, 0)
    table.drop_segments(sums)


def _named(partition: TopicIdPartition) -> RemotePartitionDeleteMetadata:
    """Return an event that names a user partition, and is not applied."""
    return RemotePartitionDeleteMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        broker_id=0,
        event_timestamp_ms=0,
        state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
    )


def sizes_by_group(
    state: TierState, members: Iterable[tuple[int, PartitionState]], groups: int
) -> SegmentSizes:
    """Return the sizes of `groups` groups of user partitions; `members` has each with its group."""
    chosen: dict[int, list[tuple[int, int]]] = {number: [] for number in state.tables}
    for group, part in members:
        chosen[part.metadata_partition].append((group, part.number))
    sizes = SegmentSizes.empty(groups)
    for number, pairs in chosen.items():
        own, rows = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        sizes.add(own, sizes_by_partition([state.tables[number]]), rows)
    return sizes


def sizes_by_partition(tables: Iterable[SegmentTable]) -> SegmentSizes:
    """Return the sizes of each user partition, those of each table after those of the table before it."""
    found = [_sums(t) if t.sums is None else SegmentSizes(*t.sums.swapaxes(0, 1)) for t in tables]
    found.append(SegmentSizes.empty(0))
    counts, sizes_bytes = ([getattr(each, name) for each in found] for name in ("counts", "sizes_bytes"))
    return SegmentSizes(np.concatenate(counts), np.concatenate(sizes_bytes))


def _sums(table: SegmentTable) -> SegmentSizes:
    segments, partitions = table.segments, len(table.partitions)
    live = np.flatnonzero(segments["state"] != DELETE_FINISHED)
    keys = segments["owner"][live].astype(np.int64) * len(STATES) + segments["state"][live]
    sizes = segments["size"][live]
    count = partitions * len(STATES)
    # `bincount` adds floats, which are exact for the halves of sizes.
    low, high = (np.bincount(keys, half, count).astype(np.int64) for half in (sizes & 0xFFFF, sizes >> 16))
    totals = low + (high << 16)
    shape = (partitions, len(STATES))
    return SegmentSizes(np.bincount(keys, minlength=count).reshape(shape), totals.reshape(shape))
