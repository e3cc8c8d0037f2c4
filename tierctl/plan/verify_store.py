"""Which objects of a listed store belong to which segment, and which are missing, odd or nobody's."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tierctl.model import (
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
)
from tierctl.state.arrays import view
from tierctl.state.columns import KIP405, STATE_MASK, STATES, TXN_INDEX_EMPTY, SegmentColumns
from tierctl.state.invariants import Finding, FindingKind, Severity, finding_of
from tierctl.state.tier import PartitionState, TierState

_S = RemoteLogSegmentState
_P = ObjectPart

KAFKA_PARTS: Final = _P.LOG | _P.OFFSET | _P.TIMESTAMP | _P.LEADER_EPOCH | _P.PRODUCER_SNAPSHOT
"""What every segment has in layout `kafka`; the transaction index may be missing."""

AIVEN_PARTS: Final = _P.LOG | _P.INDEXES | _P.MANIFEST
_AIVEN_ONLY: Final = int(_P.INDEXES | _P.MANIFEST)
_FINISHED: Final = STATES.index(_S.COPY_SEGMENT_FINISHED)


@dataclass(slots=True)
class _Listed:
    """What was listed of one partition's segments, by row: 9 bytes each."""

    part: PartitionState
    columns: SegmentColumns
    parts: bytearray
    sizes: "array[int]"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A finished segment whose objects are not all there as they should be."""

    partition: TopicIdPartition
    segment_id: Uuid
    missing: ObjectPart
    found: ObjectPart
    log_size_bytes: int | None
    """None when the log is not there, or its length says nothing (layout `aiven`)."""


class StoreAudit:
    """Takes a listing in any order, and holds it against every live segment; a pass over nothing else.

    Rows are those of the caches as they are at the beginning: nothing may be folded into the state before
    `suspects` is done.
    """

    def __init__(self, state: TierState) -> None:
        self._listed: dict[tuple[Uuid, int], _Listed] = {}
        for part in state:
            columns = part.cache.columns
            assert isinstance(columns, SegmentColumns)
            count = len(columns)
            self._listed[part.topic_id_partition.key] = _Listed(
                part, columns, bytearray(count), array("q", bytes(8 * count))
            )
        self._aiven = 0
        self._kafka = 0
        self._stem = ""
        self._found: tuple[_Listed, int] | None = None

    def add(self, name: SegmentObjectName, size_bytes: int) -> bool:
        """Take in one object; False when it belongs to no live segment, or not where it lies."""
        if name.stem != self._stem:
            # A segment's objects mostly follow each other: one look-up serves them all.
            self._stem, self._found = name.stem, self._find(name)
        if self._found is None:
            return False
        listed, row = self._found
        listed.parts[row] |= name.part
        if name.part is _P.LOG:
            listed.sizes[row] = size_bytes
        elif name.part & _AIVEN_ONLY:
            self._aiven += 1
        else:
            self._kafka += 1
        return True

    def _find(self, name: SegmentObjectName) -> tuple[_Listed, int] | None:
        listed = self._listed.get((name.topic_id, name.partition))
        row = -1 if listed is None else listed.columns.ids.find(name.segment_id.bytes)
        if listed is None or row < 0 or listed.columns.starts[row] != name.start_offset:
            return None
        return listed, row

    def suspects(self) -> Iterator[Suspect]:
        """Segments that lack objects, or whose log has another size than the metadata say."""
        flag_writers = self._flag_writers()
        for listed in self._listed.values():
            yield from self._suspects(listed, flag_writers)

    def _flag_writers(self) -> dict[int, int]:
        """Brokers that say when a transaction index is empty, as 4.0 and later do, and since when.

        The field's default is "not empty", so one that never says otherwise may just not know the field.
        """
        since: dict[int, int] = {}
        for listed in self._listed.values():
            columns = listed.columns
            flags = view(columns.flags)
            says = np.flatnonzero((flags & TXN_INDEX_EMPTY != 0) & (flags & KIP405 == 0))
            writers, times = view(columns.writers)[says], view(columns.event_timestamps)[says]
            for writer in np.unique(writers).tolist():
                earliest = int(times[writers == writer].min())
                since[writer] = min(earliest, since.get(writer, earliest))
        return since

    def _suspects(self, listed: _Listed, flag_writers: dict[int, int]) -> Iterator[Suspect]:
        columns = listed.columns
        rows = columns.live_rows()
        rows = rows[(view(columns.flags)[rows] & STATE_MASK) == _FINISHED]
        found = np.frombuffer(listed.parts, dtype=np.uint8)[rows]
        sizes, flags = view(listed.sizes)[rows], view(columns.flags)[rows]
        aiven = (found & _AIVEN_ONLY != 0) | ((found & ~np.uint8(_P.LOG) == 0) & (self._aiven > self._kafka))
        needed = np.where(aiven, np.uint8(AIVEN_PARTS), np.uint8(KAFKA_PARTS))
        with_index = np.zeros(len(rows), dtype=bool)
        for writer, since in flag_writers.items():
            written = (view(columns.writers)[rows] == writer) & (flags & KIP405 == 0)
            with_index |= written & (view(columns.event_timestamps)[rows] >= since)
        with_index &= ~aiven & (flags & TXN_INDEX_EMPTY == 0)
        needed = needed | np.where(with_index, np.uint8(_P.TRANSACTION), np.uint8(0))
        missing = needed & ~found
        has_log = (found & _P.LOG != 0) & ~aiven
        odd_size = has_log & (sizes != view(columns.sizes)[rows])
        for at in np.flatnonzero((missing != 0) | odd_size).tolist():
            yield Suspect(
                partition=listed.part.topic_id_partition,
                segment_id=Uuid.from_bytes(columns.ids.id_of(int(rows[at]))),
                missing=_P(int(missing[at])),
                found=_P(int(found[at])),
                log_size_bytes=int(sizes[at]) if odd_size[at] else None,
            )


def findings_of(suspect: Suspect, segment: RemoteLogSegmentMetadata | None) -> Iterator[Finding]:
    """What is wrong with a suspect, given its segment as it is now; nothing once that is being deleted."""
    if segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
        return
    if suspect.missing:
        yield _missing(suspect, segment)
    if suspect.log_size_bytes is not None:
        size_bytes = segment.segment_size_in_bytes
        message = f"its log has {suspect.log_size_bytes} bytes, its metadata say {size_bytes}"
        yield finding_of(suspect.partition, FindingKind.SIZE_DIFFERS, Severity.ERROR, message, segment)


def _missing(suspect: Suspect, segment: RemoteLogSegmentMetadata) -> Finding:
    kind, severity = FindingKind.MISSING_OBJECT, Severity.ERROR
    if not suspect.found:
        return finding_of(suspect.partition, kind, severity, "the store has none of its objects", segment)
    names = ", ".join(_WORDS[part] for part in ObjectPart if part in suspect.missing)
    return finding_of(suspect.partition, kind, severity, f"the store has not its {names}", segment)


_WORDS = {
    _P.LOG: "log",
    _P.OFFSET: "offset index",
    _P.TIMESTAMP: "time index",
    _P.LEADER_EPOCH: "leader-epoch index",
    _P.PRODUCER_SNAPSHOT: "producer snapshot",
    _P.TRANSACTION: "transaction index, though the metadata say it is not empty",
    _P.INDEXES: "indexes",
    _P.MANIFEST: "manifest",
}


@dataclass(slots=True)
class Orphan:
    """Objects beside each other that no live segment has: of one segment, or a single odd one."""

    key: str
    """The object's, or what the keys of the segment's objects begin with."""
    name: SegmentObjectName | None = None
    is_temporary: bool = False
    count: int = 0
    size_bytes: int = 0
    modified_ms: int | None = None
    """When the last of them was written; None when the store doesn't tell of each."""
    tells_time: bool = field(default=True)

    def add(self, size_bytes: int, modified_ms: int | None) -> None:
        """One more object."""
        self.count += 1
        self.size_bytes += size_bytes
        self.tells_time = self.tells_time and modified_ms is not None
        self.modified_ms = max(modified_ms or 0, self.modified_ms or 0) if self.tells_time else None
