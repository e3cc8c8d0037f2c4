"""Checks of the folder that --state-dir names, before its files are used."""

from pathlib import Path

from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.files import read_regular
from tierctl.locallog import list_partitions
from tierctl.metadata.state_dir.manifest import MANIFEST, Manifest
from tierctl.trust import why_folder_distrusted
from tierctl.wire.files.meta_properties import META_PROPERTIES


def require_private(folder: Path) -> None:
    """Raise SafetyRefusal if somebody else than this user and root may change the entries of a folder.

    The state has offsets and log start offsets, which decide what is deleted.
    """
    why = why_folder_distrusted(folder) if folder.is_dir() else None
    if why is not None:
        raise SafetyRefusal(
            f"--state-dir {folder} is not used: {why}",
            hint="give the directory to this user or root, and take the right to write from all others",
        )


def require_no_log_dir(folder: Path) -> None:
    """Raise UsageError if a folder is a broker's log directory.

    Brokers before Kafka 3.8 have a `_rlmm_committed_offsets` of their own there, which a run would replace.
    """
    if folder.is_dir() and ((folder / META_PROPERTIES).exists() or list_partitions([folder])):
        raise UsageError(
            f"--state-dir {folder} is a broker's log directory",
            hint="give the state of tierctl a directory of its own",
        )


def require_own_state(folder: Path, topic_id: str | None, *, may_be_new: bool = False) -> None:
    """Raise an error unless a state directory exists and may be that of the metadata topic `topic_id`.

    NotFoundError if there is no such folder, unless it `may_be_new`; UsageError as for `require_no_log_dir`;
    SafetyRefusal for the state of another metadata topic, and as for `require_private`; CorruptInputError for
    an unreadable manifest.
    """
    if not folder.is_dir() and not may_be_new:
        raise NotFoundError(
            f"--state-dir {folder}: no such folder",
            hint="name the directory of copy, sweep or cache build, or create an empty one",
        )
    require_no_log_dir(folder)
    require_private(folder)
    try:
        manifest = Manifest.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        return
    require_same_topic(folder, manifest.topic_id, topic_id)


def require_same_topic(folder: Path, kept: str | None, topic_id: str | None) -> None:
    """Raise SafetyRefusal if the state in `folder` is that of the topic `kept`, which is not `topic_id`."""
    if kept is not None and topic_id not in {None, kept}:
        raise SafetyRefusal(
            f"{folder} belongs to metadata topic {kept}, not {topic_id}",
            hint="use another --state-dir for another metadata topic",
        )
