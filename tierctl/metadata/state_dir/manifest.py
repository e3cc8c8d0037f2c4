"""Small files of the state directory: the manifest of its caches, last runs, segments that were read
completely.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, UsageError
from tierctl.files import PLAIN, FileSystem, exclusive, read_regular, replace_durably, why_folder_distrusted
from tierctl.locallog import list_partitions
from tierctl.model import Uuid
from tierctl.state.tier_state import MissingEvents
from tierctl.wire.files.checkpoints import META_PROPERTIES

# The manifest of a state directory: for each cache the number of events, the last offset and a checksum.
#
# It shows a cache that is missing or incomplete. It is written after the caches and before
# `_rlmm_committed_offsets`, atomically.

MANIFEST = "_tierctl_caches"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The content of one cache: `events` events of its user partition up to `last_offset`, and their CRC-32C.

    The CRC covers the entries in the file, without the header.
    """

    metadata_partition: int
    last_offset: int
    events: int
    crc: int
    size_bytes: int
    modified_ns: int = -1
    """The file's time of last modification when the manifest was written."""


class SnapshotEntry(NamedTuple):
    """A snapshot of one metadata partition: its size, and its CRC-32C."""

    size_bytes: int
    crc: int


@dataclass(slots=True, kw_only=True)
class Manifest:
    """All caches by file name, and the metadata topic to which they belong.

    `read` is, by metadata partition, the offset before which the caches contain every event, except those in
    `missing`, which the metadata topic had lost before they could be read.
    """

    topic_id: str | None
    metadata_partitions: int
    read: dict[int, int] = field(default_factory=dict)
    missing: list[MissingEvents] = field(default_factory=list)
    caches: dict[str, CacheEntry] = field(default_factory=dict)
    snapshots: dict[int, SnapshotEntry] = field(default_factory=dict)
    """By metadata partition, the snapshot of the state at offset `read`, which its caches have, too."""

    def dumps(self) -> bytes:
        """Return the content of the file."""
        raw = {
            "version": VERSION,
            "topic_id": self.topic_id,
            "metadata_partitions": self.metadata_partitions,
            "read": self.read,
            "missing": [[m.metadata_partition, m.first_offset, m.end_offset] for m in self.missing],
            "caches": {
                name: [
                    entry.metadata_partition,
                    entry.last_offset,
                    entry.events,
                    entry.crc,
                    entry.size_bytes,
                    entry.modified_ns,
                ]
                for name, entry in sorted(self.caches.items())
            },
            "snapshots": self.snapshots,
        }
        return (json.dumps(raw) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """Return the manifest with the content `data`; raise CorruptInputError if it is malformed."""
        try:
            raw = json.loads(data)
            _require(raw["version"] == VERSION, f"version {raw['version']}")
            return cls(
                topic_id=raw["topic_id"],
                metadata_partitions=int(raw["metadata_partitions"]),
                read=_numbers(raw["read"]),
                missing=[MissingEvents(*map(int, each)) for each in raw["missing"]],
                snapshots={int(n): SnapshotEntry(*map(int, e)) for n, e in raw["snapshots"].items()},
                caches={str(name): _entry(entry) for name, entry in raw["caches"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptInputError(
                "list of caches", expected=f"version {VERSION} as JSON", found=f"{type(e).__name__}: {e}"
            ) from e


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise ValueError(found)


def _numbers(raw: dict[str, Any]) -> dict[int, int]:
    return {int(key): int(value) for key, value in raw.items()}


def _entry(raw: list[Any]) -> CacheEntry:
    partition, last_offset, events, crc, size_bytes, modified_ns = (int(value) for value in raw)
    return CacheEntry(
        metadata_partition=partition,
        last_offset=last_offset,
        events=events,
        crc=crc,
        size_bytes=size_bytes,
        modified_ns=modified_ns,
    )


T = TypeVar("T")
_MALFORMED = (ValueError, KeyError, TypeError, IndexError, AttributeError, UsageError)


def read_json(
    path: Path, parse: Callable[[Any], T], *, if_missing: T, what: str, expected: str, hint: str
) -> T:
    """Return what `parse` makes of the file's content, or `if_missing` without a file.

    Raise CorruptInputError, with `what`, `expected` and `hint`, for content that is not JSON or that `parse`
    refuses; OSError.
    """
    try:
        return parse(json.loads(read_regular(path)))
    except FileNotFoundError:
        return if_missing
    except _MALFORMED as e:
        raise CorruptInputError(what, expected=expected, found=str(e), source=str(path), hint=hint) from None


def write_json(path: Path, content: object, *, fs: FileSystem = PLAIN) -> None:
    """Replace the file by `content` as JSON; durable on return. Raise OSError."""
    replace_durably(path, json.dumps(content, indent=1).encode() + b"\n", fs=fs)


def require_private(folder: Path) -> None:
    """Raise SafetyRefusal if somebody else than this user and root may change the entries of a folder.

    The state has offsets and log start offsets, which decide what is deleted.
    """
    why = why_folder_distrusted(folder) if folder.is_dir() else None
    if why is not None:
        raise SafetyRefusal(
            f"--state-dir {folder} is not used: {why}",
            hint="give the directory to this user or root, and take the right to write from all others",
        )


def require_no_log_dir(folder: Path) -> None:
    """Raise UsageError if a folder is a broker's log directory.

    Brokers before Kafka 3.8 have a `_rlmm_committed_offsets` of their own there, which a run would replace.
    """
    if folder.is_dir() and ((folder / META_PROPERTIES).exists() or list_partitions([folder])):
        raise UsageError(
            f"--state-dir {folder} is a broker's log directory",
            hint="give the state of tierctl a directory of its own",
        )


def require_own_state(folder: Path, topic_id: str | None) -> None:
    """Raise an error unless a state directory is new or may be that of the metadata topic `topic_id`.

    UsageError as for `require_no_log_dir`; SafetyRefusal for the state of another metadata topic, and as for
    `require_private`; CorruptInputError for an unreadable manifest.
    """
    require_no_log_dir(folder)
    require_private(folder)
    try:
        manifest = Manifest.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        return
    require_same_topic(folder, manifest.topic_id, topic_id)


def require_same_topic(folder: Path, kept: str | None, topic_id: str | None) -> None:
    """Raise SafetyRefusal if the state in `folder` is that of the topic `kept`, which is not `topic_id`."""
    if kept is not None and topic_id not in {None, kept}:
        raise SafetyRefusal(
            f"{folder} belongs to metadata topic {kept}, not {topic_id}",
            hint="use another --state-dir for another metadata topic",
        )


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
    if not state_dir.is_dir():
        raise NotFoundError("the directory does not exist", hint="tierctl cache build creates it")
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
    *,
    is_live: Callable[[_Key, Uuid], bool],
    fs: FileSystem = PLAIN,
) -> None:
    """Store that `run` read these segments; durable on return.

    Segments for which `is_live` is false, and reads that are more than 30 days older than `run`, are
    dropped. Raises OSError, LockedError, and CorruptInputError for a damaged file.
    """
    fs.make_folder(state_dir)
    with exclusive(state_dir, _LOCK, timeout_s=_LOCK_TIMEOUT_S):
        kept = read_segments(state_dir)
        for key, ids in read.items():
            kept.setdefault(key, {}).update(dict.fromkeys(ids, run))
        oldest_ms = run.at_ms - KEPT_MS
        kept = {
            key: {each: last for each, last in reads.items() if last.at_ms > oldest_ms and is_live(key, each)}
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
