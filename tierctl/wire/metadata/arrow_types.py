"""The columns of decoded metadata events."""

from typing import Any

import pyarrow as pa

from tierctl.model.events import (
    Dialect,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from tierctl.model.ids import Uuid
from tierctl.model.states import RemoteLogSegmentState, RemotePartitionDeleteState


class UuidScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """An id that prints as Kafka's base64url."""

    def as_py(self, **_options: Any) -> Uuid | None:
        """The id, or None."""
        return None if self.value is None else Uuid.from_bytes(self.value.as_py())


class UuidType(pa.ExtensionType):  # type: ignore[misc]
    """Kafka's Uuid: 16 bytes, most significant first."""

    def __init__(self) -> None:
        super().__init__(pa.binary(16), "tierctl.uuid")

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> "UuidType":
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[UuidScalar]:
        return UuidScalar


UUID = UuidType()
pa.register_extension_type(UUID)

STATE_NAMES: tuple[RemoteLogSegmentState | RemotePartitionDeleteState, ...] = (
    *RemoteLogSegmentState,
    *RemotePartitionDeleteState,
)
EVENT_TYPES = (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemoteLogSegmentMetadataSnapshot,
)
TYPE_NAMES = tuple(event.type for event in EVENT_TYPES)
DIALECT_NAMES = tuple(Dialect)
NAME = pa.dictionary(pa.int8(), pa.string())
TAG = pa.struct([("place", pa.string()), ("tag", pa.int64()), ("data", pa.binary())])

EVENT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", UUID),
        ("partition", pa.int32()),
        ("segment_id", UUID),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("broker_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("epoch", pa.int32()),
        ("max_timestamp_ms", pa.int64()),
        ("event_timestamp_ms", pa.int64()),
        ("segment_leader_epochs", pa.list_(pa.list_(pa.int64()))),
        ("segment_size_in_bytes", pa.int32()),
        ("custom_metadata", pa.binary()),
        ("state", NAME),
        ("txn_index_empty", pa.bool_()),
        ("type", NAME),
        ("dialect", NAME),
        ("unknown_tags", pa.list_(TAG)),
        ("error", pa.string()),
    ]
)
