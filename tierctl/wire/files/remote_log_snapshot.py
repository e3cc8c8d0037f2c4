"""The codec of Kafka's `remote_log_snapshot`, which Kafka 3.1 to 3.7 write to a user partition's folder.

Layout (RemoteLogMetadataSnapshotFile): int16 version 0, int32 metadata partition, int64 metadata offset,
int32 count, then per entry an int32 length and a framed record of apiKey 3. A segment with several leader
epochs has one entry per epoch. An empty file is normal: it is written before the first event.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct as Packer

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import Dialect, RemoteLogSegmentMetadataSnapshot, Uuid
from tierctl.wire.metadata import decode, encode
from tierctl.wire.primitives import shifted, take, truncated

VERSION = 0

_HEADER = Packer(">hiqi")
_VERSION = Packer(">h")
_LENGTH = Packer(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One entry; `position` is the byte of the record after its length.

    If the record cannot be read, `segment` is None and `error` is set.
    """

    position: int
    raw: bytes
    segment: RemoteLogSegmentMetadataSnapshot | None
    error: CorruptInputError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSnapshot:
    """The readable part of a snapshot; `torn` is the error because of which entries are missing at the end.

    `metadata_offset` is the last offset of `metadata_partition` that the snapshot contains.
    """

    metadata_partition: int
    metadata_offset: int
    entries: tuple[SnapshotEntry, ...]
    torn: CorruptInputError | None = None

    @property
    def segments(self) -> tuple[RemoteLogSegmentMetadataSnapshot, ...]:
        """Return the segments of all readable entries, repeated ones included."""
        return tuple(entry.segment for entry in self.entries if entry.segment is not None)

    @property
    def damaged(self) -> tuple[CorruptInputError, ...]:
        """Return the errors of bad entries and of the torn end."""
        errors = [entry.error for entry in self.entries if entry.error is not None]
        return (*errors, self.torn) if self.torn else tuple(errors)


def read(data: bytes) -> RemoteLogSnapshot | None:
    """Decode a snapshot; return None for an empty file.

    A bad entry is kept with its error, and the entries after it are read. Raise CorruptInputError for a
    header that cannot be read, UnsupportedFormatError for an unknown version.
    """
    data = bytes(data)
    if not data:
        return None
    partition, offset, count = _read_header(data)
    entries: list[SnapshotEntry] = []
    at, torn = _HEADER.size, None
    try:
        while len(entries) < count:
            entry, at = _read_entry(data, at)
            entries.append(entry)
    except CorruptInputError as error:
        torn = error
    if torn is None and at != len(data):
        found = f"{len(data) - at} more bytes"
        torn = CorruptInputError("remote_log_snapshot", expected="the end", found=found, at=at)
    return RemoteLogSnapshot(
        metadata_partition=partition, metadata_offset=offset, entries=tuple(entries), torn=torn
    )


def _read_header(data: bytes) -> tuple[int, int, int]:
    if len(data) >= _VERSION.size and _VERSION.unpack_from(data)[0] != VERSION:
        (version,) = _VERSION.unpack_from(data)
        raise UnsupportedFormatError(
            "remote_log_snapshot", expected=f"version {VERSION}", found=f"version {version}", at=0
        )
    if len(data) < _HEADER.size:
        raise truncated("header of remote_log_snapshot", needed=_HEADER.size, at=0, remaining=len(data))
    _, partition, offset, count = _HEADER.unpack_from(data)
    if count < 0:
        at = _HEADER.size - _LENGTH.size
        raise CorruptInputError("number of entries", expected="0 or more", found=str(count), at=at)
    return partition, offset, count


def _read_entry(data: bytes, at: int) -> tuple[SnapshotEntry, int]:
    raw_length, position = take(data, at, _LENGTH.size, "length of an entry")
    (length,) = _LENGTH.unpack(raw_length)
    if length < 0:
        raise CorruptInputError("length of an entry", expected="0 or more", found=str(length), at=at)
    raw, end = take(data, position, length, "entry")
    segment, error = None, None
    try:
        segment = _decode(raw)
    except CorruptInputError as found:
        error = shifted(found, position)
    return SnapshotEntry(position=position, raw=raw, segment=segment, error=error), end


def _decode(raw: bytes) -> RemoteLogSegmentMetadataSnapshot:
    event = decode(raw, Dialect.KAFKA)
    if not isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise UnsupportedFormatError("entry", expected="a record of apiKey 3", found=f"a {event.type}", at=1)
    return event


def write(
    metadata_partition: int, metadata_offset: int, segments: Iterable[RemoteLogSegmentMetadataSnapshot]
) -> bytes:
    """Return the bytes of a file with one entry for each of `segments`."""
    values = [encode(segment, Dialect.KAFKA) for segment in segments]
    head = _HEADER.pack(VERSION, metadata_partition, metadata_offset, len(values))
    return head + b"".join(_LENGTH.pack(len(value)) + value for value in values)


def distinct_segments(
    segments: Iterable[RemoteLogSegmentMetadataSnapshot],
) -> tuple[RemoteLogSegmentMetadataSnapshot, ...]:
    """Return each segment once, in order of first appearance; of entries that differ, the last counts."""
    by_id: dict[Uuid, RemoteLogSegmentMetadataSnapshot] = {}
    for segment in segments:
        by_id[segment.segment_id] = segment
    return tuple(by_id.values())
