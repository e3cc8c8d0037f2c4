"""The snapshots of a state directory: one file per metadata partition, with the state that its caches give.

A snapshot saves the fold of the caches. It counts only while the manifest confirms it and every cache of its
metadata partition has the size and the time of last modification that the manifest states; otherwise the
caches are read.
"""

from collections.abc import Iterable
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.files import FileSystem, read_regular, write_durably
from tierctl.metadata.state_dir.manifest import CacheEntry, Manifest, SnapshotEntry
from tierctl.state.snapshot import read_snapshot, write_snapshot
from tierctl.state.tier import TierState
from tierctl.wire.crc import crc32c

PREFIX = "_tierctl_state-"


def load_snapshots(folder: Path, manifest: Manifest, state: TierState) -> set[int]:
    """Add to `state` the state of each metadata partition whose snapshot counts; return these partitions.

    Raises OSError.
    """
    changed = {
        entry.metadata_partition
        for name, entry in manifest.caches.items()
        if not _is_as_written(folder / name, entry)
    }
    wanted = manifest.snapshots.keys() - changed
    return {number for number in sorted(wanted) if _load(folder, manifest, number, state)}


def _is_as_written(path: Path, entry: CacheEntry) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime_ns) == (entry.size_bytes, entry.modified_ns)


def _load(folder: Path, manifest: Manifest, number: int, state: TierState) -> bool:
    try:
        data = read_regular(folder / f"{PREFIX}{number}")
    except FileNotFoundError:
        return False
    if (len(data), crc32c(data)) != manifest.snapshots[number]:
        return False
    try:
        found = read_snapshot(data).state
    except CorruptInputError:
        # Another release of tierctl wrote it; the caches have the same content.
        return False
    if found.read != {number: manifest.read.get(number)} or found.partitions.keys() & state.partitions.keys():
        return False
    state.partitions |= found.partitions
    state.tables |= found.tables
    state.quarantined += found.quarantined
    for anomaly in found.anomalies[: state.anomaly_room]:
        state.note(anomaly)
        found.anomaly_count -= 1
    state.anomaly_count += found.anomaly_count
    return True


def write_snapshots(
    folder: Path, state: TierState, numbers: Iterable[int], *, fs: FileSystem
) -> dict[int, SnapshotEntry]:
    """Write the snapshots of metadata partitions; return their entries of the manifest. Raises OSError."""
    written = {}
    for number in numbers:
        data = write_snapshot(_only(state, number), number)
        write_durably(folder / f"{PREFIX}{number}", [data], fs=fs, sync_folder=False)
        written[number] = SnapshotEntry(len(data), crc32c(data))
    if written:
        fs.sync_folder(folder)
    return written


def _only(state: TierState, number: int) -> TierState:
    """Return the state of one metadata partition, with the number of its anomalies."""
    anomalies = [a for a in state.anomalies if a.metadata_partition == number]
    return TierState(
        partitions={k: part for k, part in state.partitions.items() if part.metadata_partition == number},
        read={number: state.read[number]},
        quarantined=[q for q in state.quarantined if q.metadata_partition == number],
        anomalies=anomalies,
        anomaly_count=len(anomalies),
        tables={number: state.table(number)},
    )
