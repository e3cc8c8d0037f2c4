"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots."""

import google_crc32c


def crc32c(data: bytes) -> int:
    """Return the checksum of `data` as an unsigned 32-bit number."""
    return int(google_crc32c.value(data))


def crc32c_extend(crc: int, data: bytes) -> int:
    """Return the checksum of the bytes that have checksum `crc`, followed by `data`."""
    return int(google_crc32c.extend(crc, data))
