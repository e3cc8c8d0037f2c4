"""Find the logs that a rebuild is based on: the leaders' on a cluster, else the newest local replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.commands.mutation import Mutation
from tierctl.errors import SafetyRefusal
from tierctl.locallog.folders import SegmentFiles
from tierctl.locallog.loading import items_between
from tierctl.model import LocalLog, ObjectSet, TopicIdPartition
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.rebuild.choice import LocalHole
from tierctl.state.log_start import Log
from tierctl.wire.batches.batch_heads import BadRange

_NO_LEADER = "it has no leader now, so its log start is unknown: wait until it has one"
_NO_DIRECTORY = (
    "no log directory has this partition, but others of its topic: name the log directories of all replicas"
)


@dataclass(frozen=True, slots=True)
class DecidingLogs:
    """The log of each partition that a rebuild is based on; for partitions without one, the reason.

    Without a cluster and without log directories both are empty: then a rebuild uses the tier alone.
    """

    leaders: Mapping[TopicIdPartition, Log]
    missing: Mapping[TopicIdPartition, str]

    @classmethod
    def of(cls, run: Mutation, partitions: Sequence[TopicIdPartition], logs: Sequence[LocalLog]) -> Self:
        """Return the logs of `partitions`, which must all exist; `logs` are those in the log directories.

        Unreadable logs are neither in `leaders` nor in `missing`: `run.unreadable` has them.
        """
        if run.cluster is not None:
            on_cluster = run.cluster.leaders(partitions).logs
            leaders: dict[TopicIdPartition, Log] = {
                p: on_cluster[p.key] for p in partitions if p.key in on_cluster
            }
            return cls(leaders, dict.fromkeys((p for p in partitions if p not in leaders), _NO_LEADER))
        if not run.request.log_dir:
            return cls({}, {})
        newest = newest_replicas(logs)
        leaders = {p: newest[p.key] for p in partitions if p.key in newest}
        absent = [p for p in partitions if p not in leaders and p.topic_partition not in run.unreadable]
        return cls(leaders, dict.fromkeys(absent, _NO_DIRECTORY))


def require_read_logs(run: Mutation) -> None:
    """Raise SafetyRefusal if a log in the log directories can't be read."""
    if run.unreadable:
        names = ", ".join(map(str, sorted(run.unreadable)))
        raise SafetyRefusal(f"the logs of {names} can't be read, so their log starts are unknown")


def local_holes(sets: Sequence[ObjectSet], log: Log | None) -> dict[int, LocalHole]:
    """Return the holes of a partition's `log` that begin where the log of one of the `sets` ends.

    Only the batches at both ends of each are read. A log that is not on this host has none.
    """
    if not isinstance(log, LocalLog):
        return {}
    starts = {each.listed.start_offset for each in sets}
    ends = {each.segment.end_offset + 1 for each in sets if each.segment and each.log_end}
    holes = {end: _local_hole(log, end) for end in ends - starts}
    return {end: hole for end, hole in holes.items() if hole is not None}


def _local_hole(log: LocalLog, offset: int) -> LocalHole | None:
    """Return the hole that begins at `offset`; None if there is none, or if bytes beside it are damaged."""
    files = [SegmentFiles(log.directory, each.base_offset) for each in log.segments]
    is_after_a_batch, is_whole, found, next_offset = False, False, 0, log.log_end_offset
    try:
        for buf, item in items_between(files, offset - 1, log.log_end_offset):
            if isinstance(item, BadRange):
                return None
            if item.base_offset >= offset:
                found, next_offset = 1, item.base_offset
                is_whole |= item.position > 0
                break
            is_after_a_batch, is_whole = item.next_offset == offset, item.end == len(buf)
    except FileNotFoundError:
        # A running broker has deleted the file meanwhile.
        return None
    # Bytes after the last whole batch of a file, and a file without one, may have records of the hole.
    begun = [each for each in log.segments if offset <= each.base_offset <= next_offset]
    unread = sum(each.size_bytes > 0 for each in begun) > found
    if not is_after_a_batch or not is_whole or unread or next_offset <= offset:
        return None
    rolled_at = next((each.base_offset for each in begun if each.base_offset > offset), None)
    return LocalHole(next_offset, rolled_at)
