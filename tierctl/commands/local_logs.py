"""Read the logs of log directories; note which folders are left out and which replicas are used."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tierctl.errors import TierctlError
from tierctl.files import is_dir
from tierctl.locallog import (
    FolderKind,
    LeftOutFolder,
    left_out_folders,
    list_partitions,
    read_log_dirs,
    require_log_dirs,
)
from tierctl.locallog.folders import parse_partition_folder
from tierctl.metadata.state_dir import Journal
from tierctl.model import LocalLog, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.progress import Progress
from tierctl.model.selection import SHOWN_MAX, counted, names_text
from tierctl.plan.preconditions import newest_replicas

_MEANINGS = {
    FolderKind.FUTURE: "a broker moves the partition there, and its current log is in another directory",
    FolderKind.DELETE: "a broker will delete it",
    FolderKind.STRAY: "its broker is no replica of the partition any more",
}


Select = Callable[[TopicPartition], bool]


def read_local_logs(
    dirs: Sequence[Path],
    progress: Progress,
    *,
    select: Select,
    on_error: Callable[[Path, TierctlError], None] | None = None,
) -> list[LocalLog]:
    """Read the logs of the partitions in `select`, and note facts about them.

    `on_error` as for `read_log_dirs`. NotFoundError for a folder that is no broker's log directory.
    """
    require_log_dirs(dirs)
    logs = read_log_dirs(
        dirs,
        select=select,
        on_error=on_error,
        reading=lambda total: progress.bar("reading log directories", unit="partitions", total=total),
    )
    notes = (*left_out_notes(dirs, select), *replica_notes(logs), *_start_notes(logs), *_end_notes(logs))
    for note in notes:
        progress.note(note)
    return logs


@dataclass(frozen=True, slots=True)
class UnreadLogs:
    """The partitions whose logs can't be read, and the errors of their folders or log directories."""

    progress: Progress
    partitions: set[TopicPartition] = field(default_factory=set)
    errors: dict[Path, TierctlError] = field(default_factory=dict)

    def add(self, folder: Path, error: TierctlError) -> None:
        """Report and add the error of a folder, as `on_error` of `read_local_logs`."""
        self.progress.warn(f"unreadable: {folder}: {error.message}; {error.hint or 'it is left out'}")
        self.errors[folder] = error
        named = parse_partition_folder(folder.name)
        # An error of a checkpoint concerns every partition of its log directory.
        found = {p.topic_partition for p in list_partitions([folder])} if named is None else {named}
        self.partitions.update(found)


def missing_log_note(partitions: Collection[TopicIdPartition]) -> str:
    """Return the note that no log directory has the logs of `partitions`."""
    names = names_text([str(partition.topic_partition) for partition in partitions])
    return (
        f"no --log-dir has a log of {names}: where the log starts now, and what only the local log has, is "
        "not known"
    )


def left_out_notes(dirs: Sequence[Path], select: Select) -> Iterator[str]:
    """Yield one note per kind of folder in `dirs` that a broker does not load as a current log."""
    kinds: dict[FolderKind, list[LeftOutFolder]] = defaultdict(list)
    for folder in left_out_folders(dirs, select):
        kinds[folder.kind].append(folder)
    for kind, folders in kinds.items():
        paths = names_text([str(folder.path) for folder in folders])
        yield f"left out {counted(len(folders), 'folder')} of kind -{kind} ({paths}): {_MEANINGS[kind]}"
    moving = {str(folder.partition) for folder in kinds.get(FolderKind.FUTURE, ())}
    missing = [name for name in moving if not any(is_dir(directory / name) for directory in dirs)]
    if missing:
        names = names_text(missing)
        yield f"no --log-dir has the current log of {names}: name the directory that the broker moves it from"


def replica_notes(logs: Collection[LocalLog]) -> Iterator[str]:
    """Yield which log is used of each partition that has several, and why; a bounded number of notes."""
    replicas: dict[tuple[Uuid, int], list[LocalLog]] = defaultdict(list)
    for log in logs:
        replicas[log.topic_id_partition.key].append(log)
    several = {key: same for key, same in replicas.items() if len(same) > 1}
    used = newest_replicas(logs)
    for key, same in list(several.items())[:SHOWN_MAX]:
        chosen = used[key]
        others = ", ".join(_facts(log) for log in same if log is not chosen)
        yield (
            f"{chosen.topic_partition} has {len(same)} replicas in the log directories: the newest is used, "
            f"{_facts(chosen)}; not {others}"
        )
    if len(several) > SHOWN_MAX:
        more = counted(len(several) - SHOWN_MAX, "more partition")
        yield f"of {more} with several replicas the newest is used, too"


def _start_notes(logs: Collection[LocalLog]) -> Iterator[str]:
    """Yield a note about log starts above the log's end, and one about those that are doubtful."""
    beyond = [e for log in logs if (e := log.damaged_end) is not None and not log.segments]
    yield from (f"{error.message}; {error.hint}" for error in beyond[:SHOWN_MAX])
    if len(beyond) > SHOWN_MAX:
        yield f"the log starts of {len(beyond) - SHOWN_MAX} more logs are above their last batches, too"
    doubtful = [str(log.directory) for log in logs if log.is_log_start_doubtful and log.segments]
    if doubtful:
        yield (
            f"log-start-offset-checkpoint states a log start above the first leader epoch of "
            f"{names_text(doubtful)}: a follower that was built from the tier has such epochs until its log "
            "start rises, other brokers cut them first; so nothing is deleted by it"
        )


def _end_notes(logs: Collection[LocalLog]) -> Iterator[str]:
    """Yield a note about the logs with records whose high watermark is not recorded."""
    unknown = [
        str(log.directory)
        for log in logs
        if not log.is_high_watermark_known and log.log_end_offset > log.high_watermark
    ]
    if unknown:
        yield (
            f"replication-offset-checkpoint has no high watermark of {names_text(unknown)}: as in a broker "
            "that starts, no record of it counts as committed unless another replica has it, so none is read "
            "or copied; put the checkpoint back, or start the broker"
        )


def _facts(log: LocalLog) -> str:
    epoch = log.leader_epochs[-1].epoch if log.leader_epochs else None
    known = "no leader epoch" if epoch is None else f"leader epoch {epoch}"
    return f"{log.directory.parent} ({known}, log end {log.log_end_offset})"


def with_raised_log_starts(logs: Sequence[LocalLog], state_dir: Path | None) -> list[LocalLog]:
    """Return the logs with the log starts that sweeps raised, which are kept in `state_dir`.

    A log start above the high watermark belongs to another log of the partition and is ignored.
    """
    kept = {} if state_dir is None else Journal(state_dir).log_starts()
    starts = ((log, kept.get(log.topic_id_partition.key, 0)) for log in logs)
    return [
        replace(log, log_start_offset=start) if log.log_start_offset < start <= log.high_watermark else log
        for log, start in starts
    ]
