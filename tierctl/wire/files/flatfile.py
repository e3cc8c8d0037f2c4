"""The codec of KIP-405's flat-file store: one file with the events of one user partition.

Layout: uvarint magic 0, topic name (int16 length; early revisions of the KIP have none), topic id, zigzag
varlong metadata topic offset, then entries: uvarint length of the following, uvarint type, uvarint version,
record. Types 0 and 1 are the KIP's (RemoteLogSegmentMetadataRecordStored, DeletePartitionStateRecord).

Type 100, MetadataValueStored, is tierctl's: the KIP allows more types, and its own types cannot hold a broker
id, custom metadata, an empty transaction index or tags. It holds int64 metadata offset, int64 timestamp in
ms, and the value of the metadata topic's record (int32 length, bytes) exactly as it was read, in either
dialect. A reader that knows only types 0 and 1 skips it by its length. Every such entry names its own offset,
so entries may be appended first and the header's offset updated later.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model import (
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.stored import StoredRecord
from tierctl.wire.metadata.codec import RecordCodec
from tierctl.wire.metadata.schema import STORED_RECORDS
from tierctl.wire.primitives import (
    read_uvarint,
    read_varlong,
    shifted,
    take,
    truncated,
    write_uvarint,
    write_varlong,
)

MAGIC = 0
ENTRY_VERSION = 0

_CODECS = {schema.api_key: RecordCodec(schema) for schema in STORED_RECORDS}
_BY_RECORD = {codec.schema.event: codec for codec in _CODECS.values()}

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
    magic: int = MAGIC


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatFile:
    """The readable part of a file, `valid_bytes` long; `torn` is the error of the bytes after it, if any."""

    header: FlatFileHeader
    entries: tuple[FlatEntry, ...]
    valid_bytes: int
    torn: CorruptInputError | None = None

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """Return the records of the entries that could be read."""
        return tuple(entry.record for entry in self.entries if entry.record is not None)

    @property
    def damaged(self) -> tuple[CorruptInputError, ...]:
        """Return the errors of bad entries, of unknown entries and of the torn end."""
        errors = [entry.error for entry in self.entries if entry.error is not None]
        return (*errors, self.torn) if self.torn else tuple(errors)


def read(data: bytes) -> FlatFile:
    """Decode a file; the form of its header is detected.

    A bad entry is kept with its error, and the entries after it are read. Raise CorruptInputError for a
    header that cannot be read, UnsupportedFormatError for an unknown magic.
    """
    data = bytes(data)
    header, start = read_header(data)
    entries: list[FlatEntry] = []
    end, torn = start, None
    try:
        for entry in iter_entries(data, start):
            entries.append(entry)
            end = entry.end
    except CorruptInputError as error:
        torn = error
    return FlatFile(header=header, entries=tuple(entries), valid_bytes=end, torn=torn)


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
        error = shifted(found, position)
    return FlatEntry(start=start, position=position, end=end, raw=raw, record=record, error=error)


def _decode_entry(raw: bytes) -> StoredRecord:
    kind, at = read_uvarint(raw, 0, "type of an entry")
    codec = _CODECS.get(kind)
    if codec is None:
        known = ", ".join(map(str, _CODECS))
        raise UnsupportedFormatError("entry", expected=f"a type of {known}", found=f"type {kind}", at=0)
    version, body = read_uvarint(raw, at, "version of an entry")
    if version != ENTRY_VERSION:
        raise UnsupportedFormatError(
            codec.schema.name, expected=f"version {ENTRY_VERSION}", found=f"version {version}", at=at
        )
    record: StoredRecord = codec.decode(raw, body)
    return record


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
    return (
        write_uvarint(header.magic)
        + name
        + header.topic_id.bytes
        + write_varlong(header.metadata_topic_offset)
    )


def encode_entry(record: StoredRecord) -> bytes:
    """Return the bytes of one entry, to be appended to a file."""
    codec = _BY_RECORD[type(record)]
    head = write_uvarint(codec.schema.api_key) + write_uvarint(ENTRY_VERSION)
    body = codec.encode(record, bytearray(head))
    return write_uvarint(len(body)) + body


def write(header: FlatFileHeader, records: Iterable[StoredRecord]) -> bytes:
    """Return the bytes of a file."""
    return b"".join([encode_header(header), *map(encode_entry, records)])
