"""Writes producer snapshots, as ProducerStateManager.writeSnapshot does."""

import struct
from collections.abc import Iterable

from tierctl.wire.crc import crc32c
from tierctl.wire.files.producer_snapshot import VERSION, ProducerEntry

_ENTRY = struct.Struct(">qhiqiqiq")


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body)) + body
