"""Opens the metadata topic at any location; no other module may open one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from tierctl.errors import UsageError
from tierctl.metadata.topic.base import DEFAULT_METADATA_PARTITIONS, MetadataTopic
from tierctl.metadata.topic.creation import make_topic
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.folder import FolderTopic, partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings, FolderWriter
from tierctl.metadata.topic.segment_file import SegmentFile
from tierctl.metadata.topic.store_files import StoreFiles
from tierctl.model.location import TopicLocation
from tierctl.model.uris import require_no_credentials
from tierctl.storage import stores
from tierctl.storage.stores.schemes import SCHEMES, store_uri


class IfMissing(StrEnum):
    """The action of `open_topic` if there is no metadata topic.

    FAIL raises NotFoundError. EMPTY reads a folder without partitions as an empty topic. CREATE, for writing,
    creates the topic.
    """

    FAIL = "fail"
    EMPTY = "empty"
    CREATE = "create"


def topic_location(
    option: str, given: str, *, command_config: Path | None = None, config: Path | None = None
) -> TopicLocation:
    """Return the location that an operator gave as the value of `option`: a URI or a plain path.

    Raises UsageError for an unknown scheme.
    """
    require_no_credentials(option, given)
    scheme = urlsplit(given).scheme if ":" in given.split("/", 1)[0] else "file"
    if scheme not in {"kafka", *SCHEMES}:
        raise UsageError(
            f"{option} {given}: unknown scheme {scheme!r}",
            hint=f"use kafka://host:port, file:///dir, or a store: {', '.join(SCHEMES)}",
        )
    return TopicLocation(
        uri=given if scheme == "kafka" else store_uri(option, given),
        command_config=None if command_config is None else str(command_config.absolute()),
        config=None if config is None else str(config.absolute()),
    )


def open_topic(
    location: TopicLocation,
    *,
    writable: bool = False,
    complete: bool = False,
    if_missing: IfMissing = IfMissing.FAIL,
    on_torn: Callable[[str], None] | None = None,
    folder: FolderSettings | None = None,
) -> MetadataTopic:
    """Open the metadata topic at `location`; the caller closes it.

    Reading accepts a folder with only some of the partitions unless `complete`: a state may be folded only
    from a complete topic, because the number of partitions decides which events each has. Writing needs a
    folder or a cluster and a complete topic; in a folder it takes the writer's lock. `on_torn` receives a
    message for each log in a folder that ends in an unfinished write. `folder` has settings for writing in a
    folder; a topic that is made on a cluster has the settings of `location.config`.

    Raises UsageError (also for writing to a location that can only be read), NotFoundError,
    CorruptInputError, LockedError, SafetyRefusal, AuthenticationError, MetadataError, and
    RemoteStorageError for an object store.
    """
    if location.is_on_cluster:
        return _on_cluster(location, writable=writable, create=if_missing is IfMissing.CREATE)
    path = None if location.is_in_store else location.path
    if path is not None and not path.is_file():
        if writable:
            return _writable_folder(path, folder, if_missing, on_torn)
        count = DEFAULT_METADATA_PARTITIONS if folder is None else folder.partition_count
        empty_count = None if if_missing is IfMissing.FAIL else count
        known = None if folder is None else folder.known_count
        return FolderTopic(
            path, complete=complete, empty_count=empty_count, known_count=known, on_torn=on_torn
        )
    if writable:
        raise UsageError(
            f"the metadata topic at {location.uri} can only be read",
            hint="a topic in a folder (file:///dir) or on a cluster (kafka://host:port) can be written",
        )
    if path is None:
        return _in_store(location, complete=complete, on_torn=on_torn)
    if complete:
        raise UsageError(
            f"{path} is one segment file: this command needs all partitions of the metadata topic",
            hint="name the folder that contains the __remote_log_metadata-N folders",
        )
    return FolderTopic(path.parent, files=SegmentFile(path), on_torn=on_torn)


def _writable_folder(
    folder: Path, given: FolderSettings | None, if_missing: IfMissing, on_torn: Callable[[str], None] | None
) -> FolderTopic:
    settings = FolderSettings() if given is None else given
    if if_missing is not IfMissing.CREATE:
        # Raises NotFoundError before the writer makes a folder for its lock.
        FolderTopic(folder).close()
    with ExitStack() as opened:
        writer = FolderWriter(folder, settings)
        opened.callback(writer.close)
        with translated(f"opening {folder}"):
            known = settings.known_count
            if known is None:
                # Otherwise the first append makes the partitions that are lost, after every check.
                numbers = partitions_in(folder)
                make_topic(folder, numbers, settings.partition_count, settings.new_topic_id, fs=settings.fs)
        topic = FolderTopic(folder, complete=True, known_count=known, on_torn=on_torn, writer=writer)
        opened.pop_all()
    return topic


def _in_store(
    location: TopicLocation, *, complete: bool, on_torn: Callable[[str], None] | None
) -> FolderTopic:
    with ExitStack() as opened:
        files = StoreFiles(stores.open_store(location.uri, named_by="--metadata"))
        opened.callback(files.close)
        topic = FolderTopic(Path(), files=files, complete=complete, on_torn=on_torn)
        opened.pop_all()
    return topic


def _on_cluster(location: TopicLocation, *, writable: bool, create: bool) -> MetadataTopic:
    from tierctl.metadata.topic.cluster import open_on_cluster

    return open_on_cluster(location, writable=writable, create=create)
