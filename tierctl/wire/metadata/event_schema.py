"""The schema of decoded events as an Arrow table."""

from typing import Any, Final, Self

import pyarrow as pa

from tierctl.model.events import Uuid
from tierctl.wire.metadata.schema import EVENT_FIELDS, Field, Fixed, Flag, Variable


class UuidScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """A scalar of UuidType; its Python value is the model's Uuid."""

    def as_py(self, **_options: Any) -> Uuid | None:
        """Return the id; None for null."""
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
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Self:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[UuidScalar]:
        return UuidScalar


UUID: Final = UuidType()
pa.register_extension_type(UUID)

_NAME = pa.dictionary(pa.int8(), pa.string())
_TAG = pa.struct([("place", pa.string()), ("tag", pa.int64()), ("data", pa.binary())])
_TYPES: dict[Fixed | Variable, pa.DataType] = {
    Fixed.INT8: pa.int8(),
    Fixed.INT32: pa.int32(),
    Fixed.INT64: pa.int64(),
    Fixed.UUID: UUID,
    Variable.STRING: pa.string(),
    Variable.BYTES: pa.binary(),
    Variable.NULLABLE_BYTES: pa.binary(),
}


def _column_type(field: Field | Flag) -> pa.DataType:
    """Return the type of a field's column; an array is a list of lists, one inner list per element."""
    if isinstance(field, Flag):
        return pa.bool_()
    if field.states is not None:
        return _NAME
    if isinstance(field.kind, Fixed | Variable):
        return _TYPES[field.kind]
    return pa.list_(pa.list_(pa.int64()))


EVENT_SCHEMA: Final = pa.schema(
    [
        *((field.name, _column_type(field)) for field in EVENT_FIELDS),
        ("type", _NAME),
        ("dialect", _NAME),
        ("unknown_tags", pa.list_(_TAG)),
        ("error", pa.string()),
    ]
)
"""One row per record. A column that the record's type or dialect does not have is null.

A row whose value cannot be decoded has only an `error`; a tombstone has only nulls.
"""
