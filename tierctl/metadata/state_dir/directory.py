"""The state directory of `--state-dir`, with the files that KIP-405 designs for a broker.

It contains one flat-file cache per user partition and `_rlmm_committed_offsets`, the last consumed offset of
each metadata partition. A run loads the caches, or the snapshots of their content (`snapshot_files`),
consumes from the committed offset + 1, and writes first the caches, then the snapshots, then
`_tierctl_caches`, then the offsets, each atomically. Offsets behind the caches are harmless,
because events that a cache has are skipped. Offsets never pass a record that could not be decoded, so that
the next run reads it again.
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tierctl.errors import CorruptInputError, LockedError, SafetyRefusal
from tierctl.files import (
    BACKUP_SUFFIX,
    PLAIN,
    FileSystem,
    exclusive,
    read_regular,
    replace_durably,
    write_durably,
)
from tierctl.metadata.state_dir.cache_file import (
    CacheLedger,
    Extension,
    LoadedCache,
    OpenCache,
    extend_cache,
    load_cache,
    partition_of,
)
from tierctl.metadata.state_dir.manifest import (
    MANIFEST,
    CacheEntry,
    Manifest,
    SnapshotEntry,
    require_no_log_dir,
    require_private,
    require_same_topic,
)
from tierctl.metadata.topic.base import MetadataTopic, translated
from tierctl.model import TopicIdPartition
from tierctl.state.fold import fold
from tierctl.state.snapshot import read_snapshot, write_snapshot
from tierctl.state.tier_state import TierState
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files import committed_offsets
from tierctl.wire.metadata.decode import DecodedEvents
from tierctl.wire.primitives import crc32c

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


COMMITTED_OFFSETS = "_rlmm_committed_offsets"
LOCK = ".tierctl-state.lock"
PENDING_BYTES_MAX = 1 << 27
_WRITERS = 16


class StateDirectory:
    """The caches and offsets of one metadata topic; `notes` has a message for each damaged file.

    A writer needs exclusive access to the directory, and otherwise raises LockedError; a reader that finds it
    locked writes nothing. Raise MetadataError if the disk fails, and UsageError for a broker's log directory.
    """

    def __init__(self, folder: Path, *, writable: bool = True, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs
        self._held = ExitStack()
        self._keeps = True
        self.notes: list[str] = []
        self._ledger = CacheLedger()
        self._manifest: Manifest | None = None
        self._committed: dict[int, int] = {}
        self._saved: set[int] = set()
        """The metadata partitions whose snapshots in the manifest have the present state."""
        require_no_log_dir(folder)
        require_private(folder)
        with translated(f"opening {folder}"):
            fs.make_folder(folder)
            try:
                self._held.enter_context(exclusive(folder, LOCK))
            except LockedError:
                if writable:
                    raise
                self._keeps = False

    def load(self, state: TierState, topic: MetadataTopic) -> None:
        """Fold the cached events into `state`; set `state.read` to the offsets at which to continue.

        A missing, incomplete or damaged cache is renamed to `.bak`, and its metadata partition is read from
        offset 0 again. Raises SafetyRefusal if the directory belongs to another metadata topic, or if the
        topic's number of partitions has changed.
        """
        with translated(f"loading {self._folder}"):
            manifest = self._read_manifest(topic)
            committed = self._read_committed()
            self._saved = load_snapshots(self._folder, manifest, state)
            again = {
                entry.metadata_partition
                for name, entry in manifest.caches.items()
                if not self._load_one(name, entry, state)
            }
        for partition in range(topic.partition_count):
            kept = min(committed.get(partition, -1) + 1, manifest.read.get(partition, 0))
            state.read[partition] = 0 if partition in again else kept
        self._committed = {p: offset for p, offset in committed.items() if p not in again}
        state.missing = list(manifest.missing)
        self._manifest = manifest

    def _read_manifest(self, topic: MetadataTopic) -> Manifest:
        path = self._folder / MANIFEST
        new = Manifest(topic_id=topic.topic_id, metadata_partitions=topic.partition_count)
        try:
            found = Manifest.loads(read_regular(path))
        except FileNotFoundError:
            return new
        except CorruptInputError as e:
            self._set_aside(path, e)
            return new
        if found.metadata_partitions != topic.partition_count:
            raise SafetyRefusal(
                f"the metadata topic has {topic.partition_count} partitions, "
                f"but had {found.metadata_partitions} when {self._folder} was filled",
                hint="earlier events are in partitions where brokers no longer look for them; use a new "
                "--state-dir to accept that",
            )
        require_same_topic(self._folder, found.topic_id, topic.topic_id)
        found.topic_id = found.topic_id or topic.topic_id
        return found

    def _read_committed(self) -> dict[int, int]:
        path = self._folder / COMMITTED_OFFSETS
        try:
            return dict(committed_offsets.read(read_regular(path)).offsets)
        except FileNotFoundError:
            return {}
        except CorruptInputError as e:
            self._set_aside(path, e)
            return {}

    def _load_one(self, name: str, entry: CacheEntry, state: TierState) -> bool:
        """Load one cache; return whether it was complete."""
        partition = partition_of(name)
        if partition is None:
            self.notes.append(f"{name!r} is no name of a cache; its metadata partition is read anew")
            return False
        if entry.metadata_partition in self._saved:
            self._open(name, partition, entry, entry.size_bytes)
            return True
        try:
            loaded = load_cache(self._folder / name, partition, entry)
        except FileNotFoundError:
            self.notes.append(f"cache {name} is missing; its metadata partition is read anew")
            return False
        except CorruptInputError as e:
            self._set_aside(self._folder / name, e)
            return False
        self._adopt(name, partition, entry, loaded, state)
        return True

    def _adopt(
        self, name: str, partition: TopicIdPartition, entry: CacheEntry, loaded: LoadedCache, state: TierState
    ) -> None:
        fold(
            loaded.events,
            state,
            metadata_partition=entry.metadata_partition,
            metadata_offsets=loaded.offsets,
        )
        modified_ns = (self._folder / name).stat().st_mtime_ns
        self._open(name, partition, replace(entry, modified_ns=modified_ns), loaded.end)

    def _open(self, name: str, partition: TopicIdPartition, entry: CacheEntry, end: int) -> None:
        self._ledger.caches[partition.topic_id.bytes, partition.partition] = OpenCache(
            partition=partition,
            name=name,
            metadata_partition=entry.metadata_partition,
            last_offset=entry.last_offset,
            end=end,
            events=entry.events,
            crc=entry.crc,
            modified_ns=entry.modified_ns,
        )

    def _set_aside(self, path: Path, error: CorruptInputError) -> None:
        self.notes.append(f"{error.message}; kept as {path.name}{BACKUP_SUFFIX} and read anew")
        if self._keeps and path.exists():
            self._fs.rename(path, path.with_name(path.name + BACKUP_SUFFIX))

    def take(self, chunk: RecordChunk, events: DecodedEvents) -> tuple[RecordChunk, DecodedEvents]:
        """Implement `EventSink.take`; write the caches when many events are pending."""
        left = self._ledger.take(chunk, events)
        self._flush_if_large()
        return left

    def ledger_of(self, metadata_partitions: Collection[int]) -> CacheLedger:
        """Return the ledger of some metadata partitions for a task elsewhere, see `merge_ledger`."""
        with translated(f"writing {self._folder}"):
            self._flush()
        return self._ledger.of(metadata_partitions)

    def merge_ledger(self, ledger: CacheLedger) -> None:
        """Keep the events in `ledger`, a result of `ledger_of` to which a task has added events."""
        self._ledger.merge(ledger)
        self._flush_if_large()

    def commit(self, state: TierState) -> None:
        """Write the new events: caches first, offsets last. Without new events, write nothing."""
        if self._manifest is None or not self._keeps:
            return
        holds = self._ledger.holds
        read = {p: min(offset, holds.get(p, offset)) for p, offset in sorted(state.read.items())}
        committed = {p: offset - 1 for p, offset in read.items() if offset > 0}
        with translated(f"writing {self._folder}"):
            changed = self._flush()
            self._save(state, read)
            caches = {cache.name: cache.manifest_entry for cache in self._ledger.caches.values()}
            known = (self._manifest.read, self._manifest.missing, self._committed, self._manifest.caches)
            if changed or (read, state.missing, committed, caches) != known:
                self._manifest.caches = caches
                self._manifest.read = read
                self._manifest.missing = list(state.missing)
                replace_durably(self._folder / MANIFEST, self._manifest.dumps(), fs=self._fs)
            if committed != self._committed:
                data = committed_offsets.write(committed)
                replace_durably(self._folder / COMMITTED_OFFSETS, data, fs=self._fs)
                self._committed = committed

    def _save(self, state: TierState, read: Mapping[int, int]) -> None:
        """Write the snapshots of the metadata partitions that have new events.

        A metadata partition with a record that the next run reads again has no snapshot.
        """
        assert self._manifest is not None
        changed = {p for p, offset in read.items() if offset != self._manifest.read.get(p)}
        stale = changed | (read.keys() - self._saved)
        for number in stale:
            self._manifest.snapshots.pop(number, None)
        is_whole = state.anomaly_count == len(state.anomalies)
        wanted = [p for p in sorted(stale) if is_whole and 0 < state.read[p] == read[p]]
        self._manifest.snapshots |= write_snapshots(self._folder, state, wanted, fs=self._fs)
        self._saved = set(self._manifest.snapshots)

    def _flush_if_large(self) -> None:
        if self._ledger.pending_bytes > PENDING_BYTES_MAX:
            with translated(f"writing {self._folder}"):
                self._flush()

    def _flush(self) -> bool:
        """Write the pending entries to the caches; return whether there were any."""
        self._ledger.pending_bytes = 0
        pending = [cache for cache in self._ledger.caches.values() if cache.pending]
        if pending and self._keeps:
            # Each write waits for the disk, which can serve several at a time.
            with ThreadPoolExecutor(min(_WRITERS, 1 + len(pending) // _WRITERS)) as writers:
                for _ in writers.map(self._extend, pending):
                    pass
            self._fs.sync_folder(self._folder)
        for cache in pending:
            cache.pending.clear()
        return bool(pending) and self._keeps

    def _extend(self, cache: OpenCache) -> None:
        path = self._folder / cache.name
        extension = Extension(cache.partition, bytes(cache.pending), cache.last_offset)
        cache.end = extend_cache(path, cache.end, extension, fs=self._fs)
        cache.modified_ns = path.stat().st_mtime_ns

    def close(self) -> None:
        """Release the lock."""
        self._held.close()
