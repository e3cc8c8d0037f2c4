"""A file of the state directory: the segments that `verify` read completely, with the times."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierctl.files import PLAIN, FileSystem, exclusive
from tierctl.metadata.state_dir.json_files import read_json, write_json
from tierctl.model import Uuid

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
