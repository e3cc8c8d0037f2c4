"""Folders of partitions that are not current logs, and the brokers that log directories belong to.

Source: LogManager.loadLog, LocalLog.parseTopicPartitionName, MetaProperties.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tierctl.errors import CorruptInputError, NotFoundError, UsageError
from tierctl.locallog.files import parse_partition_folder, read_if_exists
from tierctl.model.ids import TopicIdPartition, TopicPartition
from tierctl.model.local import LocalLog
from tierctl.wire.files.meta_properties import META_PROPERTIES, read_node

_LEFT_OUT = re.compile(r"(?P<partition>.+)\.[^.]+-(?P<kind>future|delete|stray)\Z")


class FolderKind(StrEnum):
    """The kinds of folders that have a partition's log and are not its current log."""

    FUTURE = "future"
    """A broker fills it to move the partition to this log directory."""
    DELETE = "delete"
    """A broker will delete it."""
    STRAY = "stray"
    """The broker is not a replica of the partition, or the topic was deleted."""


@dataclass(frozen=True, slots=True, order=True)
class LeftOutFolder:
    """A folder in a log directory that a broker does not load as the current log of `partition`."""

    partition: TopicPartition
    kind: FolderKind
    path: Path


def left_out_folders(
    dirs: Sequence[Path], select: Callable[[TopicPartition], bool] | None = None
) -> list[LeftOutFolder]:
    """Return the folders of selected user partitions that `read_log_dirs` leaves out, by partition."""
    found = []
    for directory in distinct_dirs(dirs):
        for path in directory.iterdir() if directory.is_dir() else ():
            folder = parse_left_out_folder(path)
            if folder is None or folder.partition.topic.startswith("__") or not path.is_dir():
                continue
            if select is None or select(folder.partition):
                found.append(folder)
    return sorted(found)


def parse_left_out_folder(path: Path) -> LeftOutFolder | None:
    """Return the folder that is named `<topic>-<partition>.<unique id>-<kind>`; None for another name."""
    match = _LEFT_OUT.match(path.name)
    partition = None if match is None else parse_partition_folder(match["partition"])
    if match is None or partition is None:
        return None
    return LeftOutFolder(partition, FolderKind(match["kind"]), path)


_LOG_DIR_HINT = "--log-dir takes a broker's log.dirs entry"


def require_folder(directory: Path) -> None:
    """Raise NotFoundError if a log directory does not exist, and UsageError if it is no directory."""
    if directory.is_dir():
        return
    if directory.exists():
        raise UsageError(f"{directory} is no directory", hint=_LOG_DIR_HINT)
    raise NotFoundError(f"{directory}: no such folder", hint=_LOG_DIR_HINT)


def require_log_dirs(directories: Iterable[Path]) -> None:
    """Raise NotFoundError if a folder is not a broker's log directory: its name may be mistyped."""
    for directory in directories:
        require_folder(directory)
        if not is_log_dir(directory):
            raise NotFoundError(
                f"{directory} is no broker's log directory: it has neither partitions nor {META_PROPERTIES}",
                hint=_LOG_DIR_HINT,
            )


def is_log_dir(directory: Path) -> bool:
    """Return whether a folder has partitions or meta.properties, as a broker's log directory has."""
    names = (path.name for path in directory.iterdir())
    partitions = (n for n in names if _LEFT_OUT.match(n) or parse_partition_folder(n) is not None)
    return (directory / META_PROPERTIES).exists() or next(partitions, None) is not None


def distinct_dirs(dirs: Sequence[Path]) -> list[Path]:
    """Return the directories in their order, without repeated ones, also through links."""
    found: dict[Path, Path] = {}
    for directory in map(Path, dirs):
        found.setdefault(directory.resolve(), directory)
    return list(found.values())


def without_duplicates(
    logs: Collection[LocalLog], on_duplicates: Callable[[Path, CorruptInputError], None]
) -> list[LocalLog]:
    """Return the logs without partitions of which one broker has several folders.

    `on_duplicates` receives the first folder of such a partition and the error. Logs in directories without
    meta.properties count as those of different brokers. A folder that no longer exists is no duplicate,
    because a running broker renames the old folder after it has moved a partition.
    """
    owned: dict[tuple[TopicIdPartition, str], list[LocalLog]] = {}
    nodes = {directory: _node_of(directory) for directory in {log.directory.parent for log in logs}}
    for log in logs:
        node = nodes[log.directory.parent]
        if node is not None:
            owned.setdefault((log.topic_id_partition, node), []).append(log)
    dropped: list[LocalLog] = []
    for (partition, node), same in owned.items():
        if len(same) == 1:
            continue
        there = [log for log in same if log.directory.is_dir()]
        dropped += same if len(there) > 1 else [log for log in same if log not in there]
        if len(there) > 1:
            on_duplicates(there[0].directory, _duplicates_error(partition, node, there))
    return [log for log in logs if log not in dropped]


def _duplicates_error(partition: TopicIdPartition, node: str, logs: Sequence[LocalLog]) -> CorruptInputError:
    return CorruptInputError(
        f"the log of {partition}",
        expected=f"one folder on {node}",
        found=f"{len(logs)}: {', '.join(str(log.directory) for log in logs)}",
        hint="a broker does not start with both: delete the folder in the directory that failed last, or "
        "leave that directory out",
    )


def _node_of(directory: Path) -> str | None:
    """Return the broker and the cluster of a log directory as text; None if they are unknown."""
    try:
        data = read_if_exists(directory / META_PROPERTIES)
        node = None if data is None else read_node(data)
    except (OSError, CorruptInputError):
        return None
    return None if node is None else f"broker {node.node_id} of cluster {node.cluster_id or '(unknown)'}"
