"""Custom metadata of Aiven's plugin: one section of tagged fields (its SegmentCustomMetadataField)."""

from dataclasses import dataclass

from tierctl.errors import CorruptInputError
from tierctl.wire.primitives import read_uvarint, read_varlong, take, write_uvarint, write_varlong

REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY = range(3)
FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")
"""Names of the fields by tag, as custom.metadata.fields.include lists them."""

_WHAT = "Aiven's custom metadata"


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
    count, at = read_uvarint(raw, 0, f"{_WHAT}, number of fields")
    fields: dict[int, bytes] = {}
    for _ in range(count):
        tag, at = read_uvarint(raw, at, f"{_WHAT}, tag")
        if fields and tag <= max(fields):
            raise CorruptInputError(_WHAT, expected="ascending tags", found=str(tag), at=at)
        size, at = read_uvarint(raw, at, f"{_WHAT}, size")
        fields[tag], at = take(raw, at, size, _WHAT)
    if at != len(raw):
        raise CorruptInputError(_WHAT, expected="nothing more", found=f"{len(raw) - at} bytes", at=at)
    return AivenCustomMetadata(
        remote_size=_number(fields[REMOTE_SIZE]) if REMOTE_SIZE in fields else None,
        object_prefix=_text(fields[OBJECT_PREFIX]) if OBJECT_PREFIX in fields else None,
        object_key=_text(fields[OBJECT_KEY]) if OBJECT_KEY in fields else None,
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


def _number(raw: bytes) -> int:
    value, end = read_varlong(raw, 0, "REMOTE_SIZE")
    if end != len(raw):
        raise CorruptInputError(_WHAT, expected="one number", found=f"{len(raw)} bytes", at=end)
    return value


def _text(raw: bytes) -> str:
    length, at = read_uvarint(raw, 0, f"{_WHAT}, length")
    if length - 1 != len(raw) - at:
        raise CorruptInputError(_WHAT, expected=f"a text of {len(raw) - at} bytes", found=str(length - 1))
    try:
        return raw[at:].decode()
    except UnicodeDecodeError as e:
        raise CorruptInputError(_WHAT, expected="UTF-8", found=str(e)) from None
