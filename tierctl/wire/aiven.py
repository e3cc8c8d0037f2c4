"""Files that Aiven's plugin writes beside a segment: manifests, chunk indexes, custom metadata.

The functions are pure: bytes in, values out.
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded, UnsupportedFormatError, UsageError
from tierctl.model import IndexType, RemoteLogSegmentMetadata, Uuid
from tierctl.wire.batches.batch_head import CompressionType, decompress
from tierctl.wire.primitives import (
    at_most,
    limits,
    read_uvarint,
    read_varlong,
    take,
    write_uvarint,
    write_varlong,
)

# Chunk indexes of Aiven's manifests: the position of each chunk of a log in its object.
#
# Source: io.aiven.kafka.tieredstorage.manifest.index (its TransformedChunksSerializer's binary form
# included).

SIZE_MAX = (1 << 31) - 1
"""Sizes and positions are Java ints."""

_CHUNK_SIZES = "transformed chunk sizes"
_ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of a log; `original_*` are bytes of the broker's log, `stored_*` bytes of the object."""

    original_position: int
    original_size: int
    stored_position: int
    stored_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndex:
    """The chunks of one log, in order; each but the last has `original_chunk_size` bytes of the log.

    `fixed` says that all chunks but the last have the same stored size, which a manifest writes once.
    """

    original_chunk_size: int
    original_file_size: int
    stored_sizes: Sequence[int]
    fixed: bool
    _ends: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expected = -(-self.original_file_size // self.original_chunk_size)
        # The plugin writes one chunk of 0 bytes for an empty file.
        if len(self.stored_sizes) != expected and not (expected == 0 and not any(self.stored_sizes)):
            raise CorruptInputError(
                "chunk index", expected=f"{expected} chunks", found=str(len(self.stored_sizes))
            )
        object.__setattr__(self, "_ends", list(accumulate(self.stored_sizes)))

    @property
    def stored_size(self) -> int:
        """Size of the object in bytes."""
        return self._ends[-1] if self._ends else 0

    def chunks(self, start: int, end: int) -> Iterator[Chunk]:
        """Yield the chunks that contain the bytes of the log from `start` to `end` (exclusive)."""
        end = min(end, self.original_file_size)
        if start < end:
            size = self.original_chunk_size
            for at in range(start // size, -(-end // size)):
                yield Chunk(
                    original_position=at * size,
                    original_size=min(size, self.original_file_size - at * size),
                    stored_position=self._ends[at] - self.stored_sizes[at],
                    stored_size=self.stored_sizes[at],
                )


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Encode sizes: their count, the least size, each difference to it in few bytes, the last size."""
    if not sizes:
        return struct.pack(">i", 0)
    *but_last, last = sizes
    if not but_last:
        return struct.pack(">ii", 1, last)
    least = min(but_last)
    width = max(1, -(-(max(but_last) - least).bit_length() // 8))
    deltas = b"".join((size - least).to_bytes(width, "big") for size in but_last)
    return struct.pack(">iib", len(sizes), least, width) + deltas + struct.pack(">i", last)


def decode_sizes(raw: bytes) -> list[int]:
    """Decode the result of `encode_sizes`; raise CorruptInputError for other bytes."""
    count = _int(raw, 0)
    if count == 0:
        return _whole(raw, 4, [])
    if count == 1:
        return _whole(raw, 8, [_int(raw, 4)])
    least = _int(raw, 4)
    width = raw[8] if len(raw) > 8 else 0
    if not 1 <= width <= 4:
        raise CorruptInputError(_CHUNK_SIZES, expected="1 to 4 bytes a value", found=str(width), at=8)
    end = 9 + (count - 1) * width
    if end + 4 != len(raw):
        raise CorruptInputError(_CHUNK_SIZES, expected=f"{end + 4} bytes", found=f"{len(raw)}", at=9)
    sizes = [least + int.from_bytes(raw[at : at + width], "big") for at in range(9, end, width)]
    return [*sizes, _int(raw, end)]


def _int(raw: bytes, at: int) -> int:
    value = int.from_bytes(raw[at : at + 4], "big", signed=True)
    if at + 4 > len(raw) or value < 0:
        found = "a negative one" if at + 4 <= len(raw) else "the end"
        raise CorruptInputError(_CHUNK_SIZES, expected="a number", found=found, at=at)
    return value


def _whole(raw: bytes, end: int, sizes: list[int]) -> list[int]:
    if len(raw) != end:
        raise CorruptInputError(_CHUNK_SIZES, expected=f"{end} bytes", found=str(len(raw)), at=end)
    return sizes


def sizes_to_text(sizes: Sequence[int]) -> str:
    """Encode sizes as a manifest contains them: base64 of one zstd frame."""
    return base64.b64encode(compress_chunk(encode_sizes(sizes))).decode("ascii")


def sizes_from_text(text: str) -> list[int]:
    """Decode the result of `sizes_to_text`; raise CorruptInputError for other text."""
    try:
        packed = base64.b64decode(text, validate=True)
        return decode_sizes(decompress(CompressionType.ZSTD, packed, max_bytes=13 + 4 * limits().chunks))
    except ValueError as e:
        raise CorruptInputError(_CHUNK_SIZES, expected="base64", found=str(e)) from None
    except LimitExceeded:
        raise too_many_chunks("more") from None


def too_many_chunks(found: str) -> UnsupportedFormatError:
    """Return the error for a log with more chunks than are read."""
    return UnsupportedFormatError(
        "chunks of a log in Aiven's manifest",
        expected=at_most(limits().chunks, "chunks"),
        found=found,
        hint="the manifest is damaged or malicious, or chunk.size is far too low for this topic",
    )


def compress_chunk(data: bytes) -> bytes:
    """Compress a chunk to one zstd frame that contains the original size, which the plugin requires."""
    return bytes(pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(data, asbytes=True))


def decompress_chunk(data: bytes, original_size: int) -> bytes:
    """Return the `original_size` bytes of a chunk; raise CorruptInputError if `data` are damaged."""
    try:
        out = decompress(CompressionType.ZSTD, data, max_bytes=original_size)
    except LimitExceeded:
        out = None
    if out is None or len(out) != original_size:
        found = "more" if out is None else f"{len(out)}"
        raise CorruptInputError("compressed chunk", expected=f"{original_size} bytes", found=found)
    return out


REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY = range(3)
FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")
"""Names of the fields by tag, as custom.metadata.fields.include lists them."""

_CUSTOM_METADATA = "Aiven's custom metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenCustomMetadata:
    """The fields that the plugin was configured to store; None for a field that is not stored.

    The segment's keys are `object_prefix` + `object_key` + a suffix; `remote_size` is the sum of the sizes of
    its objects.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def read_custom_metadata(raw: bytes | None) -> AivenCustomMetadata:
    """Decode custom metadata without unknown fields; all fields are None for no bytes.

    Raise CorruptInputError for bytes that are not such a section.
    """
    if not raw:
        return AivenCustomMetadata()
    count, at = read_uvarint(raw, 0, f"{_CUSTOM_METADATA}, number of fields")
    fields: dict[int, bytes] = {}
    for _ in range(count):
        tag, at = read_uvarint(raw, at, f"{_CUSTOM_METADATA}, tag")
        if fields and tag <= next(reversed(fields)):
            raise CorruptInputError(_CUSTOM_METADATA, expected="ascending tags", found=str(tag), at=at)
        size, at = read_uvarint(raw, at, f"{_CUSTOM_METADATA}, size")
        fields[tag], at = take(raw, at, size, _CUSTOM_METADATA)
    if at != len(raw):
        raise CorruptInputError(
            _CUSTOM_METADATA, expected="nothing more", found=f"{len(raw) - at} bytes", at=at
        )
    return AivenCustomMetadata(
        remote_size=_field_number(fields[REMOTE_SIZE]) if REMOTE_SIZE in fields else None,
        object_prefix=_field_text(fields[OBJECT_PREFIX]) if OBJECT_PREFIX in fields else None,
        object_key=_field_text(fields[OBJECT_KEY]) if OBJECT_KEY in fields else None,
    )


def write_custom_metadata(fields: AivenCustomMetadata) -> bytes | None:
    """Encode custom metadata; return None if there are no fields, as the plugin does."""
    values: dict[int, bytes] = {}
    if fields.remote_size is not None:
        values[REMOTE_SIZE] = write_varlong(fields.remote_size)
    for tag, text in ((OBJECT_PREFIX, fields.object_prefix), (OBJECT_KEY, fields.object_key)):
        if text is not None:
            values[tag] = write_uvarint(len(text.encode()) + 1) + text.encode()
    if not values:
        return None
    section = b"".join(write_uvarint(tag) + write_uvarint(len(raw)) + raw for tag, raw in values.items())
    return write_uvarint(len(values)) + section


def _field_number(raw: bytes) -> int:
    value, end = read_varlong(raw, 0, "REMOTE_SIZE")
    if end != len(raw):
        raise CorruptInputError(_CUSTOM_METADATA, expected="one number", found=f"{len(raw)} bytes", at=end)
    return value


def _field_text(raw: bytes) -> str:
    length, at = read_uvarint(raw, 0, f"{_CUSTOM_METADATA}, length")
    if length - 1 != len(raw) - at:
        raise CorruptInputError(
            _CUSTOM_METADATA, expected=f"a text of {len(raw) - at} bytes", found=str(length - 1)
        )
    try:
        return raw[at:].decode()
    except UnicodeDecodeError as e:
        raise CorruptInputError(_CUSTOM_METADATA, expected="UTF-8", found=str(e)) from None


# Manifests of Aiven's plugin, version 1: JSON beside each segment's log and indexes.
#
# Source: io.aiven.kafka.tieredstorage.manifest.SegmentManifestV1.

MANIFEST_MAX_BYTES = 64 << 20

_MANIFEST = "Aiven's manifest"
_INT_MAX = (1 << 31) - 1
_EPOCH_DIGITS = 10
_PUFFIN_MAGIC = b"PFA1"
INDEX_NAMES = {
    IndexType.OFFSET: "offset",
    IndexType.TIMESTAMP: "timestamp",
    IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexType.LEADER_EPOCH: "leaderEpoch",
    IndexType.TRANSACTION: "transaction",
}
"""The name of each index in a manifest, in the order of manifests and of the object with all indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """Position and stored size of an index in the object that contains all indexes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """The AES key of a segment, encrypted by the RSA key `key_id`, and the additional data of AES-GCM."""

    key_id: str
    encrypted_data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a manifest that readers need; `indexes` has None for a missing index."""

    chunk_index: ChunkIndex
    indexes: Mapping[IndexType, IndexRange | None]
    compression: bool
    encryption: Encryption | None = None


def read_manifest(raw: bytes) -> Manifest:
    """Decode a manifest.

    Raise CorruptInputError for other bytes, and UnsupportedFormatError for segment format `iceberg` and for
    later versions.
    """
    if raw.startswith(_PUFFIN_MAGIC):
        raise iceberg("a Puffin file")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise CorruptInputError(_MANIFEST, expected="JSON", found=str(e)) from None
    if not isinstance(document, dict):
        raise _wrong("manifest", "an object", document)
    if str(document.get("segmentFormat", "kafka")).lower() == "iceberg":
        raise iceberg("it in a manifest")
    version = document.get("version")
    if version != "1":
        raise UnsupportedFormatError(_MANIFEST, expected="version 1", found=f"version {version!r}")
    compression = document.get("compression")
    if not isinstance(compression, bool):
        raise _wrong("compression", "true or false", compression)
    encryption = document.get("encryption")
    return Manifest(
        chunk_index=_chunk_index(_member(document, "chunkIndex")),
        indexes=_indexes(_member(document, "segmentIndexes")),
        compression=compression,
        encryption=None if encryption is None else _encryption(_member(document, "encryption")),
    )


def read_segment_metadata(raw: bytes, manifest: Manifest) -> RemoteLogSegmentMetadata:
    """Return the segment's metadata in a manifest; `manifest` is the result of `read_manifest(raw)`.

    The plugin writes the manifest before the custom metadata is known, so it has none. Manifests of plugins
    for Kafka before 4.0 do not state whether the transaction index is empty: it is empty if it does not
    exist. Raise CorruptInputError for missing or wrong members.
    """
    document = _member(json.loads(raw), "remoteLogSegmentMetadata")
    ids = _member(document, "remoteLogSegmentId")
    partition = _member(ids, "topicIdPartition")
    named = _member(partition, "topicPartition")
    epochs = {
        _epoch(epoch): _number(epochs_of, epoch)
        for epochs_of in [_member(document, "segmentLeaderEpochs")]
        for epoch in epochs_of
    }
    return RemoteLogSegmentMetadata(
        topic=_text(named, "topic"),
        topic_id=_id(partition, "topicId"),
        partition=_number(named, "partition"),
        segment_id=_id(ids, "id"),
        start_offset=_number(document, "startOffset"),
        end_offset=_number(document, "endOffset"),
        broker_id=_number(document, "brokerId", least=-1, most=_INT_MAX),
        max_timestamp_ms=_number(document, "maxTimestampMs", least=-1),
        event_timestamp_ms=_number(document, "eventTimestampMs", least=-1),
        segment_leader_epochs=tuple(sorted(epochs.items())),
        segment_size_in_bytes=manifest.chunk_index.original_file_size,
        txn_index_empty=_is_txn_index_empty(document, manifest),
    )


def _is_txn_index_empty(document: Mapping[str, Any], manifest: Manifest) -> bool:
    found = document.get("txnIdxEmpty")
    if found is None:
        return manifest.indexes[IndexType.TRANSACTION] is None
    if not isinstance(found, bool):
        raise _wrong("txnIdxEmpty", "true or false", found)
    return found


def _id(document: Mapping[str, Any], name: str) -> Uuid:
    try:
        return Uuid.parse(_text(document, name))
    except UsageError:
        raise _wrong(name, "an id of 22 characters of base64url", document.get(name)) from None


def _epoch(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _EPOCH_DIGITS and int(text) <= _INT_MAX):
        raise _wrong("segmentLeaderEpochs", "leader epochs as names", text)
    return int(text)


def _number(document: Mapping[str, Any], name: str, least: int = 0, most: int = (1 << 63) - 1) -> int:
    found = document.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise _wrong(name, f"a number from {least} to {most}", found)
    return found


def iceberg(found: str) -> UnsupportedFormatError:
    """Return the error for Aiven's segment format `iceberg`, found in `found`."""
    return UnsupportedFormatError(
        "Aiven's segment format",
        expected="kafka",
        found=f"iceberg ({found})",
        hint="segment.format=iceberg stores records as rows of tables, which tierctl does not read",
    )


def write_manifest(manifest: Manifest, metadata: RemoteLogSegmentMetadata) -> bytes:
    """Encode a manifest with its members in the plugin's order; UnsupportedFormatError if it is encrypted."""
    if manifest.encryption is not None:
        raise UnsupportedFormatError(_MANIFEST, expected="no encryption to write", found="encryption")
    document = {
        "version": "1",
        "chunkIndex": _chunk_index_members(manifest.chunk_index),
        "segmentIndexes": {
            name: _index_members(manifest.indexes[index_type]) for index_type, name in INDEX_NAMES.items()
        },
        "compression": manifest.compression,
        "remoteLogSegmentMetadata": _metadata_members(metadata),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _wrong(name: str, expected: str, found: object) -> CorruptInputError:
    return CorruptInputError(f"{_MANIFEST}, {name}", expected=expected, found=repr(found)[:80])


def _member(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise _wrong(name, "an object", found)
    return found


def _size(document: Mapping[str, Any], name: str, least: int = 0) -> int:
    return _number(document, name, least, SIZE_MAX)


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str):
        raise _wrong(name, "a text", found)
    return found


def _chunk_index(document: Mapping[str, Any]) -> ChunkIndex:
    chunk_size, file_size = _size(document, "originalChunkSize", 1), _size(document, "originalFileSize")
    kind = document.get("type")
    match kind:
        case "fixed":
            count = -(-file_size // chunk_size)
            if count > limits().chunks:
                raise too_many_chunks(str(count))
            stored, last = (
                _size(document, "transformedChunkSize"),
                _size(document, "finalTransformedChunkSize"),
            )
            sizes = [stored] * (count - 1) + [last] * min(count, 1)
        case "variable":
            sizes = sizes_from_text(_text(document, "transformedChunks"))
        case _:
            raise _wrong("chunkIndex type", "fixed or variable", kind)
    return ChunkIndex(
        original_chunk_size=chunk_size,
        original_file_size=file_size,
        stored_sizes=sizes,
        fixed=kind == "fixed",
    )


def _chunk_index_members(index: ChunkIndex) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": "fixed" if index.fixed else "variable",
        "originalChunkSize": index.original_chunk_size,
        "originalFileSize": index.original_file_size,
    }
    if not index.fixed:
        return document | {"transformedChunks": sizes_to_text(index.stored_sizes)}
    sizes = index.stored_sizes
    stored = sizes[0] if len(sizes) > 1 else index.original_chunk_size
    return document | {
        "transformedChunkSize": stored,
        "finalTransformedChunkSize": sizes[-1] if sizes else 0,
    }


def _indexes(document: Mapping[str, Any]) -> dict[IndexType, IndexRange | None]:
    found: dict[IndexType, IndexRange | None] = {}
    for index_type, name in INDEX_NAMES.items():
        if document.get(name) is None:
            if index_type is not IndexType.TRANSACTION:
                raise _wrong(f"segmentIndexes {name}", "an object", None)
            found[index_type] = None
        else:
            member = _member(document, name)
            found[index_type] = IndexRange(position=_size(member, "position"), size=_size(member, "size"))
    return found


def _index_members(found: IndexRange | None) -> dict[str, int] | None:
    return None if found is None else {"position": found.position, "size": found.size}


def _encryption(document: Mapping[str, Any]) -> Encryption:
    key_id, colon, key = _text(document, "dataKey").partition(":")
    if not colon or not key_id or ":" in key:
        raise _wrong("dataKey", "<key id>:<base64>", "another form")
    try:
        return Encryption(
            key_id=key_id,
            encrypted_data_key=base64.b64decode(key, validate=True),
            aad=base64.b64decode(_text(document, "aad"), validate=True),
        )
    except ValueError as e:
        raise _wrong("encryption", "base64", str(e)) from None


def _metadata_members(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(metadata.topic_id),
                "topicPartition": {"topic": metadata.topic, "partition": metadata.partition},
            },
            "id": str(metadata.segment_id),
        },
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "brokerId": -1 if metadata.broker_id is None else metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in metadata.segment_leader_epochs},
        "txnIdxEmpty": metadata.txn_index_empty,
    }
