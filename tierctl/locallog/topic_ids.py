"""Finds the topic ids that have a folder in a log directory, and the cluster whose directory it is."""

from collections.abc import Collection, Sequence
from pathlib import Path

from tierctl.errors import CorruptInputError, NotFoundError
from tierctl.files import read_regular
from tierctl.locallog.files import parse_partition_folder, read_if_exists
from tierctl.locallog.folders import parse_left_out_folder, require_log_dirs
from tierctl.model import LogDirFacts, Uuid
from tierctl.model.selection import names_text
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
                topic_id = read_partition_metadata(read_regular(folder / PARTITION_METADATA_FILE))
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


def require_own_log_dirs(dirs: Sequence[Path], topic_ids: Collection[Uuid | None], owner: str) -> None:
    """Raise NotFoundError if the log directories have no topic of these ids: another cluster has them.

    `topic_ids` are those that `owner` has, which the message names. Nothing is raised for topics without any,
    or where the id of a topic in the log directories can't be read; NotFoundError as for `require_log_dirs`.
    """
    require_log_dirs(dirs)
    facts = [read_log_dir_facts(directory) for directory in dirs]
    if not facts or not topic_ids or any(each.why_unreadable or each.unreadable_topics for each in facts):
        return
    if all(each.topic_ids.keys().isdisjoint(topic_ids) for each in facts):
        raise NotFoundError(
            f"no --log-dir has a topic of {owner}: {names_text([str(directory) for directory in dirs])}",
            hint="name the log directories (log.dirs) of the brokers that have these topics",
        )
