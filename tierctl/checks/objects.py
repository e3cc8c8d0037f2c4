"""Checks of a listing of the store: objects that are missing, of another size, or of no live segment."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import numpy as np

from tierctl.checks.deep import Candidate, Candidates
from tierctl.checks.findings import Finding, FindingKind, finding_of
from tierctl.checks.metadata import PartitionKey
from tierctl.checks.segments import DANGLING_AFTER_MS
from tierctl.errors import CorruptInputError, RemoteStorageError, SafetyRefusal
from tierctl.model import (
    ListedSet,
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import Severity
from tierctl.model.events import ZERO_UUID
from tierctl.model.local import unknown_segment
from tierctl.model.selection import counted
from tierctl.state.queries import LiveSegments
from tierctl.state.table_arrays import FINISHED, KIP405, TXN_INDEX_EMPTY, SegmentIds
from tierctl.state.tier_state import MissingEvents, PartitionState, TierState
from tierctl.storage.layouts.kafka import (
    SegmentLayout,
    named_segment,
    owner_of_folder,
    segment_object_name,
    segment_stem,
    split_key,
)
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import RemoteObject
from tierctl.wire.arrays import Bools, Int64s

_S = RemoteLogSegmentState
_P = ObjectPart

_LOG: Final = int(_P.LOG)


@dataclass(slots=True)
class _Listed:
    """The objects found of one partition's segments, by row: 19 bytes per segment beside the ids.

    Their keys begin with `folder`; None if the partition's name is not legal in keys. The custom metadata of
    segments, which are given in `has_custom`, may name another place.
    """

    part: PartitionState
    folder: str | None
    has_custom: Bools
    ids: SegmentIds
    starts: array[int]
    parts: bytearray
    sizes: array[int]
    totals: array[int]
    archived: bytearray

    @classmethod
    def of(cls, part: PartitionState, live: LiveSegments, layout: SegmentLayout) -> Self:
        """Return the segments `live` of `part` without objects."""
        starts = array("q", live.column("start").tobytes())
        count = len(starts)
        sizes, totals = (array("q", bytes(8 * count)) for _ in range(2))
        parts, archived = bytearray(count), bytearray(count)
        folder = _folder_of(layout, part.topic_id_partition)
        has_custom = live.column("custom") >= 0
        ids = SegmentIds(live.id_words)
        return cls(part, folder, has_custom, ids, starts, parts, sizes, totals, archived)


def _folder_of(layout: SegmentLayout, partition: TopicIdPartition) -> str | None:
    named = ListedSet(partition=partition, segment_id=ZERO_UUID, start_offset=0, sizes_bytes={})
    stem = stem_of(layout, unknown_segment(named))
    return None if stem is None else stem[: stem.rindex("/") + 1]


def stem_of(layout: SegmentLayout, segment: RemoteLogSegmentMetadata) -> str | None:
    """Return the stem of the keys under which a segment is read; None if its metadata allow none."""
    try:
        return split_key(layout.keys_of(segment)[0])[0]
    except (SafetyRefusal, CorruptInputError):
        return None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A finished segment that lacks objects, has archived ones, or whose log has another size."""

    partition: TopicIdPartition
    segment_id: Uuid
    missing: ObjectPart
    found: ObjectPart
    log_size_bytes: int | None
    """Size of the log if it differs from the metadata; None if the log is missing or of layout `aiven`."""
    archived: ObjectPart


def flag_writers(state: TierState) -> Iterator[dict[int, int]]:
    """Yield the first event time with TxnIndexEmpty set, by broker that sets the field (Kafka >= 4.0).

    The default of the field is false, so a broker that never sets it may be too old to know it. This is a
    question for `TierState.map_parts`; `earliest` joins its answers.
    """
    for table in state.tables.values():
        live = LiveSegments(table, table.live_rows())
        with_flag = live.flags(TXN_INDEX_EMPTY) & ~live.flags(KIP405)
        writers, times = live.column("writer")[with_flag], live.column("event_timestamp")[with_flag]
        yield {each: int(times[writers == each].min()) for each in np.unique(writers).tolist()}


