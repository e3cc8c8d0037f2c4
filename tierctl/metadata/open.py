"""From `--metadata` and `--state-dir` to a RemoteLogMetadataManager."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError

if TYPE_CHECKING:
    from tierctl.metadata.base import MetadataTopic, RemoteLogMetadataManager


def open_metadata_topic(uri: str, *, writable: bool = False) -> "MetadataTopic":
    """The metadata topic at `uri` (file:///dir).

    A folder without metadata partitions reads as an empty topic of 50; opened `writable` they are made.
    Raises UsageError for another scheme, LockedError, SafetyRefusal, CorruptInputError, MetadataError.
    """
    from tierctl.metadata.log_on_disk import MetadataLogOnDisk

    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise UsageError(f"not a metadata topic: {uri!r}", hint="expected file:///dir")
    return MetadataLogOnDisk(Path(unquote(parts.path)), writable=writable)


def open_metadata(
    uri: str,
    *,
    state_dir: Path | None = None,
    writable: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> "RemoteLogMetadataManager":
    """The RemoteLogMetadataManager over the metadata topic at `uri`; nothing is read before `refresh`.

    With `state_dir` what an earlier run read is loaded; `on_note` is told what was wrong with it and is
    read anew. Raises as `open_metadata_topic`.
    """
    from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
    from tierctl.metadata.state_dir import StateDirectory

    topic = open_metadata_topic(uri, writable=writable)
    kept = None
    opened = False
    try:
        kept = None if state_dir is None else StateDirectory(state_dir, writable=writable)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=kept)
        if kept is not None and on_note is not None:
            for note in kept.notes:
                on_note(note)
        opened = True
    finally:
        if not opened:
            topic.close()
            if kept is not None:
                kept.close()
    return manager
