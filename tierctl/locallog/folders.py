"""Folders in log directories: of logs and of other things; their topic ids, cluster, lock and checkpoints."""

import errno
import fcntl
import mmap
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    IrregularFileError,
    NotFoundError,
    SafetyRefusal,
    UsageError,
)
from tierctl.files import (
    BROKER_LOCK,
    FileBytes,
    exists,
    holds_broker_lock,
    is_dir,
    is_link,
    open_regular,
    read_decoded,
    read_regular,
)
from tierctl.model import LogDirFacts, Uuid
from tierctl.model.events import (
    INTERNAL_TOPICS,
    PARTITION_MAX,
    TopicIdPartition,
    TopicPartition,
    is_legal_topic_name,
)
from tierctl.model.local import LocalLog
from tierctl.model.selection import names_text
from tierctl.wire.batches.batch_head import Buffer
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    META_PROPERTIES,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    read_cluster_id,
    read_node,
    read_offset_checkpoint,
    read_partition_metadata,
)

_SEGMENT = re.compile(r"(?P<base>[0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"(?P<offset>[0-9]{20})\.snapshot\Z")
_TRANSACTION_INDEX = re.compile(r"(?P<base>[0-9]{20})\.txnindex\Z")
_SWAPPED_IN = re.compile(r"[0-9]{20}\.(log|index|timeindex|txnindex)\.swap\Z")
_OF_EMPTY_LOG = re.compile(
    r"(?P<records>[0-9]{20}\.(log|txnindex))\Z|[0-9]{20}\.(index|timeindex|snapshot)\Z"
    rf"|({re.escape(LEADER_EPOCHS_FILE)}|{re.escape(PARTITION_METADATA_FILE)})(\.tmp)?\Z"
)
"""The files that a broker makes before the first record, also if it is killed meanwhile."""
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_LISTINGS_MAX = 10
_OFFSET_MAX = (1 << 63) - 1
NO_RECOVERY = _OFFSET_MAX
"""The recovery point of a log of which a broker that starts checks no batch."""


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of the segment that begins at `base_offset`."""

    directory: Path
    base_offset: int

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with `suffix`, such as `.index`; the file need not exist."""
        return self.directory / f"{self.base_offset:020d}{suffix}"

    @property
    def log(self) -> Path:
        """Path of the file of records."""
        return self.path(".log")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The files in a partition's folder by name: segments and producer snapshots are ascending."""

    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    transaction_indexes: frozenset[int]
    """The base offsets of the segments that have one."""
    has_epochs: bool
    """Whether there is a leader-epoch checkpoint."""


def list_log_files(directory: Path) -> LogFiles:
    """Return the files in a partition's folder; other files are ignored.

    The folder is listed until two listings have the same segments: a listing that is made while a running
    broker adds two segments may have the later one only (readdir). Raise OSError, also if the folder has a
    pipe, a device or a broken link: an open pipe waits for a writer. Raise as `require_no_swap`.
    """
    bases: list[int] | None = None
    for _ in range(_LISTINGS_MAX):
        names = list(_plain_names(directory))
        last, bases = bases, sorted(_numbers(names, _SEGMENT))
        if bases == last:
            require_no_swap(names, str(directory))
            return LogFiles(
                segments=tuple(SegmentFiles(directory, base) for base in bases),
                snapshots=tuple(sorted(_numbers(names, _SNAPSHOT))),
                transaction_indexes=frozenset(_numbers(names, _TRANSACTION_INDEX)),
                has_epochs=LEADER_EPOCHS_FILE in names,
            )
    raise OSError(errno.EBUSY, "segments come and go all the time", str(directory))


def require_no_swap(names: Iterable[str], folder: str) -> None:
    """Raise CorruptInputError if one of the file `names` in a log's folder ends in `.swap`.

    A broker that starts takes such files into the log, and deletes the segments that they replace
    (LogLoader), so that until then the segments of the log are unknown. It deletes `.cleaned` and `.deleted`.
    """
    swap = min(filter(_SWAPPED_IN.match, names), default=None)
    if swap is not None:
        raise CorruptInputError(
            "log",
            expected="no segment that a broker was replacing when it ended",
            found=swap,
            source=folder,
            hint="start the broker, which takes the file into the log, and stop it again if the command "
            "needs it stopped; if it is running, run the command again",
        )


def unknown_in_empty_log(directory: Path) -> str | None:
    """Return the first name in a partition's folder that a broker does not give a file of an empty log.

    So is that of a log with bytes, and of a folder or a link. Raise OSError.
    """
    with os.scandir(directory) as entries:
        return min((entry.name for entry in entries if not _is_of_empty_log(entry)), default=None)


def _is_of_empty_log(entry: os.DirEntry[str]) -> bool:
    match = _OF_EMPTY_LOG.match(entry.name)
    if match is None or not entry.is_file(follow_symlinks=False):
        return False
    return not (match["records"] and entry.stat(follow_symlinks=False).st_size)


def _numbers(names: Iterable[str], pattern: re.Pattern[str]) -> Iterator[int]:
    matches = filter(None, map(pattern.match, names))
    return (int(match[1]) for match in matches if int(match[1]) <= _OFFSET_MAX)


def _plain_names(directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not (entry.is_file() or entry.is_dir()) and os.path.lexists(entry.path):
                raise IrregularFileError(errno.EINVAL, "it is no plain file", entry.path)
            yield entry.name


def parse_partition_folder(name: str) -> TopicPartition | None:
    """Return the partition whose log is in a folder of this name (LocalLog.parseTopicPartitionName).

    None for every other name: folders that are being deleted or moved (`….<id>-delete`, `-stray`, `-future`)
    do not end with a partition number.
    """
    match = _PARTITION.match(name)
    if match is None or not is_legal_topic_name(match["topic"]) or int(match["partition"]) > PARTITION_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def open_found(path: Path) -> FileBytes:
    """Open a file that was found in a folder, not named by the operator; raise OSError.

    Raise CorruptInputError if it is no regular file: what was found beside it may be.
    """
    try:
        return FileBytes(path)
    except OSError as e:
        if e.errno == errno.ELOOP:
            found = "a symbolic link that leads to itself"
        elif isinstance(e, IrregularFileError):
            found = str(e.strerror).removeprefix("it is ")
        elif isinstance(e, IsADirectoryError):
            found = "a folder"
        else:
            raise
        raise CorruptInputError(str(path), expected="a regular file", found=found) from None


@contextmanager
def opened(path: Path) -> Iterator[Buffer]:
    """Yield the file's bytes, mapped into memory while the context is open; slices of them are copies."""
    with os.fdopen(open_regular(path), "rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


# Folders of partitions that are not current logs, and the brokers that log directories belong to.
#
# Source: LogManager.loadLog, LocalLog.parseTopicPartitionName, MetaProperties.

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


def is_file_for_brokers(path: Path) -> bool:
    """Return whether an entry of a log directory is no folder, so that brokers ignore it whatever its name.

    As in LogManager.loadLogs, links are followed. A link that leads nowhere, as to a disk that is not
    mounted, is no file: the log may be there.
    """
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if there is no folder of this name.

    Raise OSError for a folder that can't be read, which Path.glob takes for an empty one, and for a link that
    leads nowhere, as to a disk that is not mounted.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        if is_link(folder) and not exists(folder):
            why = "it is a symbolic link to nothing: mount the disk that it leads to"
            raise OSError(errno.EINVAL, why, str(folder)) from None
        return []


def left_out_folders(
    dirs: Sequence[Path], select: Callable[[TopicPartition], bool] | None = None
) -> list[LeftOutFolder]:
    """Return the folders of selected user partitions that `read_log_dirs` leaves out, by partition."""
    found = []
    for directory in distinct_dirs(dirs):
        for path in directory.iterdir() if is_dir(directory) else ():
            folder = parse_left_out_folder(path)
            if folder is None or folder.partition.topic in INTERNAL_TOPICS:
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
    if is_dir(directory):
        return
    if exists(directory):
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
    named = (
        path
        for path in directory.iterdir()
        if _LEFT_OUT.match(path.name) or parse_partition_folder(path.name) is not None
    )
    return exists(directory / META_PROPERTIES) or any(not is_file_for_brokers(path) for path in named)


def require_no_log_dir_above(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that `option` names is in a log directory.

    A broker does not load a log directory with a folder of another name than a partition's (LogManager).
    """
    for above in folder.resolve().parents:
        if exists(above / META_PROPERTIES):
            raise UsageError(
                f"{option} {folder} is in {above}, a broker's log directory",
                hint="name a folder elsewhere: a broker loads no log directory with a folder that is no log",
            )


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
    nodes = {directory: node_of(directory) for directory in {log.directory.parent for log in logs}}
    for log in logs:
        node = nodes[log.directory.parent]
        if node is not None:
            owned.setdefault((log.topic_id_partition, node), []).append(log)
    dropped: list[LocalLog] = []
    for (partition, node), same in owned.items():
        if len(same) == 1:
            continue
        there = [log for log in same if is_dir(log.directory)]
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


def node_of(directory: Path) -> str | None:
    """Return the broker and the cluster of a log directory as text; None if they are unknown."""
    try:
        node = read_decoded(directory / META_PROPERTIES, read_node)
    except (OSError, CorruptInputError):
        return None
    return None if node is None else f"broker {node.node_id} of cluster {node.cluster_id or '(unknown)'}"


# struct flock: on Linux (type, whence, start, length, pid), on macOS and the BSDs type and whence come last.
_FLOCK, _TYPE_AT = ("hhqqi4x", 0) if sys.platform == "linux" else ("qqihh", 3)


def is_locked(directory: Path) -> bool:
    """Return whether another process holds LogManager's lock on the directory, without taking the lock.

    SafetyRefusal if the lock can't be queried.
    """
    if holds_broker_lock(directory):
        # Querying opens and closes the file, which would release this process's own lock.
        return False
    path = directory / BROKER_LOCK
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, _whole_file_write_lock())
    except FileNotFoundError:
        return False
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, str(error))
        raise SafetyRefusal(
            f"it is unknown whether a broker uses {directory}: {path} can't be queried: {reason}",
            hint="run as the broker's user, or work on a copy of the directory",
        ) from error
    return bool(struct.unpack(_FLOCK, answer)[_TYPE_AT] != fcntl.F_UNLCK)


def _whole_file_write_lock() -> bytes:
    fields = [0, 0, 0, 0, 0]
    fields[_TYPE_AT] = fcntl.F_WRLCK
    return struct.pack(_FLOCK, *fields)


def ensure_stopped(directory: Path) -> None:
    """Raise SafetyRefusal if a running broker holds the directory, since its files may change at any time."""
    if is_locked(directory):
        raise SafetyRefusal(
            f"a running broker holds {directory / BROKER_LOCK}",
            hint="stop the broker, or work on a copy of the directory",
        )


def read_log_dir_facts(directory: Path) -> LogDirFacts:
    """Return the cluster of a log directory and the topics that have a folder in it; raise nothing.

    A directory that can't be read is returned with the reason in `why_unreadable`. An entry with the name of
    a partition's folder that is no folder, as a link to a disk that is not mounted, is an unreadable one:
    from these facts, a topic without a folder is taken for deleted.
    """
    cluster_id = None
    topic_ids: dict[Uuid, str] = {}
    unreadable: dict[str, str] = {}
    try:
        with suppress(FileNotFoundError):
            cluster_id = read_cluster_id(read_regular(directory / META_PROPERTIES))
        for folder in sorted(directory.iterdir()):
            left_out = parse_left_out_folder(folder)
            partition = left_out.partition if left_out else parse_partition_folder(folder.name)
            if partition is None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The offset checkpoints of a log directory; a missing file counts as an empty one, as for a broker."""

    log_start: Mapping[TopicPartition, int]
    high_watermark: Mapping[TopicPartition, int]
    recovery_point: Mapping[TopicPartition, int]
    is_whole: bool
    """Whether no batch can be damaged: the broker was shut down cleanly, or it is running."""

    def recovery_point_of(self, partition: TopicPartition) -> int:
        """Return the offset from which on batches of the partition's log may not have reached the disk.

        A broker that starts reads them, and with them the whole segment that contains the offset.
        """
        return NO_RECOVERY if self.is_whole else self.recovery_point.get(partition, 0)


def read_checkpoints(directory: Path) -> Checkpoints:
    """Return the checkpoints of a log directory.

    Raise CorruptInputError, naming the file, for a damaged one, and the errors of `unreadable`.
    """
    return Checkpoints(
        log_start=_offsets(directory / LOG_STARTS_FILE),
        high_watermark=_offsets(directory / HIGH_WATERMARKS_FILE),
        recovery_point=_offsets(directory / RECOVERY_POINTS_FILE),
        is_whole=exists(directory / _CLEAN_SHUTDOWN) or _is_running(directory),
    )


def _is_running(directory: Path) -> bool:
    with suppress(SafetyRefusal):
        return is_locked(directory)
    return False


def _offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_decoded(path, read_offset_checkpoint) or {}
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> NotFoundError | AuthenticationError:
    kind = AuthenticationError if isinstance(error, PermissionError) else NotFoundError
    return kind(
        f"{error.filename or path} can't be read: {error.strerror}",
        hint="each file of the directory must be readable; run as the broker's user",
    )
