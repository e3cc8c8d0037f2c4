"""CRC-32C (Castagnoli), which guards record batches and producer snapshots."""

import google_crc32c


def crc32c(data: bytes) -> int:
    """The checksum of `data` as an unsigned 32-bit number."""
    return int(google_crc32c.value(data))
