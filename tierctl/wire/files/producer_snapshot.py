"""The codec of producer snapshots: `<offset>.snapshot` holds the producers' state before that offset.

Layout: version int16 = 1, CRC-32C of all bytes after it, count int32, entries of 46 bytes. Source:
ProducerStateManager.readSnapshot/writeSnapshot; ProducerSnapshot.json.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.wire.crc import crc32c

VERSION = 1

_WHAT = "producer snapshot"
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6


class ProducerEntry(NamedTuple):
    """The last batch and the open transaction of one producer; -1 is "none" in all fields but the id.

    `offset_delta` is the last minus the first offset of the last batch, `coordinator_epoch` the epoch of the
    last transaction marker, `current_txn_first_offset` the first offset of the open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def decode_producer_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
    """Return the entries in file order; raise CorruptInputError for a wrong size, version or CRC."""
    if len(data) < _HEAD.size:
        raise CorruptInputError(
            _WHAT, expected=f"{_HEAD.size} bytes", found=f"{len(data)} bytes", at=len(data)
        )
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise UnsupportedFormatError(_WHAT, expected=f"version {VERSION}", found=f"version {version}", at=0)
    size = _HEAD.size + count * _ENTRY.size
    if count < 0 or size != len(data):
        raise CorruptInputError(
            _WHAT, expected=f"{size} bytes for {count} producers", found=f"{len(data)} bytes", at=_CRC_FROM
        )
    computed = crc32c(data[_CRC_FROM:])
    if computed != crc:
        raise CorruptInputError(_WHAT, expected=f"CRC-32C {computed:#010x}", found=f"{crc:#010x}", at=2)
    return tuple(ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of the file, as ProducerStateManager.writeSnapshot writes it."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body)) + body
