"""Open metadata topics and managers for tests."""

from pathlib import Path
from typing import Any

from tierctl.metadata import RemoteLogMetadataManager, open_metadata
from tierctl.metadata.topic import IfMissing, MetadataTopic, open_topic
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.location import TopicLocation
from tierctl.state.tier_state import TierState


def at(
    where: Path | str, *, command_config: Path | None = None, broker_config: Path | None = None
) -> TopicLocation:
    """Return the location of a folder or a URI."""
    return TopicLocation(
        uri=where if isinstance(where, str) else where.absolute().as_uri(),
        command_config=None if command_config is None else str(command_config),
        broker_config=None if broker_config is None else str(broker_config),
    )


def if_missing(location: TopicLocation, *, writable: bool) -> IfMissing:
    """Return the behaviour for a missing topic: a folder is created or read as empty, a cluster fails."""
    if location.is_on_cluster:
        return IfMissing.FAIL
    return IfMissing.CREATE if writable else IfMissing.EMPTY


def topic_in(folder: Path, *, writable: bool = False, **settings: Any) -> MetadataTopic:
    """Open the whole topic of a folder and create it if writable; `settings` are FolderSettings."""
    location = at(folder)
    return open_topic(
        location,
        writable=writable,
        complete=True,
        if_missing=if_missing(location, writable=writable),
        folder=FolderSettings(**settings),
    )


def manager_at(
    where: Path | str,
    *,
    writable: bool = False,
    command_config: Path | None = None,
    broker_config: Path | None = None,
    **more: Any,
) -> RemoteLogMetadataManager:
    """Open the manager of a folder's topic, or a URI's; `more` are arguments of open_metadata."""
    location = at(where, command_config=command_config, broker_config=broker_config)
    missing = if_missing(location, writable=writable)
    return open_metadata(location, writable=writable, if_missing=missing, **more)


def state_at(where: Path | str) -> TierState:
    """Return the state that the metadata at a folder or a URI have now."""
    manager = manager_at(where)
    try:
        return manager.refresh()
    finally:
        manager.close()


def segments_at(where: Path | str) -> list[RemoteLogSegmentMetadata]:
    """Return every segment of the metadata that is not deleted, in any state."""
    return [segment for part in state_at(where) for segment in part.cache.list_remote_log_segments()]
