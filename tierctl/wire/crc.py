"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots."""

from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def crc32c(data: bytes) -> int:
    """Return the checksum of `data` as an unsigned 32-bit number."""
    return int(google_crc32c.value(data))


def crc32c_extend(crc: int, data: "bytes | npt.NDArray[np.uint8]") -> int:
    """Return the checksum of the bytes that have checksum `crc`, followed by the bytes of `data`."""
    return int(google_crc32c.extend(crc, data))
