"""Records as rows for output, and keys of records as an operator gives them."""

import base64
import hashlib
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tierctl.errors import TierctlError, UnsupportedFormatError, UsageError
from tierctl.model import TopicIdPartition
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


def record_row(
    partition: TopicIdPartition,
    record: "FetchedRecord",
    encode: Callable[[bytes | None], Encoded],
    report: Callable[[TierctlError], None],
) -> dict[str, Any]:
    """Return a record as a JSON-ready object with the keys of `report.tables.RECORDS` in order.

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
