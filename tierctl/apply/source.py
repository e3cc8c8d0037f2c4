"""The local files of a segment that is to be copied, found again and seen to be what was planned."""

from dataclasses import dataclass
from pathlib import Path

from tierctl.model import EpochEntry, LocalLog, LocalSegment, LogSegmentData
from tierctl.plan.model import Step
from tierctl.state.lineage import Lineage
from tierctl.wire.checkpoints import write_leader_epoch_checkpoint

Fingerprint = tuple[tuple[int, int, int], ...]


class SourceChanged(Exception):  # noqa: N818
    """What a step was decided from is no longer so; its text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rolled segment of a local log, with everything that goes along with it."""

    base_offset: int
    next_base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    data: LogSegmentData
    fingerprint: Fingerprint


def find_source(step: Step, log: LocalLog | None) -> Source:
    """The segment `step` wants copied, in `log` as it is now. Raises SourceChanged, saying what changed."""
    if log is None:
        raise SourceChanged("the log directories don't hold this partition")
    segment = next((s for s in log.segments if s.base_offset == step.start_offset), None)
    if segment is None:
        raise SourceChanged("the log has no such segment any more")
    if segment.next_base_offset is None or segment.producer_snapshot is None:
        raise SourceChanged("the segment is the active one, or has no producer snapshot after it")
    if segment.next_base_offset > log.last_stable_offset:
        raise SourceChanged(f"the segment reaches above the last stable offset {log.last_stable_offset}")
    source = _source(log, segment, segment.next_base_offset, segment.producer_snapshot)
    _compare(step, source)
    return source


def _source(log: LocalLog, segment: LocalSegment, next_base_offset: int, producer_snapshot: Path) -> Source:
    # From the log's start, not the segment's: a follower builds its lineage from this one file.
    lineage = Lineage(log.leader_epochs)
    data = LogSegmentData(
        log_segment=segment.log,
        offset_index=segment.offset_index,
        time_index=segment.time_index,
        transaction_index=segment.transaction_index,
        producer_snapshot_index=producer_snapshot,
        leader_epoch_index=write_leader_epoch_checkpoint(lineage.truncate_from_end(next_base_offset).entries),
    )
    return Source(
        base_offset=segment.base_offset,
        next_base_offset=next_base_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        segment_leader_epochs=lineage.entries_in_range(segment.base_offset, next_base_offset),
        data=data,
        fingerprint=fingerprint(data),
    )


def _compare(step: Step, source: Source) -> None:
    facts = {
        "end_offset": (step.end_offset, source.next_base_offset - 1),
        "segment_size_in_bytes": (step.details.get("segment_size_in_bytes"), source.size_bytes),
        "max_timestamp_ms": (step.details.get("max_timestamp_ms"), source.max_timestamp_ms),
        "segment_leader_epochs": (
            step.details.get("segment_leader_epochs"),
            [list(entry) for entry in source.segment_leader_epochs],
        ),
    }
    changed = [f"{name} was {then}, is {now}" for name, (then, now) in facts.items() if then != now]
    if changed:
        raise SourceChanged(f"the segment changed: {'; '.join(changed)}")


def fingerprint(data: LogSegmentData) -> Fingerprint:
    """Size, time of change and inode of every file; what is written to changes at least one of them.

    Raises SourceChanged when a file is gone.
    """
    files = (
        data.log_segment,
        data.offset_index,
        data.time_index,
        data.producer_snapshot_index,
        *(() if data.transaction_index is None else (data.transaction_index,)),
    )
    try:
        facts = [file.stat() for file in files]
    except FileNotFoundError as e:
        raise SourceChanged(f"{e.filename} is gone") from None
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)
