"""Records and entries of indexes as rows for output, and keys of records as an operator gives them."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from tierctl.errors import TierctlError, UnsupportedFormatError, UsageError
from tierctl.model import IndexType, TopicIdPartition
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.wire.files.checkpoints import decode_producer_snapshot, read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierctl.wire.primitives import at_most, limits

if TYPE_CHECKING:
    # The command line needs `Binary` at start-up, when pyarrow must not be imported.
    from tierctl.read.partition_reader import FetchedRecord


KEY_FORMS = "text, or hex:, base64: or sha256: and the key's bytes or their digest"
_DIGEST_BYTES = 32


class Binary(StrEnum):
    """How keys, values and header values are written as text."""

    AUTO = "auto"
    UTF8 = "utf8"
    BASE64 = "base64"
    HEX = "hex"
    SHA256 = "sha256"


Encoded = tuple[str | None, str | None]
"""Text and the name of its encoding; both None for null."""


def encoder(binary: Binary) -> Callable[[bytes | None], Encoded]:
    """Return the function that writes bytes as text: `auto` as UTF-8 where valid, otherwise as base64.

    `utf8` writes invalid bytes as escapes, which can't be decoded again; `sha256` writes the digest in hex.
    """
    if binary is Binary.AUTO:
        return _auto
    if binary is Binary.SHA256:
        return _digests
    write = _WRITERS[binary]
    return lambda data: (None, None) if data is None else (write(data), str(binary))


def _auto(data: bytes | None) -> Encoded:
    if data is None:
        return None, None
    try:
        return data.decode("utf-8"), str(Binary.UTF8)
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii"), str(Binary.BASE64)


def _digests(data: bytes | None) -> Encoded:
    return (None, None) if data is None else (hashlib.sha256(data).hexdigest(), str(Binary.SHA256))


_WRITERS: dict[Binary, Callable[[bytes], str]] = {
    Binary.UTF8: lambda data: data.decode("utf-8", errors="backslashreplace"),
    Binary.BASE64: lambda data: base64.b64encode(data).decode("ascii"),
    Binary.HEX: bytes.hex,
}


class RecordRow(TypedDict):
    """A record of a user topic."""

    topic: Annotated[str, f.TOPIC, Shown(1)]
    topic_id: Annotated[str, f.TOPIC_ID]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    offset: Annotated[int, f.OFFSET, Shown(0)]
    timestamp_ms: Annotated[int, f.TIMESTAMP_MS, Shown(2)]
    timestamp_type: Annotated[
        str, Field(Kind.WORD, "CreateTime, LogAppendTime, or NoTimestampType for message format 0")
    ]
    leader_epoch: Annotated[int | None, f.LEADER_EPOCH, Shown(4)]
    key: Annotated[
        str | None,
        Field(
            Kind.CONTENT, "key of the record; of a finding the object in the store, or the folder of a log"
        ),
        Shown(3),
    ]
    key_encoding: Annotated[str | None, Field(Kind.WORD, "how the key is written as text")]
    value: Annotated[str | None, Field(Kind.CONTENT, "value of the record"), Shown(0)]
    value_encoding: Annotated[str | None, Field(Kind.WORD, "how the value is written as text")]
    headers: Annotated[
        list[dict[str, Any]],
        Field(Kind.LIST, "headers of the record: objects with key, value and value_encoding"),
        Shown(5),
    ]


RECORDS = Columns(
    RecordRow,
    name="records",
    title="Records of topics",
    commands="fetch",
    noun="record",
)


def record_row(
    partition: TopicIdPartition,
    record: "FetchedRecord",
    encode: Callable[[bytes | None], Encoded],
    report: Callable[[TierctlError], None],
) -> RecordRow:
    """Return a record as a row.

    Text takes several times the memory of its bytes: a record of more than `Limits.text_bytes` has digests in
    place of key, value and header values, and shortened header names, and is reported.
    """
    headers, size = record.headers, _size_bytes(record)
    if size > limits().text_bytes:
        if encode is not _digests:
            report(_too_large(partition, record.offset, size))
            encode = _digests
        name_size = limits().text_bytes // max(len(headers), 1)
        headers = tuple((name[:name_size], data) for name, data in headers)
    key, key_encoding = encode(record.key)
    value, value_encoding = encode(record.value)
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [_header(name, data, encode) for name, data in headers],
    }


def _size_bytes(record: "FetchedRecord") -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(data or b"") for name, data in record.headers)


def _too_large(partition: TopicIdPartition, offset: int, size: int) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"record at offset {offset}",
        expected=at_most(limits().text_bytes, "bytes to print"),
        found=str(size),
        source=str(partition.topic_partition),
        hint="SHA-256 digests are printed in place of its key and values",
    )


def _header(name: str, data: bytes | None, encode: Callable[[bytes | None], Encoded]) -> dict[str, Any]:
    value, value_encoding = encode(data)
    return {"key": name, "value": value, "value_encoding": value_encoding}


def parse_key(text: str) -> bytes:
    """Return the SHA-256 of the key that `text` gives in one of KEY_FORMS; UsageError for any other text."""
    if not text:
        raise UsageError("expected a key, found nothing", hint="the empty key is written hex:")
    form, colon, rest = text.partition(":")
    decode = _FORMS.get(form) if colon else None
    if decode is None:
        return hashlib.sha256(text.encode()).digest()
    try:
        digest = decode(rest)
    except ValueError as e:
        raise UsageError(
            f"{form}:... is no key: {e}",
            hint=f"{KEY_FORMS}; write a key that begins with hex: or base64: in base64:",
        ) from e
    return digest


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != _DIGEST_BYTES:
        raise ValueError(f"expected 64 hex digits, found {len(text)} characters")
    return digest


_FORMS: dict[str, Callable[[str], bytes]] = {
    "hex": lambda text: hashlib.sha256(bytes.fromhex(text)).digest(),
    "base64": lambda text: hashlib.sha256(base64.b64decode(text, validate=True)).digest(),
    "sha256": _digest,
}


class OffsetEntry(TypedDict):
    """An entry of the offset index."""

    offset: Annotated[int, f.OFFSET, Shown(0)]
    position: Annotated[int, f.POSITION, Shown(0)]


class TimestampEntry(TypedDict):
    """An entry of the timestamp index."""

    timestamp_ms: Annotated[int, f.TIMESTAMP_MS, Shown(0)]
    offset: Annotated[int, f.OFFSET, Shown(0)]


class TransactionEntry(TypedDict):
    """An entry of the transaction index."""

    producer_id: Annotated[int, f.PRODUCER_ID, Shown(0)]
    first_offset: Annotated[int, Field(Kind.NUMBER, "first offset of the transaction"), Shown(0)]
    last_offset: Annotated[int, f.LAST_OFFSET, Shown(0)]
    last_stable_offset: Annotated[
        int, Field(Kind.NUMBER, "last stable offset when the marker was appended"), Shown(0)
    ]


class ProducerSnapshotEntry(TypedDict):
    """An entry of the producer-snapshot index."""

    producer_id: Annotated[int, f.PRODUCER_ID, Shown(0)]
    epoch: Annotated[int, f.EPOCH, Shown(0)]
    last_sequence: Annotated[int, Field(Kind.NUMBER, "last sequence number of the last batch"), Shown(1)]
    last_offset: Annotated[int, f.LAST_OFFSET, Shown(0)]
    offset_delta: Annotated[int, Field(Kind.NUMBER, "last minus first offset of the last batch"), Shown(4)]
    timestamp_ms: Annotated[int, f.TIMESTAMP_MS, Shown(2)]
    coordinator_epoch: Annotated[
        int, Field(Kind.NUMBER, "epoch of the coordinator of the last transaction marker"), Shown(5)
    ]
    current_txn_first_offset: Annotated[
        int, Field(Kind.NUMBER, "first offset of the open transaction; -1 for none"), Shown(3)
    ]


class LeaderEpochEntry(TypedDict):
    """An entry of the leader-epoch index."""

    epoch: Annotated[int, f.EPOCH, Shown(0)]
    start_offset: Annotated[int, f.START_OFFSET, Shown(0)]


INDEXES: Final[Mapping[IndexType, Columns]] = {
    kind: Columns(
        entry,
        name=f"{kind.value}-index",
        title=f"Entries of the {kind.value} index",
        commands=f"fetch --index {kind.value}",
        noun="entry/entries",
    )
    for kind, entry in (
        (IndexType.OFFSET, OffsetEntry),
        (IndexType.TIMESTAMP, TimestampEntry),
        (IndexType.TRANSACTION, TransactionEntry),
        (IndexType.PRODUCER_SNAPSHOT, ProducerSnapshotEntry),
        (IndexType.LEADER_EPOCH, LeaderEpochEntry),
    )
}


def index_rows(data: bytes, index_type: IndexType, base_offset: int) -> Iterable[dict[str, Any]]:
    """Return one row per entry, with the fields of the entry; raise CorruptInputError for a damaged index."""
    entries: Iterable[Any]
    match index_type:
        case IndexType.OFFSET:
            entries = OffsetIndex.decode(data, base_offset)
        case IndexType.TIMESTAMP:
            entries = TimeIndex.decode(data, base_offset)
        case IndexType.TRANSACTION:
            entries = TransactionIndex.decode(data, base_offset).entries
        case IndexType.PRODUCER_SNAPSHOT:
            entries = decode_producer_snapshot(data)
        case IndexType.LEADER_EPOCH:
            entries = read_leader_epoch_checkpoint(data)
    return (entry._asdict() for entry in entries)
