"""Checks of a partition's offsets: KIP-405's invariants, and the last offset that was copied."""

from collections.abc import Iterator
from dataclasses import dataclass

from tierctl.model import TopicIdPartition
from tierctl.model.severity import Severity
from tierctl.verify.findings import Finding, FindingKind, finding_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """A partition's offsets by KIP-405's names; ends are exclusive, None is unknown or no segment."""

    local_log_start_offset: int
    """Lx"""
    last_stable_offset: int
    """Ly"""
    local_log_end_offset: int
    """Lz"""
    remote_log_start_offset: int | None = None
    """Rx"""
    remote_log_end_offset: int | None = None
    """Ry: the offset after the last one copied"""


def check_offsets(partition: TopicIdPartition, offsets: Offsets) -> Iterator[Finding]:
    """Check KIP-405's invariants Lz >= Ly >= Lx and Ly >= Ry >= Rx."""
    named = {
        "Lz (local log end)": offsets.local_log_end_offset,
        "Ly (last stable offset)": offsets.last_stable_offset,
        "Lx (local log start)": offsets.local_log_start_offset,
        "Ry (remote log end)": offsets.remote_log_end_offset,
        "Rx (remote log start)": offsets.remote_log_start_offset,
    }
    lz, ly, lx, ry, rx = named
    for upper, lower in ((lz, ly), (ly, lx), (ly, ry), (ry, rx)):
        high, low = named[upper], named[lower]
        if high is not None and low is not None and high < low:
            message = f"{upper} {high} is below {lower} {low}"
            yield finding_of(partition, FindingKind.OFFSETS, Severity.ERROR, message)


def check_latest_tiered(
    partition: TopicIdPartition, latest_tiered: int, *, copied: int, log_start_offset: int
) -> Iterator[Finding]:
    """Compare the last copied offset of the leader with `copied`, the metadata's; -1 is none.

    Below the log start there is nothing to compare: segments there have expired.
    """
    if latest_tiered > copied and latest_tiered >= log_start_offset:
        severity, effect = Severity.ERROR, "it may delete segments that nobody copied"
    elif latest_tiered < copied:
        severity, effect = Severity.WARNING, "it copies the others once more"
    else:
        return
    message = (
        f"the leader takes offsets up to {latest_tiered} for copied, the metadata up to {copied}: {effect}"
    )
    yield finding_of(partition, FindingKind.OFFSETS, severity, message)
