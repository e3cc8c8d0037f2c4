"""A single segment file of the metadata topic, with any name in any folder."""

import struct
from contextlib import closing
from pathlib import Path

from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.metadata.topic.files import LOCAL
from tierctl.wire.batches.segment_file import LogBytes

_BASE_OFFSET = struct.Struct(">q")


class SegmentFile:
    """Implement LogFiles: present `path` as the only segment of the only partition of a topic.

    The partition number is that of the file's folder `__remote_log_metadata-N`, 0 in any other folder. The
    segment's base offset is the offset of the file's first batch. Every method raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        name, _, number = path.absolute().parent.name.rpartition("-")
        self.partition = int(number) if name == METADATA_TOPIC and number.isdigit() else 0

    def folders(self, folder: Path) -> list[str]:
        """Implement `LogFiles.folders`."""
        del folder
        return [f"{METADATA_TOPIC}-{self.partition}"]

    def names(self, folder: Path) -> list[str]:
        """Implement `LogFiles.names`."""
        del folder
        with closing(LOCAL.open(self._path)) as file:
            head = file.read(0, _BASE_OFFSET.size)
        # The first bytes of a damaged file may be no offset.
        base_offset = max(0, _BASE_OFFSET.unpack(head)[0]) if len(head) == _BASE_OFFSET.size else 0
        return [f"{base_offset:020d}.log"]

    def open(self, path: Path) -> LogBytes:
        """Implement `LogFiles.open`."""
        del path
        return LOCAL.open(self._path)

    def content(self, path: Path) -> bytes | None:
        """Implement `LogFiles.content`; the segment has no indexes and no checkpoints."""
        del path
        return None

    def name_of(self, path: Path) -> str:
        """Implement `LogFiles.name_of`."""
        del path
        return str(self._path)

    def refresh(self, folder: Path) -> None:
        """Implement `LogFiles.refresh`; no file is cached."""

    def close(self) -> None:
        """Implement `LogFiles.close`; no file is open."""
