"""Which objects of a listed store belong to which segment, and which are missing, odd or nobody's."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import (
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
)
from tierctl.state.segments.arrays import view
from tierctl.state.segments.columns import KIP405, STATE_MASK, STATES, TXN_INDEX_EMPTY, SegmentColumns
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.tier import PartitionState, TierState
from tierctl.verify.segments import Finding, FindingKind, Severity, finding_of

_S = RemoteLogSegmentState
_P = ObjectPart

KAFKA_PARTS: Final = _P.LOG | _P.OFFSET | _P.TIMESTAMP | _P.LEADER_EPOCH | _P.PRODUCER_SNAPSHOT
"""What every segment has in layout `kafka`; the transaction index may be missing."""

AIVEN_PARTS: Final = _P.LOG | _P.INDEXES | _P.MANIFEST
_AIVEN_ONLY: Final = int(_P.INDEXES | _P.MANIFEST)
_FINISHED: Final = STATES.index(_S.COPY_SEGMENT_FINISHED)


PartitionKey = tuple[Uuid, int]


@dataclass(slots=True)
class _Listed:
    """What was listed of one partition's segments, by row: 9 bytes each beside what finds the row."""

    ids: SegmentIds
    starts: "array[int]"
    parts: bytearray
    sizes: "array[int]"

    @classmethod
    def of(cls, ids: SegmentIds, starts: "array[int]") -> Self:
        count = len(starts)
        return cls(ids, starts, bytearray(count), array("q", bytes(8 * count)))


@dataclass(frozen=True, slots=True)
class Expected:
    """The segments that objects may belong to, for who lists a part of the store; picklable."""

    segments: "Mapping[PartitionKey, tuple[SegmentIds, array[int]]]"


@dataclass(frozen=True, slots=True)
class Found:
    """What a part of the listing said of the expected segments, by row; picklable."""

    partitions: "Mapping[PartitionKey, tuple[bytearray, array[int]]]"
    aiven: int
    kafka: int


@dataclass(frozen=True, slots=True)
class Suspect:
    """A finished segment whose objects are not all there as they should be."""

    partition: TopicIdPartition
    segment_id: Uuid
    missing: ObjectPart
    found: ObjectPart
    log_size_bytes: int | None
    """None when the log is not there, or its length says nothing (layout `aiven`)."""


class Tally:
    """Takes a listing, or a part of one, in any order, and tells which objects belong to live segments."""

    def __init__(self, expected: Expected) -> None:
        self._listed = {key: _Listed.of(*segments) for key, segments in expected.segments.items()}
        self._stem = ""
        self._row: tuple[_Listed, int] | None = None
        self.aiven = 0
        """Objects that only layout `aiven` has."""
        self.kafka = 0

    def add(self, name: SegmentObjectName, size_bytes: int) -> bool:
        """Take in one object; False when it belongs to no live segment, or not where it lies."""
        if name.stem != self._stem:
            # A segment's objects mostly follow each other: one look-up serves them all.
            self._stem, self._row = name.stem, self._find(name)
        if self._row is None:
            return False
        listed, row = self._row
        listed.parts[row] |= name.part
        if name.part is _P.LOG:
            listed.sizes[row] = size_bytes
        elif name.part & _AIVEN_ONLY:
            self.aiven += 1
        else:
            self.kafka += 1
        return True

    def _find(self, name: SegmentObjectName) -> tuple[_Listed, int] | None:
        listed = self._listed.get((name.topic_id, name.partition))
        row = -1 if listed is None else listed.ids.find(name.segment_id.bytes)
        if listed is None or row < 0 or listed.starts[row] != name.start_offset:
            return None
        return listed, row

    def keys(self) -> Iterable[PartitionKey]:
        """The partitions that have segments."""
        return self._listed.keys()

    def expected(self, keys: Iterable[PartitionKey]) -> Expected:
        """Those of some partitions, as far as they are known."""
        listed = {key: self._listed[key] for key in keys if key in self._listed}
        return Expected({key: (each.ids, each.starts) for key, each in listed.items()})

    def found(self) -> Found:
        """What was added."""
        partitions = {key: (each.parts, each.sizes) for key, each in self._listed.items()}
        return Found(partitions, self.aiven, self.kafka)

    def absorb(self, found: Found) -> None:
        """Take in what another tally, of segments that this one expects, was given."""
        for key, (parts, sizes) in found.partitions.items():
            own, theirs = self._listed[key], np.frombuffer(parts, dtype=np.uint8)
            all_parts = np.frombuffer(own.parts, dtype=np.uint8)
            np.bitwise_or(all_parts, theirs, out=all_parts)
            with_log = (theirs & _P.LOG) != 0
            view(own.sizes)[with_log] = view(sizes)[with_log]
        self.aiven += found.aiven
        self.kafka += found.kafka

    def by_row(self, key: PartitionKey) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The parts that were found of each row's segment, and the sizes of their logs."""
        listed = self._listed[key]
        return np.frombuffer(listed.parts, dtype=np.uint8), view(listed.sizes)


class StoreAudit:
    """Holds a whole listing against every live segment; a pass over nothing else.

    Rows are those of the caches as they are at the beginning: nothing may be folded into the state before
    `suspects` is done.
    """

    def __init__(self, state: TierState) -> None:
        self._parts = [(part, _columns(part)) for part in state]
        self.tally = Tally(Expected({p.topic_id_partition.key: (c.ids, c.starts) for p, c in self._parts}))

    def add(self, name: SegmentObjectName, size_bytes: int) -> bool:
        """See Tally.add."""
        return self.tally.add(name, size_bytes)

    def suspects(self) -> Iterator[Suspect]:
        """Segments that lack objects, or whose log has another size than the metadata say."""
        flag_writers = self._flag_writers()
        for part, columns in self._parts:
            yield from self._suspects(part, columns, flag_writers)

    def _flag_writers(self) -> dict[int, int]:
        """Brokers that say when a transaction index is empty, as 4.0 and later do, and since when.

        The field's default is "not empty", so one that never says otherwise may just not know the field.
        """
        since: dict[int, int] = {}
        for _, columns in self._parts:
            flags = view(columns.flags)
            says = np.flatnonzero((flags & TXN_INDEX_EMPTY != 0) & (flags & KIP405 == 0))
            writers, times = view(columns.writers)[says], view(columns.event_timestamps)[says]
            for writer in np.unique(writers).tolist():
                earliest = int(times[writers == writer].min())
                since[writer] = min(earliest, since.get(writer, earliest))
        return since

    def _suspects(
        self, part: PartitionState, columns: SegmentColumns, flag_writers: dict[int, int]
    ) -> Iterator[Suspect]:
        parts, all_sizes = self.tally.by_row(part.topic_id_partition.key)
        rows = columns.live_rows()
        rows = rows[(view(columns.flags)[rows] & STATE_MASK) == _FINISHED]
        found, sizes, flags = parts[rows], all_sizes[rows], view(columns.flags)[rows]
        is_mostly_aiven = self.tally.aiven > self.tally.kafka
        aiven = (found & _AIVEN_ONLY != 0) | ((found & ~np.uint8(_P.LOG) == 0) & is_mostly_aiven)
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
                partition=part.topic_id_partition,
                segment_id=Uuid.from_bytes(columns.ids.id_of(int(rows[at]))),
                missing=_P(int(missing[at])),
                found=_P(int(found[at])),
                log_size_bytes=int(sizes[at]) if odd_size[at] else None,
            )


def _columns(part: PartitionState) -> SegmentColumns:
    columns = part.cache.columns
    assert isinstance(columns, SegmentColumns)
    return columns


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
