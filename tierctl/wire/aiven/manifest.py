"""Manifests of Aiven's plugin, version 1: JSON beside each segment's log and indexes.

Source: io.aiven.kafka.tieredstorage.manifest.SegmentManifestV1.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model import IndexType, RemoteLogSegmentMetadata, Uuid
from tierctl.wire.aiven.chunks import SIZE_MAX, ChunkIndex, sizes_from_text, sizes_to_text, too_many_chunks
from tierctl.wire.limits import limits

MANIFEST_MAX_BYTES = 64 << 20

_WHAT = "Aiven's manifest"
_INT_MAX = (1 << 31) - 1
_EPOCH_DIGITS = 10
_PUFFIN_MAGIC = b"PFA1"
_INDEX_NAMES = {
    IndexType.OFFSET: "offset",
    IndexType.TIMESTAMP: "timestamp",
    IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexType.LEADER_EPOCH: "leaderEpoch",
    IndexType.TRANSACTION: "transaction",
}


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
        raise CorruptInputError(_WHAT, expected="JSON", found=str(e)) from None
    if not isinstance(document, dict):
        raise _wrong("manifest", "an object", document)
    if str(document.get("segmentFormat", "kafka")).lower() == "iceberg":
        raise iceberg("it in a manifest")
    version = document.get("version")
    if version != "1":
        raise UnsupportedFormatError(_WHAT, expected="version 1", found=f"version {version!r}")
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
        txn_index_empty=bool(
            document.get("txnIdxEmpty", manifest.indexes[IndexType.TRANSACTION] is None),
        ),
    )


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
        raise _wrong(name, f"a number of at least {least} and at most {most}", found)
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
        raise UnsupportedFormatError(_WHAT, expected="no encryption to write", found="encryption")
    document = {
        "version": "1",
        "chunkIndex": _chunk_index_members(manifest.chunk_index),
        "segmentIndexes": {
            name: _index_members(manifest.indexes[index_type]) for index_type, name in _INDEX_NAMES.items()
        },
        "compression": manifest.compression,
        "remoteLogSegmentMetadata": _metadata_members(metadata),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _wrong(name: str, expected: str, found: object) -> CorruptInputError:
    return CorruptInputError(f"{_WHAT}, {name}", expected=expected, found=repr(found)[:80])


def _member(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise _wrong(name, "an object", found)
    return found


def _size(document: Mapping[str, Any], name: str, least: int = 0) -> int:
    found = document.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= SIZE_MAX:
        raise _wrong(name, f"a number from {least} to {SIZE_MAX}", found)
    return found


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
    for index_type, name in _INDEX_NAMES.items():
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
