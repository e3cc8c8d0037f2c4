"""Log directories, and folders of partitions in them, that can't be read."""

from pathlib import Path

from tierctl.errors import TierctlError
from tierctl.locallog.folders import parse_partition_folder
from tierctl.model.engine import Severity
from tierctl.verify.findings import Finding, FindingKind


def unreadable_log(folder: Path, error: TierctlError) -> Finding:
    """Return the finding about a log directory, or a partition's folder in it, that could not be read."""
    place = parse_partition_folder(folder.name)
    return Finding(
        kind=FindingKind.UNREADABLE_LOG,
        severity=Severity.ERROR,
        topic=place.topic if place else None,
        topic_id=None,
        partition=place.partition if place else None,
        key=str(folder),
        message=error.message,
    )
