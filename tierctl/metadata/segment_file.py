"""One segment file of the metadata topic by itself, whatever its name and wherever it lies."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tierctl.metadata.base import MetadataChunk
from tierctl.metadata.segment_windows import scan_windows
from tierctl.metadata.window_chunks import chunk_of

_BASE_OFFSET = struct.Struct(">q")
_OFFSET_END = (1 << 63) - 1


def read_segment_file(path: Path, partition: int) -> Iterator[MetadataChunk]:
    """Every record of the file, from its first batch's offset on; an unfinished tail is no record.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for window in scan_windows(fd, 0, _first_offset(fd)):
            yield chunk_of(window, partition, 0, _OFFSET_END, str(path))
    finally:
        os.close(fd)


def _first_offset(fd: int) -> int:
    """What the file begins with; 0 when that is no offset."""
    head = os.pread(fd, _BASE_OFFSET.size, 0)
    return max(0, int(_BASE_OFFSET.unpack(head)[0])) if len(head) == _BASE_OFFSET.size else 0
