"""One segment file of the metadata topic by itself, whatever its name and wherever it lies."""

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tierctl.metadata.topic.files import LOCAL
from tierctl.wire.batches.chunks import RecordChunk, chunk_of
from tierctl.wire.batches.windows import LogBytes, scan_windows, torn_note

_BASE_OFFSET = struct.Struct(">q")
_OFFSET_END = (1 << 63) - 1


def read_segment_file(
    path: Path, partition: int, on_torn: Callable[[str], None] | None = None
) -> Iterator[RecordChunk]:
    """Every record of the file, from its first batch's offset on.

    An unfinished tail is no record; `on_torn` is told of one. Raises OSError.
    """
    with closing(LOCAL.open(path)) as file:
        for window in scan_windows(file, 0, _first_offset(file)):
            yield chunk_of(window, partition, 0, _OFFSET_END, str(path))
            torn = window.heads.torn
            if torn is not None and on_torn is not None:
                note = torn_note(file, path, window.position + torn.position, torn.size_bytes)
                if note is not None:
                    on_torn(note)


def _first_offset(file: LogBytes) -> int:
    """What the file begins with; 0 when that is no offset."""
    head = file.read(0, _BASE_OFFSET.size)
    return max(0, int(_BASE_OFFSET.unpack(head)[0])) if len(head) == _BASE_OFFSET.size else 0
