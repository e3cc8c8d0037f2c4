"""Opens the RemoteLogMetadataManager that `--metadata` and `--state-dir` name."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.metadata.topic.open import open_metadata_topic

if TYPE_CHECKING:
    from tierctl.metadata.base import RemoteLogMetadataManager
    from tierctl.metadata.parallel_fold import BulkFold


def open_metadata(
    uri: str,
    *,
    state_dir: Path | None = None,
    writable: bool = False,
    command_config: Path | None = None,
    server_config: Path | None = None,
    make_topic: bool = False,
    on_torn: Callable[[str], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    bulk: "BulkFold | None" = None,
) -> "RemoteLogMetadataManager":
    """The RemoteLogMetadataManager over the metadata topic at `uri`; nothing is read before `refresh`.

    With `state_dir` what an earlier run read is loaded; `on_note` is told what was wrong with it and is
    read anew; `bulk` does the first refresh's reading. Everything else is as `open_metadata_topic` has it.
    """
    from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
    from tierctl.metadata.state_dir.directory import StateDirectory

    topic = open_metadata_topic(
        uri,
        writable=writable,
        command_config=command_config,
        server_config=server_config,
        make_topic=make_topic,
        on_torn=on_torn,
    )
    kept = None
    opened = False
    try:
        kept = None if state_dir is None else StateDirectory(state_dir, writable=writable)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=kept, bulk=bulk)
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