def earliest(answers: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the earliest of the times in `answers` for each broker."""
    since: dict[int, int] = {}
    for answer in answers:
        for writer, at_ms in answer.items():
            since[writer] = min(at_ms, since.get(writer, at_ms))
    return since


class StoreAudit:
    """Compares the listing of a store, or of some partitions' folders, with the live segments of `parts`.

    An object counts only where it is read: a copy of a folder elsewhere in the store serves nobody. The
    objects are counted in any order. It numbers the segments of each user partition in order of arrival,
    so no event may be folded into the state between creation and the end of `suspects`.
    """

    def __init__(self, parts: Iterable[PartitionState], layout: SegmentLayout) -> None:
        self._layout = layout
        self._parts = [(part, part.segments.columns) for part in parts]
        self._listed = {
            part.topic_id_partition.key: _Listed.of(part, live, layout) for part, live in self._parts
        }
        self._begin = "."
        """The stem of the last segment's keys, and a dot."""
        self._segment: tuple[_Listed, int, Mapping[str, int]] | None = None
        self.objects = 0
        """Number of objects of live segments."""

    def unaccounted(self, listed: Iterable[RemoteObject]) -> Iterator[RemoteObject]:
        """Count the objects of live segments, and yield all others, and entries with a problem."""
        return (each for each in listed if not self.add_listed(each))

    def add_listed(self, found: RemoteObject) -> bool:
        """Count an entry of a listing; return False for an object of no live segment, or with a problem.

        An object belongs to the segment that has its partition, id and start offset, and is read there.
        """
        key = found.key
        if not key.startswith(self._begin):
            # Listings are mostly sorted by key, so one look-up serves all objects of a segment.
            stem, _ = split_key(key)
            self._begin, self._segment = f"{stem}.", self._find(stem)
        if self._segment is None or found.problem is not None:
            return False
        listed, row, bits = self._segment
        bit = bits.get(key[len(self._begin) - 1 :])
        if bit is None:
            return False
        listed.parts[row] |= bit
        listed.archived[row] |= bit if found.archive_class else 0
        listed.totals[row] += found.size_bytes
        self.objects += 1
        if bit == _LOG:
            listed.sizes[row] = found.size_bytes
        return True

    def _find(self, stem: str) -> tuple[_Listed, int, Mapping[str, int]] | None:
        name = segment_stem(stem)
        listed = None if name is None else self._listed.get((name.topic_id, name.partition))
        if name is None or listed is None:
            return None
        row = listed.ids.find(name.segment_id.bytes)
        if row < 0 or listed.starts[row] != name.start_offset:
            return None
        if listed.has_custom[row]:
            segment = listed.part.get(name.segment_id)
            is_read = segment is not None and stem_of(self._layout, segment) == stem
        else:
            is_read = listed.folder == stem[: stem.rfind("/") + 1]
        return (listed, row, name.parts) if is_read else None

    def totals_by_row(self, key: PartitionKey) -> Int64s:
        """Return, by row, the bytes of all objects found of each segment."""
        return np.asarray(self._listed[key].totals)

    def candidates(self, among: Candidates | None) -> Iterator[Candidate]:
        """Yield the segments of `among`, with the bytes that were found of each."""
        if among is not None:
            for part, _ in self._parts:
                yield from among.of(part, self.totals_by_row(part.topic_id_partition.key))

    def suspects(self, flagged_since: Mapping[int, int]) -> Iterator[Suspect]:
        """Yield the finished segments with missing or archived objects, or with a log of another size.

        `flagged_since` are the times of `flag_writers` for the whole tier.
        """
        for part, live in self._parts:
            yield from self._suspects(part, live, flagged_since)

    def _suspects(
        self, part: PartitionState, live: LiveSegments, flagged_since: Mapping[int, int]
    ) -> Iterator[Suspect]:
        listed = self._listed[part.topic_id_partition.key]
        rows = np.flatnonzero(live.states == FINISHED)
        live = LiveSegments(live.table, live.rows[rows])
        found = np.frombuffer(listed.parts, np.uint8)[rows]
        archived = np.frombuffer(listed.archived, np.uint8)[rows]
        sizes = np.asarray(listed.sizes)[rows]
        required = self._layout.required_objects
        needed = np.full(len(rows), sum(required), np.uint8)
        with_index = np.zeros(len(rows), dtype=bool)
        for writer, since in flagged_since.items():
            written = (live.column("writer") == writer) & ~live.flags(KIP405)
            with_index |= written & (live.column("event_timestamp") >= since)
        with_index &= ~live.flags(TXN_INDEX_EMPTY)
        odd_size = (found & _LOG != 0) & (sizes != live.column("size"))
        if _P.MANIFEST in required:
            # All indexes are in one object, and the log may be compressed or encrypted.
            with_index[:], odd_size[:] = False, False
        needed |= np.where(with_index, np.uint8(_P.TRANSACTION), np.uint8(0))
        missing = needed & ~found
        for at in np.flatnonzero((missing != 0) | (archived != 0) | odd_size).tolist():
            yield Suspect(
                partition=part.topic_id_partition,
                segment_id=Uuid.from_bytes(live.table.id_of(int(live.rows[at]))),
                missing=_P(int(missing[at])),
                found=_P(int(found[at])),
                log_size_bytes=int(sizes[at]) if odd_size[at] else None,
                archived=_P(int(archived[at])),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A listing of the whole store, compared with all live segments.

    `unaccounted` yields, by key, the objects that belong to no live segment. Once it has ended, `suspects`
    returns the suspects by partition, and `candidates` the segments among which a sample ends.
    """

    unaccounted: Iterator[RemoteObject]
    suspects: Callable[[], Iterator[Suspect]]
    candidates: Callable[[], Iterator[Candidate]]


def audit_listing(
    state: TierState,
    listed: Iterable[RemoteObject],
    layout: SegmentLayout,
    candidates: Candidates | None = None,
) -> Audit:
    """Compare all objects of the store, by key, with the live segments of `state`."""
    audit = StoreAudit(state, layout)
    return Audit(
        unaccounted=audit.unaccounted(listed),
        suspects=lambda: audit.suspects(earliest(flag_writers(state))),
        candidates=partial(audit.candidates, candidates),
    )


def suspect_findings(
    suspect: Suspect, segment: RemoteLogSegmentMetadata | None, remote: RemoteStorageManager | None
) -> Iterator[Finding]:
    """Yield the findings about a suspect; nothing if its segment has left COPY_SEGMENT_FINISHED.

    `remote` is asked why objects are missing.
    """
    if segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
        return
    if suspect.missing:
        yield _missing(suspect, segment, remote)
    if suspect.archived:
        message = f"the segment's {_names(suspect.archived)} must be restored before anything can read it"
        yield finding_of(suspect.partition, FindingKind.ARCHIVED_OBJECT, Severity.ERROR, message, segment)
    if suspect.log_size_bytes is not None:
        size_bytes = segment.segment_size_in_bytes
        message = f"the log has {suspect.log_size_bytes} bytes in the store, {size_bytes} in the metadata"
        yield finding_of(suspect.partition, FindingKind.SIZE_DIFFERS, Severity.ERROR, message, segment)


def _missing(
    suspect: Suspect, segment: RemoteLogSegmentMetadata, remote: RemoteStorageManager | None
) -> Finding:
    message = "the store has none of the segment's objects"
    if suspect.found:
        message = f"the store lacks the segment's {_names(suspect.missing)}"
    try:
        if remote is not None:
            remote.objects_of(segment)
    except (RemoteStorageError, SafetyRefusal, CorruptInputError) as e:
        message += f" ({e.message})"
    return finding_of(suspect.partition, FindingKind.MISSING_OBJECT, Severity.ERROR, message, segment)


def _names(parts: ObjectPart) -> str:
    return ", ".join(_PART_NAMES[part] for part in ObjectPart if part in parts)


_PART_NAMES = {
    _P.LOG: "log",
    _P.OFFSET: "offset index",
    _P.TIMESTAMP: "time index",
    _P.LEADER_EPOCH: "leader-epoch index",
    _P.PRODUCER_SNAPSHOT: "producer snapshot",
    _P.TRANSACTION: "transaction index, which is not empty by the metadata",
    _P.INDEXES: "indexes",
    _P.MANIFEST: "manifest",
}


@dataclass(slots=True)
class Orphan:
    """Consecutive objects of one segment, or a single object of no segment, that no live segment has."""

    key: str
    """The object's key; for a segment's objects the part that their keys have in common."""
    name: SegmentObjectName | None = None
    is_temporary: bool = False
    count: int = 0
    size_bytes: int = 0
    modified_ms: int | None = None
    """When the last of the objects was written; None if the store did not state it for each of them."""
    has_times: bool = True

    def add(self, size_bytes: int, modified_ms: int | None) -> None:
        """Count one more object."""
        self.count += 1
        self.size_bytes += size_bytes
        self.has_times = self.has_times and modified_ms is not None
        self.modified_ms = max(modified_ms or 0, self.modified_ms or 0) if self.has_times else None


def orphan_finding(
    orphan: Orphan,
    topic: str | None,
    deleted: Collection[Uuid],
    now_ms: int,
    missing: Sequence[MissingEvents] = (),
    *,
    is_live: bool = False,
) -> Finding:
    """Return the finding about an orphan; `topic` is the name of its topic id, None if unknown.

    `deleted` has its segment id if it is DELETE_SEGMENT_FINISHED. `missing` are the events of its partition
    that may have been lost. `is_live` says that it has the name of a live segment, in another place.
    """
    kind, reason = _orphan_kind(orphan, deleted, missing)
    if is_live and not orphan.is_temporary:
        reason = "it has the name of a segment of the metadata, and lies where no broker reads it"
    age_ms = None if orphan.modified_ms is None else max(now_ms - orphan.modified_ms, 0)
    is_young = orphan.is_temporary and age_ms is not None and age_ms <= DANGLING_AFTER_MS
    objects = f"{orphan.count} objects" if orphan.count > 1 else "an object"
    age = "of unknown age" if age_ms is None else f"last written {_span(age_ms)} ago"
    name = orphan.name
    return Finding(
        check=kind,
        severity=Severity.INFO if is_young else Severity.WARNING,
        topic=topic,
        topic_id=name.topic_id if name else None,
        partition=name.partition if name else None,
        segment_id=name.segment_id if name else None,
        start_offset=name.start_offset if name else None,
        key=orphan.key,
        found=f"{objects} of {orphan.size_bytes} bytes, {age}: {reason}",
    )


@dataclass(slots=True)
class Unlisted:
    """The entries of a listing that are not readable objects; the contents of such folders are unknown."""

    folders: list[str] = field(default_factory=list)

    def finding(self, listed: RemoteObject, topic_of: Callable[[Uuid], str | None]) -> Finding:
        """Return the finding about an entry with a problem; `topic_of` returns the name of a topic id."""
        name = segment_object_name(listed.key)
        folder = listed.key.removesuffix("/") + "/"
        owner = (name.topic_id, name.partition) if name else owner_of_folder(folder)
        if folder == listed.key or (owner is not None and name is None):
            # This object is the folder of a partition (for example a symlink), so the objects below it are
            # not listed.
            self.folders.append(folder)
        return Finding(
            check=FindingKind.UNREADABLE_OBJECT,
            severity=Severity.ERROR,
            topic=topic_of(owner[0]) if owner else None,
            topic_id=owner[0] if owner else None,
            partition=owner[1] if owner else None,
            segment_id=name.segment_id if name else None,
            start_offset=name.start_offset if name else None,
            key=listed.key,
            found=str(listed.problem),
        )

    def may_hold(self, partition: TopicIdPartition) -> bool:
        """Return whether objects of the partition may lie in a folder that could not be listed."""
        owners = [owner_of_folder(folder) for folder in self.folders]
        whole = {(partition.topic_id, None), partition.key}
        return any(owner is None or owner in whole for owner in owners)


def _orphan_kind(
    orphan: Orphan, deleted: Collection[Uuid], missing: Sequence[MissingEvents]
) -> tuple[FindingKind, str]:
    if orphan.is_temporary:
        return FindingKind.TEMP_LEFTOVER, "a copy that was killed left it, or a copy that runs now writes it"
    if orphan.name is None and named_segment(*split_key(orphan.key)) is not None:
        return FindingKind.ORPHAN, "it may be an object of a segment that was renamed or compressed"
    if orphan.name is None:
        return FindingKind.ORPHAN, "the key is not that of a segment's object"
    if orphan.name.segment_id in deleted:
        return FindingKind.ORPHAN, "the segment is DELETE_SEGMENT_FINISHED"
    if missing:
        return FindingKind.LEAKED, f"no event names the segment; {'; '.join(map(str, missing))}"
    return FindingKind.ORPHAN, "the segment is not in the metadata"


def _span(age_ms: int) -> str:
    hours = age_ms // 3_600_000
    if hours >= 48:
        return f"{hours // 24} days"
    if not hours and age_ms < 60_000:
        return "less than a minute"
    return counted(hours, "hour") if hours else counted(age_ms // 60_000, "minute")
