"""The codecs of cache files: KIP-405's flat file and `.remoteindex`, and Kafka 3's `remote_log_snapshot`."""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from struct import Struct as Packer
from typing import Self, TypeVar, cast

import numpy as np

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.files import FileBytes
from tierctl.kernel import int64, plain_kernel, prepare
from tierctl.model import (
    Dialect,
    MetadataEvent,
    RemoteLogSegmentMetadataSnapshot,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.events import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.decode import (
    ADD,
    EPOCH_COUNT,
    EPOCHS_AT,
    EVENT_TIMESTAMP,
    KIND,
    LAYOUTS,
    MAX_TIMESTAMP,
    ODD,
    SIZE,
    STORED,
    WIDTH,
    WRITER,
    Bytes,
    DecodedEvents,
    decode_as,
)
from tierctl.wire.metadata.schema import STORED_RECORDS
from tierctl.wire.metadata.values import RECORD_VERSION, decode, decode_record, encode, encode_record
from tierctl.wire.primitives import (
    read_uvarint,
    read_varlong,
    take,
    truncated,
    uvarint_at,
    write_uvarint,
    write_varlong,
)

# The codec of KIP-405's flat-file store: one file with the events of one user partition.
#
# Layout: uvarint magic 0, topic name (int16 length; early revisions of the KIP have none), topic id, zigzag
# varlong metadata topic offset, then entries: uvarint length of the following, uvarint type, uvarint version,
# record, of type 0 (RemoteLogSegmentMetadataRecordStored) or 1 (DeletePartitionStateRecord).

MAGIC = 0

_BY_TYPE = {schema.api_key: schema for schema in STORED_RECORDS}
_BY_RECORD = {schema.event: schema for schema in STORED_RECORDS}

# The number of entries that are decoded to find which of the two headers a file has.
_ENTRIES_TRIED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatFileHeader:
    """The partition of the file; `topic` is None in files of the early form.

    `metadata_topic_offset` is the offset of the metadata topic up to which the file is complete.
    """

    topic: str | None
    topic_id: Uuid
    metadata_topic_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatEntry:
    """One entry: `start` is the byte of its length, `position` of its type, `end` the byte after it.

    `raw` is type, version and record. If `record` is None, `error` is UnsupportedFormatError for an unknown
    type or version, and CorruptInputError for damage.
    """

    start: int
    position: int
    end: int
    raw: bytes
    record: StoredRecord | None
    error: CorruptInputError | None = None


def iter_entries(data: bytes, start: int) -> Iterator[FlatEntry]:
    """Yield the entries from byte `start`; raise CorruptInputError if the last entry is cut."""
    while start < len(data):
        entry = read_entry(data, start)
        yield entry
        start = entry.end


def read_entry(data: bytes, start: int) -> FlatEntry:
    """Return the entry whose length is at `start`; raise CorruptInputError if it is cut."""
    length, position = read_uvarint(data, start, "length of an entry")
    if length == 0 and not any(data[start : start + 64]) and not any(data[start:]):
        raise CorruptInputError("flat file", expected="an entry", found="zeros up to the end", at=start)
    raw, end = take(data, position, length, "entry")
    record, error = None, None
    try:
        record = _decode_entry(raw)
    except CorruptInputError as found:
        error = found.within(found.source, base=position)
    return FlatEntry(start=start, position=position, end=end, raw=raw, record=record, error=error)


def _decode_entry(raw: bytes) -> StoredRecord:
    kind, at = read_uvarint(raw, 0, "type of an entry")
    schema = _BY_TYPE.get(kind)
    if schema is None:
        known = ", ".join(map(str, _BY_TYPE))
        raise UnsupportedFormatError("entry", expected=f"a type of {known}", found=f"type {kind}", at=0)
    version, body = read_uvarint(raw, at, "version of an entry")
    if version != RECORD_VERSION:
        raise UnsupportedFormatError(
            schema.name, expected=f"version {RECORD_VERSION}", found=f"version {version}", at=at
        )
    record: StoredRecord = decode_record(schema, raw, body)
    return record


CHUNK_BYTES = 1 << 18
"""A chunk has the whole entries in this number of bytes, or a longer one."""
_ROWS_MAX = CHUNK_BYTES >> 5
_ENTRY_BYTES = 100
"""The bytes of an entry with three leader epochs."""


@dataclass(frozen=True, slots=True)
class EntryChunk:
    """Consecutive entries: the type of entry i is at byte `positions[i]` of the file, and its row is row i.

    `end` is the byte after the last entry.
    """

    rows: DecodedEvents
    positions: Int64s
    end: int

    def __len__(self) -> int:
        return len(self.positions)

    def record(self, row: int) -> StoredRecord:
        """Return the record of an entry; raise the error of one that can't be decoded."""
        return cast("StoredRecord", self.rows.event(row))


def read_chunks(file: FileBytes, start: int) -> Iterator[EntryChunk]:
    """Yield the entries from byte `start` to the end of a file, which is never in memory as a whole.

    Consecutive zeros, which are entries without bytes, are one row. Raise CorruptInputError if the last entry
    is cut, or OSError.
    """
    size = file.size_bytes
    prepare(max(size - start, 0) // _ENTRY_BYTES)
    at, wanted = start, CHUNK_BYTES
    while at < size:
        chunk = _chunk(file.read(at, wanted), at)
        if len(chunk):
            yield chunk
            at, wanted = chunk.end, CHUNK_BYTES
            continue
        data = file.read(at, wanted)
        if len(data) < wanted:  # The file was cut meanwhile, or ends here.
            size = at + len(data)
        try:
            length, body = read_uvarint(data, 0, "length of an entry")
        except CorruptInputError as error:
            raise error.within(error.source, base=at) from None
        if at + body + length > size:
            raise truncated("entry", needed=length, at=at + body, remaining=size - at - body)
        if length:
            wanted = body + length
            continue
        end = _end_of_zeros(file, at)
        found = f"{end - at} bytes of zeros"
        empty = CorruptInputError("entry", expected="a length above 0", found=found, at=at)
        odd = np.zeros((1, WIDTH), np.int64)
        odd[0, KIND] = ODD
        rows = DecodedEvents(np.empty(0, np.uint8), odd, np.empty((0, 2), np.int64), {}, {0: empty})
        yield EntryChunk(rows, np.array([at + body]), end)
        at = end


_NO_TIMESTAMP = -1
"""The largest timestamp of a segment whose records have none."""
_LEAST = {
    "event_timestamp_ms": 0,
    "max_timestamp_ms": _NO_TIMESTAMP,
    "segment_size_in_bytes": 0,
    "leader_epoch": 0,
    "epoch": 0,
}
"""The least value that brokers write, of each field of an entry that has one."""
_UNKNOWN = -1
"""Epoch and time of a deletion in a file that `cache build` wrote: the state has neither."""


def impossible_rows(chunk: EntryChunk) -> dict[int, CorruptInputError]:
    """Return the error of each entry that can be decoded and that no broker writes, by row."""
    rows, epochs = chunk.rows.rows, chunk.rows.epochs
    is_segment = rows[:, KIND] == ADD
    first, last = rows[:, EPOCHS_AT], rows[:, EPOCHS_AT] + rows[:, EPOCH_COUNT] - 1
    # Rows without epochs refer to a pair after the last one.
    pairs = np.concatenate([epochs, np.zeros((1, 2), np.int64)])
    steps = np.diff(pairs, axis=0)
    descending = np.cumsum(np.r_[0, (steps[:, 0] <= 0) | (steps[:, 1] < 0)])
    of_segment = (rows[:, MAX_TIMESTAMP] < _NO_TIMESTAMP) | (rows[:, SIZE] < 0)
    of_segment |= (pairs[first] < 0).any(axis=1) | (descending[last] > descending[first])
    is_wrong = (rows[:, EVENT_TIMESTAMP] < 0) | (rows[:, WRITER] < 0) | (is_segment & of_segment)
    candidates = np.flatnonzero(is_wrong & (rows[:, KIND] != ODD)).tolist()
    found = ((row, impossible_field(chunk.record(row), int(chunk.positions[row]))) for row in candidates)
    return {row: error for row, error in found if error is not None}


def impossible_field(
    record: StoredRecord | RemoteLogSegmentMetadataSnapshot, at: int
) -> CorruptInputError | None:
    """Return the error of the first field of an entry, at byte `at`, that no broker writes so; None without.

    An entry with an end offset below its start offset, or a negative one, can't be decoded.
    """
    is_deletion = isinstance(record, StoredPartitionState)
    for name, known in _LEAST.items():
        least = _UNKNOWN if is_deletion else known
        value = getattr(record, name, least)
        if value < least:
            return CorruptInputError(f"entry, {name}", expected=f"{least} or more", found=str(value), at=at)
    epochs = () if isinstance(record, StoredPartitionState) else record.segment_leader_epochs
    is_ascending = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(epochs))
    if is_ascending and all(epoch >= 0 and start >= 0 for epoch, start in epochs):
        return None
    shown = ", ".join(f"{epoch} from {start}" for epoch, start in epochs)
    expected = "leader epochs and offsets of at least 0 that ascend"
    return CorruptInputError("entry, segment_leader_epochs", expected=expected, found=shown, at=at)


def _end_of_zeros(file: FileBytes, start: int) -> int:
    """Return the end of the zeros from `start` on; raise CorruptInputError if no other byte follows."""
    at = start
    while data := file.read(at, CHUNK_BYTES):
        rest = data.lstrip(b"\0")
        if rest:
            return at + len(data) - len(rest)
        at += len(data)
    raise CorruptInputError("flat file", expected="an entry", found="zeros up to the end", at=start)


@plain_kernel
def _decode_entries(
    data: Bytes, layouts: Int64s, rows: Int64s, epochs: Int64s, places: Int64s
) -> tuple[int, int, int]:
    """Decode entries of a flat file (length, type, record) until one is cut or empty.

    Entry i becomes row i, of kind ODD if the scalar codec must decide about it. `places[i]` are the positions
    of its length and of its type. Return the number of entries, of `epochs` in use, and the position after
    the last entry.
    """
    at, used, count, end = int64(0), int64(0), int64(0), int64(len(data))
    while count < len(rows) and at < end:
        length, body = uvarint_at(data, at, end)
        if body < 0 or length == 0 or length > end - body:
            break
        found = decode_as(data, body, body + length, STORED, layouts, rows[count], epochs, used)
        if found >= 0:
            used = found
        else:
            rows[count] = 0
            rows[count, KIND] = ODD
        places[count, 0], places[count, 1] = at, body
        at, count = body + length, count + 1
    return count, used, at


def _chunk(raw: bytes, base: int) -> EntryChunk:
    """Return the whole entries at the beginning of `raw`, which is at byte `base` of the file."""
    data = np.frombuffer(raw, np.uint8)
    rows = np.zeros((_ROWS_MAX, WIDTH), np.int64)
    epochs = np.empty((len(raw) // 12, 2), np.int64)
    places = np.empty((_ROWS_MAX, 2), np.int64)
    count, used, end = _decode_entries(data, LAYOUTS, rows, epochs, places)
    found = DecodedEvents(data, rows[:count], epochs[:used], {}, {})
    for row in np.flatnonzero(found.rows[:, KIND] == ODD).tolist():
        entry = read_entry(raw, int(places[row, 0]))
        if entry.error is not None:
            found.errors[row] = entry.error.within(entry.error.source, base=base)
        else:
            found.events[row] = cast("MetadataEvent", entry.record)
    return EntryChunk(found, places[:count, 1] + base, end + base)


def read_header(data: bytes) -> tuple[FlatFileHeader, int]:
    """Return the header and the byte at which the entries begin; the form of the header is detected.

    Both forms begin alike. Of the two, the one after which more entries can be read is right; if both are
    equal, the form with a topic name, because an id rarely begins like a legal name.
    """
    magic, at = read_uvarint(data, 0, "magic of a flat file")
    if magic != MAGIC:
        raise UnsupportedFormatError("flat file", expected=f"magic {MAGIC}", found=f"magic {magic}", at=0)
    try:
        named = _read_named(data, at)
    except CorruptInputError as error:
        return _read_unnamed_unless_cut(data, at, error)
    try:
        unnamed = _read_unnamed(data, at)
    except CorruptInputError:
        return named
    is_legal = is_legal_topic_name(named[0].topic or "")
    return named if (*_fit(data, named[1]), is_legal) >= (*_fit(data, unnamed[1]), not is_legal) else unnamed


def _read_unnamed_unless_cut(
    data: bytes, at: int, named_error: CorruptInputError
) -> tuple[FlatFileHeader, int]:
    header, start = _read_unnamed(data, at)
    if _begins_with_name(data, at) and _fit(data, start)[1] == 0:
        raise named_error
    return header, start


def _begins_with_name(data: bytes, at: int) -> bool:
    length = int.from_bytes(data[at : at + 2], "big")
    name = data[at + 2 : at + 2 + length].decode("ascii", "replace")
    return 0 < length <= 249 and is_legal_topic_name(name)


def _fit(data: bytes, start: int) -> tuple[bool, int]:
    """Return whether the first entries from `start` can all be read, and how many can be read in a row."""
    good = 0
    try:
        for entry in iter_entries(data, start):
            if entry.record is None:
                return False, good
            good += 1
            if good == _ENTRIES_TRIED:
                break
    except CorruptInputError:
        return False, good
    return True, good


def _read_named(data: bytes, at: int) -> tuple[FlatFileHeader, int]:
    raw_length, at = take(data, at, 2, "length of the topic name")
    length = int.from_bytes(raw_length, "big", signed=True)
    if length < 1:
        raise CorruptInputError("topic name", expected="at least 1 byte", found=str(length), at=at - 2)
    raw_name, after = take(data, at, length, "topic name")
    try:
        topic = raw_name.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {raw_name[error.start]:#04x}"
        raise CorruptInputError("topic name", expected="UTF-8", found=found, at=at + error.start) from None
    return _read_rest(data, after, topic)


def _read_unnamed(data: bytes, at: int) -> tuple[FlatFileHeader, int]:
    return _read_rest(data, at, None)


def _read_rest(data: bytes, at: int, topic: str | None) -> tuple[FlatFileHeader, int]:
    if len(data) - at < 16:
        raise truncated("topic id", needed=16, at=at, remaining=len(data) - at)
    topic_id, at = Uuid.from_bytes(data[at : at + 16]), at + 16
    offset, at = read_varlong(data, at, "metadata topic offset")
    return FlatFileHeader(topic=topic, topic_id=topic_id, metadata_topic_offset=offset), at


def encode_header(header: FlatFileHeader) -> bytes:
    """Return the bytes of the header, with a topic name unless `topic` is None."""
    name = b""
    if header.topic is not None:
        raw = header.topic.encode("utf-8")
        if not 0 < len(raw) <= 0x7FFF:
            raise UsageError(f"a topic name of {len(raw)} bytes can't be written")
        name = len(raw).to_bytes(2, "big") + raw
    return write_uvarint(MAGIC) + name + header.topic_id.bytes + write_varlong(header.metadata_topic_offset)


def encode_entry(record: StoredRecord) -> bytes:
    """Return the bytes of one entry, to be appended to a file."""
    body = encode_record(_BY_RECORD[type(record)], record)
    return write_uvarint(len(body)) + body


_ENTRIES_JOINED = 1 << 12


def written(header: FlatFileHeader, entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file with encoded entries in chunks, so that few of these are in memory."""
    yield encode_header(header)
    left = iter(entries)
    while chunk := b"".join(islice(left, _ENTRIES_JOINED)):
        yield chunk


# The codec of Kafka's `remote_log_snapshot`, which Kafka 3.1 to 3.5 write to a user partition's folder. 3.6
# and 3.7 make it empty.
#
# Layout (RemoteLogMetadataSnapshotFile): int16 version 0, int32 metadata partition, int64 metadata offset,
# int32 count, then per entry an int32 length and a framed record of apiKey 3. A segment with several leader
# epochs has one entry per epoch. An empty file is normal: it is written before the first event.

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


def read_snapshot(data: bytes) -> RemoteLogSnapshot | None:
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
    if partition < 0:
        at = _VERSION.size
        raise CorruptInputError("metadata partition", expected="0 or more", found=str(partition), at=at)
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
        error = found.within(found.source, base=position)
    return SnapshotEntry(position=position, raw=raw, segment=segment, error=error), end


def _decode(raw: bytes) -> RemoteLogSegmentMetadataSnapshot:
    event = decode(raw, Dialect.KAFKA)
    if not isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise UnsupportedFormatError("entry", expected="a record of apiKey 3", found=f"a {event.type}", at=1)
    return event


def write_snapshot(
    metadata_partition: int, metadata_offset: int, segments: Iterable[RemoteLogSegmentMetadataSnapshot]
) -> bytes:
    """Return the bytes of a file with one entry for each of `segments`."""
    values = [encode(segment, Dialect.KAFKA) for segment in segments]
    head = _HEADER.pack(VERSION, metadata_partition, metadata_offset, len(values))
    return head + b"".join(_LENGTH.pack(len(value)) + value for value in values)


S = TypeVar("S", RemoteLogSegmentMetadataSnapshot, StoredSegment)


def distinct_segments(segments: Iterable[S]) -> tuple[S, ...]:
    """Return the last entry of each segment, in the order of these entries.

    Kafka 3 writes a segment once for each of its leader epochs, and adds the entries to its cache in the
    order of the file: of two segments that begin alike in an epoch, the later entry is the one that serves.
    """
    by_id: dict[Uuid, S] = {}
    for segment in segments:
        by_id.pop(segment.segment_id, None)
        by_id[segment.segment_id] = segment
    return tuple(by_id.values())


# `.remoteindex` files of KIP-405's early design: the start offsets of a partition's remote segments.
#
# A file is named after the start offset of its first segment. It holds, per segment, the start offset
# relative to that of the first as 4 bytes, big-endian, as in an offset index. A new file begins when the
# file is full or old, or when an offset does not fit.
#
# Source: KIP-405's first revision, "RemoteLogSegmentIndex".

REMOTE_INDEX_SUFFIX = ".remoteindex"

_NAME = re.compile(r"(?P<base>[0-9]{1,20})\.remoteindex\Z")
_ENTRY = struct.Struct(">i")
REMOTE_INDEX_ENTRY_SIZE = _ENTRY.size
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIndexFile:
    """One file: its base offset, and the segments' start offsets (the first is the base)."""

    base_offset: int
    start_offsets: tuple[int, ...]

    @classmethod
    def decode(cls, name: str, data: bytes) -> Self:
        """Decode a file from its name and bytes; preallocated zeros at the end are not entries.

        Raise CorruptInputError for another name, a cut entry, or offsets that do not ascend.
        """
        base = remote_index_base_offset(name)
        if len(data) % _ENTRY.size:
            whole = len(data) - len(data) % _ENTRY.size
            raise CorruptInputError(
                "remote index",
                expected=f"a multiple of {_ENTRY.size} bytes",
                found=f"{len(data)} bytes",
                at=whole,
                source=name,
            )
        return cls(base_offset=base, start_offsets=_starts(base, data, name))


def parse_remote_index_name(name: str) -> int | None:
    """Return the base offset in a file's name; None if it is not the name of a remote index."""
    match = _NAME.match(name)
    return int(match["base"]) if match and int(match["base"]) <= _OFFSET_MAX else None


def remote_index_base_offset(name: str) -> int:
    """Return the base offset in a file's name; raise CorruptInputError if there is none."""
    base = parse_remote_index_name(name)
    if base is None:
        raise CorruptInputError(
            "remote index", expected=f"a name OFFSET{REMOTE_INDEX_SUFFIX}", found=repr(name[:200])
        )
    return base


def _starts(base: int, data: bytes, name: str | None = None, *, at: int = 0) -> tuple[int, ...]:
    """Return the start offsets in `data`, which are at byte `at` of the file, up to the preallocated zeros.

    The first entry of the file is always 0. Raise CorruptInputError if the offsets do not ascend.
    """
    is_head = at == 0
    used = max(-(-len(data.rstrip(b"\x00")) // _ENTRY.size), 1 if data and is_head else 0)
    relative = [value for (value,) in _ENTRY.iter_unpack(data[: used * _ENTRY.size])]
    for number, (before, after) in enumerate(pairwise([-1 if is_head else 0, *relative])):
        is_first = is_head and number == 0
        if after <= before or (is_first and after != 0) or after > _OFFSET_MAX - base:
            raise CorruptInputError(
                "remote index",
                expected="0" if is_first else f"an offset above {before}",
                found=str(after),
                at=at + number * _ENTRY.size,
                source=name,
            )
    return tuple(base + value for value in relative)


def find_remote_index_entry(file: FileBytes, base_offset: int, offset: int) -> tuple[int, int] | None:
    """Return the position and the start offset of the last segment that begins at or before `offset`.

    Return None if all segments begin later. It is a binary search, as in Kafka's OffsetIndex: only the
    entries that it compares, and those beside the result, are read. Raise CorruptInputError if these do not
    ascend, so that the search may have missed the entry, or OSError.
    """
    first, end = 0, file.size_bytes // REMOTE_INDEX_ENTRY_SIZE
    size_bytes = end * REMOTE_INDEX_ENTRY_SIZE
    while first < end:
        number = (first + end) // 2
        entry = remote_index_entry_at(file, base_offset, number * REMOTE_INDEX_ENTRY_SIZE)
        if entry is None or entry[1] > offset:
            end = number
        else:
            first = number + 1
    if first == 0:
        return None
    position = (first - 1) * REMOTE_INDEX_ENTRY_SIZE
    start = max(position - REMOTE_INDEX_ENTRY_SIZE, 0)
    beside = min(position + 3 * REMOTE_INDEX_ENTRY_SIZE, size_bytes) - start
    _starts(base_offset, file.read(start, beside), at=start)
    return remote_index_entry_at(file, base_offset, position)


def remote_index_entry_at(file: FileBytes, base_offset: int, position: int) -> tuple[int, int] | None:
    """Return `position` and the start offset of the entry there; None if none begins there.

    Raise CorruptInputError for an offset that no entry there has, or OSError.
    """
    data = file.read(position, REMOTE_INDEX_ENTRY_SIZE)
    if position % REMOTE_INDEX_ENTRY_SIZE or len(data) < REMOTE_INDEX_ENTRY_SIZE:
        return None
    starts = _starts(base_offset, data, at=position)
    return (position, starts[0]) if starts else None
