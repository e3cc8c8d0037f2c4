"""Invariants that are checked as each event is appended and each object is stored or deleted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tierctl.model import (
    IndexType,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicConfig,
    Uuid,
)
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES, SUFFIXES, key_stem
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.simulation.log import COPIED_SUFFIXES, ModelLog
from tests.simulation.scheduler import InvariantViolation

_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState
_Key = tuple[Uuid, int]
_EPOCHS_SUFFIX = INDEX_SUFFIXES[IndexType.LEADER_EPOCH]
_ID_CHARACTERS = 22


@dataclass(slots=True)
class KnownSegment:
    """A segment as the events describe it; `was_finished`: whether it was ever COPY_SEGMENT_FINISHED."""

    metadata: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState = _S.COPY_SEGMENT_STARTED
    was_finished: bool = False


@dataclass(slots=True)
class Truth:
    """The segments by id, from every event in order, and the checks of each change.

    `logs` are the logs of the existing partitions; `stored` returns an object's bytes.
    """

    logs: dict[_Key, ModelLog]
    configs: dict[str, TopicConfig]
    stored: Callable[[str], bytes | None]
    clock_ms: Callable[[], int]
    segments: dict[Uuid, KnownSegment] = field(default_factory=dict)
    highest_copied: dict[_Key, int] = field(default_factory=dict)
    marked: dict[_Key, RemotePartitionDeleteState] = field(default_factory=dict)

    def event(self, event: MetadataEvent) -> None:
        """Check `event`, which is about to be appended, and fold it."""
        match event:
            case RemoteLogSegmentMetadata():
                self._started(event)
            case RemoteLogSegmentMetadataUpdate():
                self._updated(event)
            case RemotePartitionDeleteMetadata():
                self._partition(event)
            case _:
                raise InvariantViolation(f"unexpected event {event}")

    def _started(self, event: RemoteLogSegmentMetadata) -> None:
        key = event.topic_id_partition.key
        _require(event.segment_id not in self.segments, f"segment id {event.segment_id} is used twice")
        _require(event.state is _S.COPY_SEGMENT_STARTED, f"first event of a segment: {event}")
        _require(key in self.logs, f"a segment of a deleted topic is copied: {event}")
        self.segments[event.segment_id] = KnownSegment(event)

    def _updated(self, event: RemoteLogSegmentMetadataUpdate) -> None:
        known = self.segments.get(event.segment_id)
        if known is None:
            raise InvariantViolation(f"an update of an unknown segment: {event}")
        match event.state:
            case _S.COPY_SEGMENT_FINISHED:
                _require(known.state is _S.COPY_SEGMENT_STARTED, f"FINISHED after {known.state}: {event}")
                self._finished(known.metadata)
                known.was_finished = True
            case _S.DELETE_SEGMENT_STARTED:
                if known.state is _S.COPY_SEGMENT_FINISHED:
                    self._deletable(known.metadata)
            case _S.DELETE_SEGMENT_FINISHED:
                _require(known.state is _S.DELETE_SEGMENT_STARTED, f"DELETE_FINISHED after {known.state}")
                left = [key for key in _keys(known.metadata) if self.stored(key) is not None]
                _require(not left, f"DELETE_SEGMENT_FINISHED although objects are left: {left}")
            case _:
                raise InvariantViolation(f"unexpected update {event}")
        known.state = event.state
        self.check_coverage(event.topic_id_partition.key)

    def _finished(self, segment: RemoteLogSegmentMetadata) -> None:
        """Check the objects of a segment before brokers trust it, and its offsets in the partition."""
        key = segment.topic_id_partition.key
        log = self.logs.get(key)
        if log is None:
            return
        source = log.history.get(segment.start_offset)
        if source is None or source.next_base_offset != segment.end_offset + 1:
            raise InvariantViolation(f"FINISHED, but the log never had such a segment: {_text(segment)}")
        _require(segment.end_offset < log.high_watermark, f"not committed: {_text(segment)}")
        stem = key_stem(segment)
        for suffix in COPIED_SUFFIXES:
            same = self.stored(stem + suffix) == source.files[suffix]
            _require(same, f"FINISHED, but {suffix} is missing or wrong: {_text(segment)}")
        epochs = tuple(epochs_of(log.lineage, segment.start_offset, segment.end_offset))
        _require(
            tuple((e, max(o, segment.start_offset)) for e, o in segment.segment_leader_epochs) == epochs
            or segment.start_offset < log.log_start_offset,
            f"epochs {segment.segment_leader_epochs}, the log has {epochs}: {_text(segment)}",
        )
        stored = read_leader_epoch_checkpoint(self.stored(stem + _EPOCHS_SUFFIX) or b"")
        above = {entry for entry in epochs[1:] if entry[1] > log.log_start_offset}
        _require(above <= set(stored), f"leader epochs {stored} lack some of {epochs}")
        highest = self.highest_copied.get(key, -1)
        _require(segment.end_offset > highest, f"FINISHED out of offset order: {_text(segment)}")
        follows = segment.start_offset <= max(highest + 1, log.log_start_offset)
        _require(follows, f"FINISHED after a hole behind {highest}: {_text(segment)}")
        overlap = [s for s in self.finished(key) if s.end_offset >= segment.start_offset]
        _require(not overlap, f"copied twice: {_text(segment)} and {[_text(s) for s in overlap]}")
        self.highest_copied[key] = segment.end_offset

    def _deletable(self, segment: RemoteLogSegmentMetadata) -> None:
        """Check that a finished segment lies below the log start, or that its topic is deleted."""
        key = segment.topic_id_partition.key
        log = self.logs.get(key)
        if log is None:
            return
        _require(key not in self.marked, f"the partition of an existing topic is deleted: {_text(segment)}")
        below = segment.end_offset < log.log_start_offset
        _require(below, f"deleted above the log start {log.log_start_offset}: {_text(segment)}")

    def _partition(self, event: RemotePartitionDeleteMetadata) -> None:
        key = event.topic_id_partition.key
        _require(key not in self.logs, f"an existing topic is deleted: {event}")
        if event.state is _P.DELETE_PARTITION_FINISHED:
            left = [k for k in self.segments_of(key) if k.state is not _S.DELETE_SEGMENT_FINISHED]
            _require(not left, f"DELETE_PARTITION_FINISHED although {len(left)} segments are left")
        self.marked[key] = event.state

    def segments_of(self, key: _Key) -> list[KnownSegment]:
        """Return the segments of a partition, in any state."""
        return [k for k in self.segments.values() if k.metadata.topic_id_partition.key == key]

    def finished(self, key: _Key) -> list[RemoteLogSegmentMetadata]:
        """Return the COPY_SEGMENT_FINISHED segments of a partition."""
        return [k.metadata for k in self.segments_of(key) if k.state is _S.COPY_SEGMENT_FINISHED]

    def object_put(self, key: str, body: bytes) -> None:
        """Check an object of a segment before it is stored; the lease and the identity are not checked."""
        known = self._segment_of(key)
        if known is None:
            return
        if known.state is _S.COPY_SEGMENT_FINISHED:
            _require(self.stored(key) == body, f"an object of a FINISHED segment is replaced: {key}")
        else:
            allowed = known.state is _S.COPY_SEGMENT_STARTED
            _require(allowed, f"an object is stored in state {known.state}: {key}")

    def object_deleted(self, key: str) -> None:
        """Check an object before it is deleted: its segment is being deleted."""
        known = self._segment_of(key)
        if known is not None:
            # A repeated copy removes the objects that its segment does not have.
            allowed = known.state is _S.DELETE_SEGMENT_STARTED or known.state is _S.COPY_SEGMENT_STARTED
            _require(allowed, f"an object is deleted in state {known.state}: {key}")

    def is_deleted(self, key: str) -> bool:
        """Return whether the segment of an object is being deleted, or is deleted."""
        known = self._segment_of(key)
        return known is not None and known.state in {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}

    def _segment_of(self, key: str) -> KnownSegment | None:
        name = key.rsplit("/", 1)[1] if "/" in key else key
        if not name.endswith(SUFFIXES) or len(name) < 21 + _ID_CHARACTERS:
            return None
        known = self.segments.get(Uuid(name[21 : 21 + _ID_CHARACTERS]))
        if known is None:
            raise InvariantViolation(f"an object of a segment that the metadata don't know: {key}")
        return known

    def log_start_raised(self, key: _Key, offset: int) -> None:
        """Check that every record below `offset` has expired, or that an operator deleted it."""
        log = self.logs.get(key)
        if log is None or offset <= max(log.requested_start_offset, log.log_start_offset):
            return
        config = self.configs[log.partition.topic]
        for base, segment in sorted(log.history.items()):
            if segment.next_base_offset is None or segment.next_base_offset <= log.log_start_offset:
                continue
            if base >= offset or segment.next_base_offset <= log.requested_start_offset:
                continue
            old = 0 < segment.max_timestamp_ms < self.clock_ms() - config.retention_ms
            by_time = config.retention_ms >= 0 and old
            left = log.bytes_from(segment.next_base_offset)
            by_size = 0 <= config.retention_bytes <= left
            _require(
                by_time or by_size,
                f"the log start of {log.partition} is raised to {offset}, but segment {base} has not expired "
                f"(largest timestamp {segment.max_timestamp_ms}, {left} bytes behind it, {config})",
            )
        _require(
            offset in {s.next_base_offset for s in log.history.values()} | {0},
            f"log start {offset} is no boundary",
        )

    def check_coverage(self, key: _Key) -> None:
        """Check that every committed record from the log start on is local or in a finished segment."""
        log = self.logs.get(key)
        if log is None:
            return
        at = log.log_start_offset
        for segment in sorted(self.finished(key), key=lambda s: s.start_offset):
            if segment.start_offset <= at:
                at = max(at, segment.end_offset + 1)
        lost_to = min(log.local_start_offset, log.high_watermark)
        _require(
            at >= lost_to, f"{log.partition}: records {at} to {lost_to - 1} are neither local nor in the tier"
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantViolation(message)


def _keys(segment: RemoteLogSegmentMetadata) -> Iterable[str]:
    stem = key_stem(segment)
    return (stem + suffix for suffix in SUFFIXES)


def _text(segment: RemoteLogSegmentMetadata) -> str:
    return f"{segment.topic_id_partition} {segment.start_offset}-{segment.end_offset} {segment.segment_id}"


def epochs_of(lineage: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return the epochs of the offsets `start` to `end`; the first one begins at `start`."""
    found: list[tuple[int, int]] = []
    for epoch, offset in lineage:
        if offset <= start:
            found = [(epoch, start)]
        elif offset <= end:
            found.append((epoch, offset))
    return found
