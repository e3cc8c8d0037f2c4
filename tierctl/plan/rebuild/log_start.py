"""Decide the log start of a log whose metadata was lost, and whether a broker has raised it since.

A broker that becomes leader and knows no remote segment takes the start of its local log for the log start
offset, and cuts its leader-epoch checkpoint there; one that knows only the newer segments takes the start of
the first of them (RLMCopyTask, UnifiedLog.maybeIncrementLogStartOffset). If the older segments are published
after that, the broker deletes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tierctl.errors import UsageError
from tierctl.model import EpochEntry, LocalLog, ObjectSet, RemoteLogSegmentMetadata
from tierctl.state.log_start import start_within

TIER, DISK = "tier", "disk"


class Log(Protocol):
    """The attributes of a replica's log that LocalLog and ClusterLog share."""

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """The leader-epoch checkpoint."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""
        ...

    @property
    def local_log_start_offset(self) -> int:
        """The base offset of the first local segment."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written, or the high watermark."""
        ...


@dataclass(frozen=True, slots=True)
class AskedLogStart:
    """The log start to use where brokers raised it: `tier`, `disk`, or an offset."""

    choice: str | int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of --log-start; raise UsageError for an unknown word or a negative offset."""
        if text in {TIER, DISK}:
            return cls(text)
        if text.isascii() and text.isdigit() and int(text) < 1 << 63:
            return cls(int(text))
        raise UsageError(
            f"--log-start {text}: expected {TIER}, {DISK} or an offset",
            hint=f"{TIER}: as the newest segment's objects say; {DISK}: as the checkpoint files say",
        )


@dataclass(frozen=True, slots=True)
class LogStart:
    """The log start with which segments are published; `raised_from` is a lower one with sets in the tier.

    `raised_from` is None unless a broker without metadata may have raised the log start. `checkpoint` is the
    log start in log-start-offset-checkpoint if it is lower than `offset`, the start of the first leader
    epoch.
    """

    offset: int
    raised_from: int | None = None
    checkpoint: int | None = None


def replica_start(log: Log) -> int:
    """Return the log start offset of a replica, or the start of its first leader epoch if that is higher.

    Brokers write a cut leader-epoch checkpoint at once, and log-start-offset-checkpoint every minute
    (log.flush.start.offset.checkpoint.interval.ms). A leader deletes remote segments that end below either.
    Without a record, as in the first minute of a tiered topic, the leader epochs alone tell the log start.
    """
    if is_start_unknown(log) and log.leader_epochs:
        return log.leader_epochs[0].start_offset
    return max([log.log_start_offset, *(entry.start_offset for entry in log.leader_epochs[:1])])


def is_start_unknown(log: Log) -> bool:
    """Return whether log-start-offset-checkpoint has no record of a replica."""
    return isinstance(log, LocalLog) and not log.is_log_start_known


def find_log_start(
    chain_of: Sequence[Sequence[RemoteLogSegmentMetadata]], sets: Sequence[ObjectSet], logs: Sequence[Log]
) -> LogStart:
    """Return the log start of a partition from its replicas' `logs`, or from the tier without logs.

    `chain_of` are the gapless chains of `sets`, those that agree with the lineage. A log start may have been
    raised wrongly if it lies at the start or after the end of a segment, or at the start of the local log,
    and complete segments adjoin it below: this looks like retention whose objects are not deleted yet. The
    same is true of leader epochs that begin above the log start, and of any log start without a record.
    """
    if not logs:
        return LogStart(_told_by_tier(chain_of[0][0], sets) if chain_of else 0)
    offset = max(map(replica_start, logs))
    stated = max(replica_start(log) if is_start_unknown(log) else log.log_start_offset for log in logs)
    checkpoint = stated if stated < offset else None
    # Leader epochs that begin within the local log, above the log start, were cut: the local log joins.
    joins = min(offset, *(log.local_log_start_offset for log in logs)) if checkpoint is not None else offset
    below = next((c for c in chain_of if c[0].end_offset < offset and joins <= c[-1].end_offset + 1), None)
    if below is None:
        return LogStart(offset)
    # Replicas roll at different offsets, so a segment outside of the chain may begin where the log start is.
    borders = {segment.end_offset + 1 for segment in below} | {log.local_log_start_offset for log in logs}
    borders |= {each.listed.start_offset for each in sets}
    if offset not in borders and checkpoint is None and not any(map(is_start_unknown, logs)):
        return LogStart(offset)
    raised_from = _told_by_tier(below[0], sets, below=offset)
    return LogStart(offset, raised_from=raised_from, checkpoint=checkpoint)


def _told_by_tier(
    first: RemoteLogSegmentMetadata, sets: Sequence[ObjectSet], below: int | None = None
) -> int:
    """Return the log start within the `first` segment of a log, by the newest leader-epoch index.

    `start_within` says what it states. Indexes that begin at `below` or
    higher are left out: they were copied after the log start was raised.
    """
    newest = (-1, -1, 0)
    for each in sets:
        if each.segment is None or not each.lineage:
            continue
        start = each.lineage[0].start_offset
        if below is None or start < below:
            newest = max(newest, (each.segment.segment_leader_epochs[-1][0], each.segment.end_offset, start))
    return start_within(first, newest[2])


def decided_start(found: LogStart, asked: AskedLogStart | None) -> int | None:
    """Return the log start with which to publish; None if it may be damaged and no choice was given.

    An offset that was asked for must be possible (`why_impossible`).
    """
    if found.raised_from is None:
        return found.offset
    if asked is None:
        return None
    if asked.choice == TIER:
        return found.raised_from
    return asked.choice if isinstance(asked.choice, int) else found.offset


def why_impossible(found: LogStart, asked: AskedLogStart | None) -> str | None:
    """Return why a log can't start at the offset that was asked for; None if it can, or none was asked."""
    if asked is None or not isinstance(asked.choice, int) or asked.choice == found.offset:
        return None
    wanted = f"--log-start {asked.choice} is not possible"
    if found.raised_from is None:
        return (
            f"{wanted}: the log start is {found.offset}, and no complete segments that join it are below it, "
            "so nothing was damaged and it stays"
        )
    if asked.choice < found.raised_from:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the complete "
            f"segments that join the log begin at {found.raised_from}"
        )
    if asked.choice > found.offset:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the log start "
            f"is {found.offset}; DeleteRecords raises it once the brokers run"
        )
    return None
