"""CRC-32C (Castagnoli), which guards record batches and producer snapshots."""

import google_crc32c


def crc32c(data: bytes) -> int:
    """The checksum of `data` as an unsigned 32-bit number."""
    return int(google_crc32c.value(data))


def crc32c_extend(crc: int, data: bytes) -> int:
    """The checksum of what `crc` is the checksum of, followed by `data`."""
    return int(google_crc32c.extend(crc, data))
