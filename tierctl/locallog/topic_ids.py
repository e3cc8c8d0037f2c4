"""Finds the topic ids that have a folder in a log directory, and the directory's cluster."""

from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.locallog.files import parse_partition_folder, read_if_exists
from tierctl.locallog.folders import parse_left_out_folder
from tierctl.model import LogDirFacts, Uuid
from tierctl.wire.files.checkpoints import PARTITION_METADATA_FILE, read_partition_metadata
from tierctl.wire.files.meta_properties import META_PROPERTIES, read_cluster_id


def read_log_dir_facts(directory: Path) -> LogDirFacts:
    """Return the cluster of a log directory and the topics that have a folder in it; raise nothing.

    A directory that can't be read is returned with the reason in `why_unreadable`.
    """
    topic_ids: dict[Uuid, str] = {}
    unreadable: dict[str, str] = {}
    try:
        data = read_if_exists(directory / META_PROPERTIES)
        cluster_id = None if data is None else read_cluster_id(data)
        for folder in sorted(directory.iterdir()):
            left_out = parse_left_out_folder(folder)
            partition = left_out.partition if left_out else parse_partition_folder(folder.name)
            if partition is None or not folder.is_dir():
                continue
            try:
                topic_id = read_partition_metadata((folder / PARTITION_METADATA_FILE).read_bytes())
                topic_ids.setdefault(topic_id, folder.name)
            except (OSError, CorruptInputError):
                unreadable.setdefault(partition.topic, folder.name)
    except OSError as error:
        return LogDirFacts(path=directory, why_unreadable=error.strerror or str(error))
    except CorruptInputError as error:
        return LogDirFacts(path=directory, why_unreadable=f"{META_PROPERTIES}: {error.message}")
    return LogDirFacts(
        path=directory, cluster_id=cluster_id, topic_ids=topic_ids, unreadable_topics=unreadable
    )
