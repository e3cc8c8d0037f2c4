"""Opens the RemoteLogMetadataManager that `--metadata` and `--state-dir` name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.metadata.base import RemoteLogMetadataManager
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.state_dir import StateDirectory
from tierctl.metadata.topic import IfMissing, open_topic
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model.location import TopicLocation
from tierctl.model.progress import Reading, unwatched

if TYPE_CHECKING:
    from tierctl.metadata.fold.parallel import FoldRunner


def open_metadata(
    location: TopicLocation,
    *,
    state_dir: Path | None = None,
    writable: bool = False,
    stores_state: bool = False,
    if_missing: IfMissing = IfMissing.FAIL,
    on_torn: Callable[[str], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    fold_runner: FoldRunner | None = None,
    sizes_only: bool = False,
    reading: Reading = unwatched,
    folder: FolderSettings | None = None,
) -> RemoteLogMetadataManager:
    """Open the manager over the metadata topic at `location`; `refresh` reads the topic.

    With `state_dir` the manager continues from the files of an earlier run; `on_note` receives a message for
    each file that is damaged and whose metadata partition is read again. If another run has locked the
    directory, one that only reads stores no state; with `stores_state` LockedError is raised. `fold_runner`
    folds the topic in the first `refresh`; with `sizes_only` it keeps the sizes of user partitions instead of
    their segments, and there may be no other `refresh`. `reading` shows the progress of each `refresh`. The
    other parameters and the errors are those of `open_topic`.
    """
    with ExitStack() as opened:
        topic = open_topic(
            location,
            writable=writable,
            complete=True,
            if_missing=if_missing,
            on_torn=on_torn,
            folder=folder,
        )
        opened.callback(topic.close)
        kept = None
        if state_dir is not None:
            kept = StateDirectory(state_dir, writable=writable or stores_state)
            opened.callback(kept.close)
        manager = TopicBasedRemoteLogMetadataManager(
            topic, state_dir=kept, fold_runner=fold_runner, sizes_only=sizes_only, reading=reading
        )
        if kept is not None and on_note is not None:
            for note in kept.notes:
                on_note(note)
        opened.pop_all()
    return manager
