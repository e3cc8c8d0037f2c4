"""The state directory of `--state-dir`: what a run has read, so that the next one continues from there.

It has one snapshot per metadata partition, named by the offset up to which it was folded, and a manifest. A
run writes new snapshots beside the old ones, replaces the manifest atomically, and then deletes the old ones:
a crash in between leaves the state of the run before. A metadata partition with a record that was not
understood is kept as it was before that record, so that the next run reads it again.

Beside them are the last successful runs, the segments that `verify` read, and what a `Journal` has:
raised log starts, KIP-917 breaches, and sightings of orphans.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from tierctl.errors import CorruptInputError, LockedError, NotFoundError, SafetyRefusal, UsageError
from tierctl.files import (
    BACKUP_SUFFIX,
    PLAIN,
    TEMP_SUFFIX,
    FileSystem,
    backup_of,
    exclusive,
    is_dir,
    is_file,
    replace_durably,
    why_folder_distrusted,
    write_durably,
)
from tierctl.in_order import in_order
from tierctl.locallog import list_partitions
from tierctl.locallog.folders import names_in, require_no_log_dir_above
from tierctl.metadata.parallel_fold import entangled, other_record
from tierctl.metadata.topic.base import METADATA_TOPIC, MetadataTopic, translated
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.checked_values import (
    TEXT_OR_NULL,
    read_trusted,
    require_no_newer,
    require_types,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.selection import names_text
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.fold import read_snapshot, write_snapshot
from tierctl.state.tier_state import TierState
from tierctl.storage.open_tier import require_no_tier
from tierctl.wire.files.checkpoints import (
    LOG_STARTS_FILE,
    META_PROPERTIES,
    PARTITION_METADATA_FILE,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from tierctl.wire.primitives import crc32c

MANIFEST = "_tierctl_state.json"
LOCK = ".tierctl-state.lock"
VERSION = 1
_THREADS = os.cpu_count() or 1
_PREFIX = "_tierctl_state-"
_read_own = partial(
    read_trusted,
    hint="if you wrote the file, give it to this user or root, and take the right to write from all others; "
    "if not, use another --state-dir",
)
_NAME = re.compile(rf"{_PREFIX}[0-9]+-[0-9]+({re.escape(TEMP_SUFFIX)})?")


class SnapshotEntry(NamedTuple):
    """A snapshot of a metadata partition: the offset before which it has all events, its size and CRC-32C."""

    offset: int
    size_bytes: int
    crc: int


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The metadata topic of a state directory, and the snapshots by metadata partition."""

    topic_id: str | None
    metadata_partitions: int
    snapshots: dict[int, SnapshotEntry] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """Return the content of the file."""
        raw = {
            "version": VERSION,
            "topic_id": self.topic_id,
            "metadata_partitions": self.metadata_partitions,
            "snapshots": self.snapshots,
        }
        return (json.dumps(raw) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, source: str = MANIFEST) -> Self:
        """Return the manifest with the content `data`; raise CorruptInputError if it is malformed.

        Raise SafetyRefusal, with `source`, for that of a newer tierctl.
        """
        try:
            raw = json.loads(data)
            version = raw["version"]
            require_no_newer(source, version, VERSION)
            require_types(raw, {"topic_id": TEXT_OR_NULL})
            found = cls(
                topic_id=raw["topic_id"],
                metadata_partitions=int(raw["metadata_partitions"]),
                snapshots={int(n): SnapshotEntry(*map(int, e)) for n, e in raw["snapshots"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise _no_manifest(f"{type(e).__name__}: {e}") from e
        if version != VERSION:
            raise _no_manifest(f"version {version}")
        return found


def _no_manifest(found: str) -> CorruptInputError:
    return CorruptInputError("list of snapshots", expected=f"version {VERSION} as JSON", found=found)


def snapshot_name(number: int, offset: int) -> str:
    """Return the name of the file with the state of metadata partition `number` before `offset`."""
    return f"{_PREFIX}{number}-{offset}"


class StateDirectory:
    """The snapshots of one metadata topic; `notes` has a message for each damaged file.

    A writer needs exclusive access to the directory, and otherwise raises LockedError; a reader that finds it
    locked writes nothing. Raise MetadataError if the disk fails, and UsageError for a folder of others.
    """

    def __init__(self, folder: Path, *, writable: bool = True, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs
        self._held = ExitStack()
        self._keeps = True
        self.notes: list[str] = []
        self._manifest: Manifest | None = None
        self._is_stored = False
        """Whether the file of the manifest has its content."""
        with translated(f"opening {folder}"):
            make_own_folder(folder, fs)
            try:
                self._held.enter_context(exclusive(folder, LOCK))
            except LockedError:
                if writable:
                    raise
                self._keeps = False

    def load(self, state: TierState, topic: MetadataTopic) -> None:
        """Add the snapshots to `state`; set `state.read` to the offsets at which to continue.

        A damaged snapshot is renamed to `.bak`, and its metadata partition is read from its beginning. So is
        that of a log that was cut below the last record of the snapshot, and grew again. Raises
        SafetyRefusal if the directory belongs to another metadata topic, if the topic's number of partitions
        has changed, or if a newer tierctl wrote the directory.
        """
        with translated(f"loading {self._folder}"):
            manifest, good = self._read_all(topic)
            if not self._keeps and good.keys() != manifest.snapshots.keys():
                # The run that holds the directory may have replaced them meanwhile.
                self.notes.clear()
                manifest, good = self._read_all(topic)
        if good.keys() != manifest.snapshots.keys():
            manifest.snapshots = {number: manifest.snapshots[number] for number in good}
            self._is_stored = False
        state.merge([good[number] for number in sorted(good)])
        for partition in range(topic.partition_count):
            state.read.setdefault(partition, 0)
        self._manifest = manifest

    def _read_all(self, topic: MetadataTopic) -> tuple[Manifest, dict[int, TierState]]:
        """Return the manifest, and the state in each of its snapshots that is not missing or damaged."""
        manifest = self._read_manifest(topic)
        good: dict[int, TierState] = {}
        results = in_order(self._read, manifest.snapshots.items(), threads=_THREADS, ahead=_THREADS)
        # A first run has nothing to compare, and asks a cluster for nothing.
        has_known = bool(manifest.snapshots)
        begins, ends = (topic.beginning_offsets(), topic.end_offsets()) if has_known else ({}, {})
        for (number, entry), found in zip(manifest.snapshots.items(), results, strict=True):
            path = self._folder / snapshot_name(number, entry.offset)
            error = found if isinstance(found, CorruptInputError) else None
            if isinstance(found, TierState) and found.read[number] <= ends.get(number, 0):
                # The log must continue what is known: it may have been cut, and have grown again since.
                error = other_record(found.last_records.get(number), topic, number, begins.get(number, 0))
            if error is not None:
                self._set_aside(path, error)
            elif found is None:
                self.notes.append(f"{path.name} is missing; its metadata partition is read anew")
            elif isinstance(found, TierState):
                good[number] = found
        return manifest, good

    def _read_manifest(self, topic: MetadataTopic) -> Manifest:
        path = self._folder / MANIFEST
        new = Manifest(topic_id=topic.topic_id, metadata_partitions=topic.partition_count)
        try:
            found = Manifest.loads(_read_own(path), str(path))
        except FileNotFoundError:
            self._set_all_aside()
            return new
        except CorruptInputError as e:
            self._set_aside(path, e)
            self._set_all_aside()
            return new
        if found.metadata_partitions != topic.partition_count:
            raise SafetyRefusal(
                f"the metadata topic has {topic.partition_count} partitions, "
                f"but had {found.metadata_partitions} when {self._folder} was filled",
                hint="earlier events are in partitions where brokers no longer look for them; use a new "
                "--state-dir to accept that",
            )
        require_same_topic(self._folder, found.topic_id, topic.topic_id)
        self._is_stored = found.topic_id is not None or topic.topic_id is None
        found.topic_id = found.topic_id or topic.topic_id
        return found

    def _read(self, listed: tuple[int, SnapshotEntry]) -> TierState | CorruptInputError | None:
        """Return the state in a listed snapshot, the error of a damaged one, or None for a missing one."""
        number, entry = listed
        try:
            path = self._folder / snapshot_name(number, entry.offset)
            data = _read_own(path)
            _require(f"{entry.size_bytes} bytes", f"{len(data)} bytes")
            _require(f"CRC-32C {entry.crc:#010x}", f"CRC-32C {crc32c(data):#010x}")
            found = read_snapshot(data, str(path))
            _require({number: entry.offset}, found.read)
        except FileNotFoundError:
            return None
        except CorruptInputError as e:
            return e
        return found

    def _set_aside(self, path: Path, error: CorruptInputError) -> None:
        kept = backup_of(path)
        self.notes.append(
            f"{path.name}: {error.message}; {f'kept as {kept.name} and ' if self._keeps else ''}read anew"
        )
        if self._keeps:
            self._fs.rename(path, kept)

    def _set_all_aside(self) -> None:
        """Keep the snapshots, which no manifest lists: the topic may have lost the events in them."""
        names = sorted(path.name for path in self._snapshots())
        if names:
            self.notes.append(f"{names_text(names)}: not listed in {MANIFEST}; kept as {BACKUP_SUFFIX}")
        for name in names if self._keeps else ():
            self._fs.rename(self._folder / name, backup_of(self._folder / name))

    def _snapshots(self) -> Iterator[Path]:
        """Yield the files that are named as snapshots, unfinished ones as well."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            if _NAME.fullmatch(path.name) and is_file(path):
                yield path

    def commit(self, state: TierState) -> None:
        """Write the snapshots of metadata partitions with new events; without new events, write nothing."""
        manifest = self._manifest
        if manifest is None or not self._keeps:
            return
        apart = entangled(state)
        entries: dict[int, SnapshotEntry] = {}
        with translated(f"writing {self._folder}"):
            changed: dict[int, int] = {}
            for number, read in sorted(state.read.items()):
                held, known = state.held.get(number), manifest.snapshots.get(number)
                offset = read if held is None else held.offset
                if known is not None and (known.offset == offset or number in apart):
                    entries[number] = known
                elif offset and number not in apart:
                    changed[number] = offset
            write = partial(self._write, state)
            written = in_order(write, changed.items(), threads=_THREADS, ahead=_THREADS)
            entries.update(zip(changed, written, strict=True))
            if entries == manifest.snapshots and self._is_stored:
                return
            self._fs.sync_folder(self._folder)
            manifest.snapshots = entries
            replace_durably(self._folder / MANIFEST, manifest.dumps(), private=True, fs=self._fs)
            self._is_stored = True
            self._delete_others(entries)

    def _write(self, state: TierState, changed: tuple[int, int]) -> SnapshotEntry:
        """Write the snapshot of a metadata partition up to an offset."""
        number, offset = changed
        held = state.held.get(number)
        data = write_snapshot(state, number) if held is None else held.snapshot
        path = self._folder / snapshot_name(number, offset)
        write_durably(path, [data], private=True, fs=self._fs, sync_folder=False)
        return SnapshotEntry(offset, len(data), crc32c(data))

    def _delete_others(self, entries: Mapping[int, SnapshotEntry]) -> None:
        """Delete the snapshots of earlier runs, also of those that crashed."""
        kept = {snapshot_name(number, entry.offset) for number, entry in entries.items()}
        for path in self._snapshots():
            if path.name not in kept:
                self._fs.unlink(path)

    def close(self) -> None:
        """Release the lock."""
        self._held.close()


def _require(expected: object, found: object) -> None:
    if found != expected:
        raise CorruptInputError("snapshot", expected=str(expected), found=str(found))


def require_private(folder: Path) -> None:
    """Raise SafetyRefusal if somebody else than this user and root may change the entries of a folder.

    The state has offsets and log start offsets, which decide what is deleted.
    """
    why = why_folder_distrusted(folder) if is_dir(folder) else None
    if why is not None:
        raise SafetyRefusal(
            f"--state-dir {folder} is not used: {why}",
            hint="give the directory to this user or root, and take the right to write from all others",
        )


def require_usable(folder: Path) -> None:
    """Raise the errors of `require_own_folder` and `require_private`, and MetadataError; none if missing."""
    with translated(f"opening {folder}"):
        require_own_folder("--state-dir", folder)
        require_private(folder)


def make_own_folder(folder: Path, fs: FileSystem = PLAIN) -> None:
    """Make the folder of a state directory if it is missing; raise as `require_usable`, and OSError."""
    require_own_folder("--state-dir", folder)
    fs.make_folder(folder, mode=0o755)
    # Not before: somebody else may make it meanwhile.
    require_private(folder)


def require_own_folder(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that `option` names is a broker's log directory or a tier, or in one.

    Brokers before Kafka 3.6 have a `_rlmm_committed_offsets` of their own there, which a run would replace.
    """
    names = names_in(folder)
    is_log_dir = any(name in {META_PROPERTIES, PARTITION_METADATA_FILE} for name in names)
    has_metadata = any(name.startswith(f"{METADATA_TOPIC}-") for name in names)
    if is_log_dir or has_metadata or (names and list_partitions([folder])):
        raise UsageError(f"{option} {folder} is a broker's log directory", hint="name a folder of its own")
    require_no_log_dir_above(option, folder)
    require_no_tier(option, folder)


def require_own_state(folder: Path, topic_id: str | None) -> None:
    """Raise an error unless a state directory is new or may be that of the metadata topic `topic_id`.

    UsageError as for `require_own_folder`; SafetyRefusal for the state of another metadata topic, and as for
    `require_private`; CorruptInputError for an unreadable manifest.
    """
    require_usable(folder)
    try:
        manifest = Manifest.loads(_read_own(folder / MANIFEST), str(folder / MANIFEST))
    except FileNotFoundError:
        return
    except CorruptInputError as e:
        e.hint = "'tierctl status' with this --state-dir keeps the file as .bak and reads the metadata anew"
        raise e.within(str(folder / MANIFEST)) from None
    require_same_topic(folder, manifest.topic_id, topic_id)


def require_same_topic(folder: Path, kept: str | None, topic_id: str | None) -> None:
    """Raise SafetyRefusal if the state in `folder` is that of the topic `kept`, which is not `topic_id`."""
    if kept is not None and topic_id not in {None, kept}:
        raise SafetyRefusal(
            f"{folder} belongs to metadata topic {kept}, not {topic_id}",
            hint="use another --state-dir for another metadata topic",
        )


T = TypeVar("T")
_MALFORMED = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError),
    UsageError,
)


def read_json(
    path: Path, parse: Callable[[Any], T], *, if_missing: T, what: str, expected: str, hint: str
) -> T:
    """Return what `parse` makes of the file's content, or `if_missing` without a file.

    Raise CorruptInputError, with `what`, `expected` and `hint`, for content that is not JSON or that `parse`
    refuses; SafetyRefusal for a file that others may change; OSError.
    """
    try:
        return parse(json.loads(_read_own(path)))
    except FileNotFoundError:
        return if_missing
    except _MALFORMED as e:
        raise CorruptInputError(what, expected=expected, found=str(e), source=str(path), hint=hint) from None


def write_json(path: Path, content: object, *, fs: FileSystem = PLAIN) -> None:
    """Replace the file by `content` as JSON; durable on return. Raise OSError."""
    replace_durably(path, json.dumps(content, indent=1).encode() + b"\n", private=True, fs=fs)


LAST_RUNS = "last-successful-runs.json"
_RUNS_LOCK = ".last-successful-runs.lock"
_RUNS_LOCK_TIMEOUT_S = 2.0


def last_successful_runs(state_dir: Path) -> dict[str, int]:
    """Return the end time in ms of each command's last successful run; CorruptInputError if unreadable."""
    return read_json(
        state_dir / LAST_RUNS,
        lambda found: {str(command): int(ended_ms) for command, ended_ms in found.items()},
        if_missing={},
        what="last successful runs",
        expected="an object of times",
        hint="delete the file: the next runs create it again",
    )


def record_successful_run(state_dir: Path, command: str, ended_ms: int) -> None:
    """Store that `command` ended at `ended_ms` without an error.

    Raises NotFoundError without the directory, which is not made; OSError, LockedError, and CorruptInputError
    for a file that another program wrote.
    """
    if not is_dir(state_dir):
        raise NotFoundError("the directory does not exist", hint="a run that reads metadata makes it")
    require_usable(state_dir)
    with exclusive(state_dir, _RUNS_LOCK, timeout_s=_RUNS_LOCK_TIMEOUT_S):
        runs = last_successful_runs(state_dir) | {command: ended_ms}
        write_json(state_dir / LAST_RUNS, dict(sorted(runs.items())))


READ_SEGMENTS = "read-segments.json"
KEPT_MS = 30 * 24 * 60 * 60 * 1000
"""How long a read is kept: the time for which `verify` states how much of the tier was read."""
_LOCK = ".read-segments.lock"
_LOCK_TIMEOUT_S = 10.0

_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True)
class ReadingRun:
    """One run that read segments: its time, and the seed of its sample; None if it read all segments."""

    at_ms: int
    seed: int | None


Reads = Mapping[_Key, Mapping[Uuid, ReadingRun]]
"""The last run that read each segment, by partition and segment id."""


def read_segments(state_dir: Path) -> dict[_Key, dict[Uuid, ReadingRun]]:
    """Return the last read of each segment; raise CorruptInputError if the file does not parse."""
    return read_json(
        state_dir / READ_SEGMENTS,
        _reads_of,
        if_missing={},
        what="segments that verify read",
        expected="the runs, and the segments that each of them read",
        hint="delete the file: every segment then counts as not read",
    )


def _reads_of(found: Any) -> dict[_Key, dict[Uuid, ReadingRun]]:
    runs = [_run(each) for each in found["runs"]]
    return {
        (Uuid.parse(each["topic_id"]), int(each["partition"])): {
            Uuid.parse(segment_id): runs[number] for segment_id, number in each["segments"].items()
        }
        for each in found["partitions"]
    }


def record_read_segments(
    state_dir: Path,
    read: Mapping[_Key, Collection[Uuid]],
    run: ReadingRun,
    fs: FileSystem = PLAIN,
) -> None:
    """Store that `run` read these segments; durable on return.

    Reads that are more than 30 days older than `run` are dropped. Raises OSError, LockedError, and
    CorruptInputError for a damaged file.
    """
    make_own_folder(state_dir, fs)
    with exclusive(state_dir, _LOCK, timeout_s=_LOCK_TIMEOUT_S):
        kept = read_segments(state_dir)
        for key, ids in read.items():
            kept.setdefault(key, {}).update(dict.fromkeys(ids, run))
        oldest_ms = run.at_ms - KEPT_MS
        kept = {
            key: {each: last for each, last in reads.items() if last.at_ms > oldest_ms}
            for key, reads in kept.items()
        }
        write_json(state_dir / READ_SEGMENTS, _content(kept), fs=fs)


def _content(reads: Reads) -> dict[str, Any]:
    """Return the file's content: each run is stated once, and segments have its position in the list."""
    numbers: dict[ReadingRun, int] = {}
    partitions = [
        {
            "topic_id": topic_id,
            "partition": partition,
            "segments": {each: numbers.setdefault(run, len(numbers)) for each, run in sorted(runs.items())},
        }
        for (topic_id, partition), runs in sorted(reads.items())
        if runs
    ]
    runs = [{"at_ms": run.at_ms, "seed": run.seed} for run in numbers]
    return {"runs": runs, "partitions": partitions}


def _run(fields: dict[str, Any]) -> ReadingRun:
    seed = fields["seed"]
    return ReadingRun(int(fields["at_ms"]), None if seed is None else int(seed))


CUSTOM_METADATA_BREACHES = "custom-metadata-breaches.json"
"""Segments whose custom metadata exceeded KIP-917's limit, one for each partition."""

ORPHAN_SIGHTINGS = "orphan-sightings.json"
"""The time at which each orphan was seen first, by partition and segment id."""
_SIGHTINGS_LOCK = ".orphan-sightings.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadataBreach:
    """A segment that was uploaded and then deleted because its custom metadata exceeded the limit.

    `layout` names the source of the custom metadata: the tier's layout and the fields that it writes.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    size_bytes: int
    limit_bytes: int
    layout: str

    def reason_since(self, oldest_ms: int) -> Reason:
        """Return why the segment, last written at `oldest_ms`, and later ones are not copied."""
        return Reason(
            ReasonKind.CUSTOM_METADATA,
            from_offset=self.start_offset,
            oldest_ms=oldest_ms,
            size_bytes=self.size_bytes,
            limit_bytes=self.limit_bytes,
        )


_LOG_STARTS_HINT = (
    f"put {LOG_STARTS_FILE}{BACKUP_SUFFIX} in its place, which has the log starts before the last change"
)


class Journal:
    """Reads and writes these files; the caller holds the lock of the state directory. Raises OSError.

    Runs that only plan, which need not hold it, record sightings, too: these have a lock of their own.
    """

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def log_starts(self) -> dict[_Key, int]:
        """Return the log start offsets raised so far; raise CorruptInputError if the file does not parse.

        Raise SafetyRefusal if others may write the folder or the file. It is an offset checkpoint with topic
        ids as names: a topic's name may be used again.
        """
        path = self._folder / LOG_STARTS_FILE
        require_private(self._folder)
        try:
            found = read_offset_checkpoint(_read_own(path))
            return {(Uuid.parse(key.topic), key.partition): offset for key, offset in found.items()}
        except FileNotFoundError:
            return {}
        except CorruptInputError as e:
            raise e.within(str(path)).advised(_LOG_STARTS_HINT) from None
        except UsageError as e:
            raise CorruptInputError(
                "log start offsets",
                expected="topic ids",
                found=e.message,
                source=str(path),
                hint=_LOG_STARTS_HINT,
            ) from None

    def raise_log_starts(self, starts: Mapping[TopicIdPartition, int]) -> None:
        """Store each log start offset in `starts` that is above the stored one; durable on return.

        Raise CorruptInputError for one above LARGEST_OFFSET, which could not be read again.
        """
        for partition, offset in starts.items():
            if offset > LARGEST_OFFSET:
                expected = f"an offset up to {LARGEST_OFFSET}"
                raise CorruptInputError(f"log start of {partition}", expected=expected, found=str(offset))
        kept = self.log_starts()
        raised = {
            partition.key: offset
            for partition, offset in starts.items()
            if offset > kept.get(partition.key, -1)
        }
        if raised:
            merged = sorted((kept | raised).items())
            by_id = {TopicPartition(topic_id, partition): offset for (topic_id, partition), offset in merged}
            data = write_offset_checkpoint(by_id)
            path = self._folder / LOG_STARTS_FILE
            replace_durably(path, data, backup=True, private=True, fs=self._fs)

    def custom_metadata_breaches(self) -> tuple[CustomMetadataBreach, ...]:
        """Return the recorded breaches of KIP-917's limit; CorruptInputError if the file does not parse."""
        return read_json(
            self._folder / CUSTOM_METADATA_BREACHES,
            lambda found: tuple(_breach(each) for each in found["breaches"]),
            if_missing=(),
            what="custom metadata breaches",
            expected="a list of them",
            hint="delete the file: segments over the limit are then uploaded once more",
        )

    def record_breaches(self, breaches: Sequence[CustomMetadataBreach]) -> None:
        """Record the first breach of each partition, in the place of an earlier one; durable on return."""
        # If several segments of a partition were uploaded at the same time, the breach with the lowest offset
        # is kept.
        first_last = sorted(breaches, key=lambda each: -each.start_offset)
        every = (*self.custom_metadata_breaches(), *first_last)
        kept = {(each.topic_id, each.partition): each for each in every}
        content = {"breaches": [asdict(each) for each in kept.values()]}
        write_json(self._folder / CUSTOM_METADATA_BREACHES, content, fs=self._fs)

    def orphan_sightings(self) -> dict[_Key, dict[Uuid, int]]:
        """Return when each orphan was first seen, by partition; CorruptInputError for a damaged file."""
        return read_json(
            self._folder / ORPHAN_SIGHTINGS,
            _sightings,
            if_missing={},
            what="sightings of orphans",
            expected="the times by partition and segment id",
            hint="delete the file: orphans must then be seen twice again before they are deleted",
        )

    def record_sightings(self, seen: Mapping[_Key, Mapping[Uuid, int]], now_ms: int) -> dict[Uuid, int]:
        """Record the orphans of each partition in `seen` at `now_ms`; return when each was first seen.

        `seen` has the time of the last write to each, 0 if unknown: a sighting before it, of other objects
        or by a wrong clock, is replaced. The sightings of other orphans of these partitions are
        forgotten; durable on return.
        """
        with exclusive(self._folder, _SIGHTINGS_LOCK, timeout_s=_LOCK_TIMEOUT_S):
            before = self.orphan_sightings()
            after = dict(before)
            for key, written_ms in seen.items():
                known = before.get(key, {})
                times = ((each, known.get(each, now_ms)) for each in sorted(written_ms))
                after[key] = {each: at if written_ms[each] <= at <= now_ms else now_ms for each, at in times}
            after = {key: times for key, times in after.items() if times}
            if after != before:
                partitions = [
                    {"topic_id": topic_id, "partition": partition, "first_seen_ms": times}
                    for (topic_id, partition), times in sorted(after.items())
                ]
                write_json(self._folder / ORPHAN_SIGHTINGS, {"partitions": partitions}, fs=self._fs)
        return {segment_id: at for key in seen for segment_id, at in after.get(key, {}).items()}


def _sightings(found: Any) -> dict[_Key, dict[Uuid, int]]:
    return {
        (Uuid.parse(each["topic_id"]), int(each["partition"])): {
            Uuid.parse(segment_id): int(at_ms) for segment_id, at_ms in each["first_seen_ms"].items()
        }
        for each in found["partitions"]
    }


def _breach(fields: dict[str, Any]) -> CustomMetadataBreach:
    numbers = ("partition", "start_offset", "size_bytes", "limit_bytes")
    require_types(fields, {**dict.fromkeys(numbers, int), "layout": str})
    breach = CustomMetadataBreach(**fields)
    Uuid.parse(breach.topic_id)
    return replace(breach, topic_id=Uuid(breach.topic_id))
