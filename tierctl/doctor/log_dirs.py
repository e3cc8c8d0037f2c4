"""Check brokers' log directories: whether they can be read, and producer snapshots of their segments."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, not_checked, ok
from tierctl.locallog.folders import list_producer_snapshots, list_segments, parse_partition_folder
from tierctl.model import TopicPartition
from tierctl.report.texts import counted

_INTERNAL = "__"


@dataclass(slots=True)
class _Seen:
    partitions: int = 0
    segments: int = 0


def check_log_dir(folder: Path, select: Callable[[TopicPartition], bool]) -> Iterator[Result]:
    """Yield the results about one log directory; `select` says which partitions matter."""
    subject = str(folder)
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        why = "can't be read by this user" if folder.is_dir() else "is no folder"
        yield fault(Check.LOG_DIR_ACCESS, subject, why)
        yield not_checked(Check.LOG_SNAPSHOTS, subject, why)
        return
    seen, is_readable, is_good = _Seen(), True, True
    for partition in sorted(folder.iterdir()):
        name = parse_partition_folder(partition.name)
        if name is None or name.topic.startswith(_INTERNAL) or not select(name):
            continue
        seen.partitions += 1
        if unreadable := _unreadable(partition):
            is_readable = False
            yield fault(Check.LOG_DIR_ACCESS, str(unreadable), "can't be read by this user")
            continue
        for result in _without_snapshot(partition, seen):
            is_good = False
            yield result
    if is_readable:
        yield ok(Check.LOG_DIR_ACCESS, subject, f"{counted(seen.partitions, 'partition')} can be read")
    if is_good:
        found = counted(seen.segments, "rolled segment")
        found += ", each with its producer snapshot" if seen.segments else ": no producer snapshot is needed"
        yield ok(Check.LOG_SNAPSHOTS, subject, found)


def _unreadable(partition: Path) -> Path | None:
    """Return the folder, or the first file in it, that can't be read; None if all can be."""
    if not os.access(partition, os.R_OK | os.X_OK):
        return partition
    files = (file for file in sorted(partition.iterdir()) if file.is_file())
    return next((file for file in files if not os.access(file, os.R_OK)), None)


def _without_snapshot(partition: Path, seen: _Seen) -> Iterator[Result]:
    """Yield the result about the first rolled segment of a partition without the snapshot at its end."""
    segments, snapshots = list_segments(partition), set(list_producer_snapshots(partition))
    is_found = False
    for segment, following in pairwise(segments):
        if following.base_offset in snapshots:
            seen.segments += 1
        elif not is_found:
            is_found = True
            name = f"{following.base_offset:020d}.snapshot"
            found = f"segment {segment.base_offset:020d}.log is rolled, and {name} does not exist"
            yield fault(Check.LOG_SNAPSHOTS, str(partition), found)
