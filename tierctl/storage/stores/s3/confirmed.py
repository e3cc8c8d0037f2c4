"""Remember the writes whose checksum the server returned, so that one listing verifies their objects."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tierctl.storage.stores.base import Source, source_crc32c, source_size_bytes
from tierctl.storage.stores.s3.checksums import encoded_crc

WRITES_MAX = 10_000
"""Number of writes to remember; objects of forgotten ones are verified by requests of their own."""


class _Write(NamedTuple):
    tag: str
    size_bytes: int
    crc32c: int


class ConfirmedWrites:
    """The objects that this process wrote whole, and whose CRC-32C the server returned with the write.

    An ETag belongs to one write. An object in a listing with the ETag and the size of a confirmed write
    therefore has the bytes with that checksum, whatever other programs wrote under its key in between. Keys
    are complete, not relative to the store's folder. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._writes: dict[str, _Write] = {}

    def __contains__(self, key: str) -> bool:
        """Return whether the last write of the key was confirmed and has not been verified yet."""
        return key in self._writes

    def note(self, key: str, source: Source, response: Mapping[str, Any]) -> None:
        """Remember the write of `source` if the response has its checksum; otherwise forget the key."""
        self._writes.pop(key, None)
        crc = source_crc32c(source)
        if response.get("ChecksumCRC32C") == encoded_crc(crc):
            if len(self._writes) >= WRITES_MAX:
                self._writes.clear()
            self._writes[key] = _Write(response["ETag"], source_size_bytes(source), crc)

    def verifies(self, key: str, source: Source, listed: Mapping[str, Any]) -> bool:
        """Return whether `listed`, the key's entry in a listing, is the confirmed write of `source`.

        Forget the write then.
        """
        tag, size_bytes = listed.get("ETag", ""), listed["Size"]
        expected = _Write(tag, source_size_bytes(source), source_crc32c(source))
        is_verified = self._writes.get(key) == expected and size_bytes == expected.size_bytes
        if is_verified:
            self._writes.pop(key, None)
        return is_verified
