"""Removes entries of a broker's offset checkpoints that lie beyond the end of a metadata partition's log.

After a metadata log was lost, its recovery point, high watermark and log start are still those of the old
log: a broker would hide new records below them, or not recover them after a crash.
"""

from collections.abc import Mapping
from pathlib import Path

from tierctl.files import FileSystem, read_regular, replace_durably
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    read_offset_checkpoint,
    write_offset_checkpoint,
)

CHECKPOINTS = (LOG_STARTS_FILE, RECOVERY_POINTS_FILE, HIGH_WATERMARKS_FILE)


def drop_stale_entries(folder: Path, end_offsets: Mapping[int, int], *, fs: FileSystem) -> None:
    """Remove the entries of metadata partitions that are above `end_offsets`; keep the old file as `.bak`.

    Raises OSError, and CorruptInputError for a damaged checkpoint.
    """
    for name in CHECKPOINTS:
        path = folder / name
        if not path.is_file():
            continue
        offsets = read_offset_checkpoint(read_regular(path))
        kept = {
            key: offset
            for key, offset in offsets.items()
            if key.topic != METADATA_TOPIC or offset <= end_offsets.get(key.partition, offset)
        }
        if len(kept) < len(offsets):
            replace_durably(path, write_offset_checkpoint(kept), backup=True, fs=fs)
