"""Findings about `_rlmm_committed_offsets`, the consumed offsets of brokers before Kafka 3.8."""

from pathlib import Path

from tierctl.errors import TierctlError
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.verify.findings import Finding, FindingKind


def unsafe_offset(path: Path, metadata_partition: int, message: str) -> Finding:
    """Return the finding about the committed offset of a metadata partition in the file."""
    return _finding(FindingKind.UNSAFE_COMMITTED_OFFSET, path, metadata_partition, message)


def unreadable_offsets(path: Path, error: TierctlError) -> Finding:
    """Return the finding about a damaged file."""
    return _finding(FindingKind.UNREADABLE_LOG, path, None, error.message)


def _finding(kind: FindingKind, path: Path, metadata_partition: int | None, message: str) -> Finding:
    return Finding(
        kind=kind,
        severity=kind.row.severity,
        topic=METADATA_TOPIC,
        topic_id=None,
        partition=metadata_partition,
        key=str(path),
        message=message,
    )
