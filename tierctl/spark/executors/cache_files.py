"""Read files of caches and committed offsets on executors, one input per file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.metadata.offset_repair import Key, Unread, first_missing
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.fold import LEAST_EVENTS
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.executors.transport import Executors, grouped

BYTES_PER_JOB = 256 << 20
"""The files of one job: all of its results are in memory before the first is used."""
LEAST_BYTES = 1 << 20
"""The bytes of files that are read and decoded in the time that a task takes to start."""
_FILE_BYTES = 16 << 10
"""Opening a file takes as long as reading this number of bytes."""
_HINT = "executors must see the same files as this machine: use a shared file system"

Result = TypeVar("Result")


class _File(NamedTuple):
    path: str
    size_bytes: int


def read_files(
    executors: Executors, function: Callable[[Path], Result], paths: Iterable[Path]
) -> Iterator[Result]:
    """Yield the result of `function` for each file, in the order of `paths`.

    Relative paths are relative to the current folder of this process. Raise the TierctlError that `function`
    raised, and EngineError if an executor can't read a file, or finds another size than this process.
    """
    read = partial(_read, function, str(Path.cwd()))
    files = [_File(str(path), path.stat().st_size) for path in paths]
    for job in grouped(files, _cost, BYTES_PER_JOB):
        yield from executors.run(read, job, cost=_cost, min_task_cost=LEAST_BYTES)


def _cost(file: _File) -> int:
    return file.size_bytes + _FILE_BYTES


def _read(function: Callable[[Path], Result], folder: str, file: _File) -> Result:
    """Call `function` with the path as the operator wrote it, because messages and rows name it so."""
    try:
        # A Python worker has one thread.
        with chdir(os.curdir if Path(file.path).is_absolute() else folder):
            found_bytes = Path(file.path).stat().st_size
            if found_bytes != file.size_bytes:
                raise EngineError(
                    f"{file.path} has {found_bytes} bytes on an executor, and {file.size_bytes} here",
                    hint=_HINT,
                )
            return function(Path(file.path))
    except OSError as e:
        raise EngineError(f"an executor can't read {file.path}: {e.strerror or e}", hint=_HINT) from e


def find_missing(
    executors: Executors, location: TopicLocation, unread: Sequence[Unread], held: Mapping[Key, int]
) -> Iterator[tuple[int, str] | None]:
    """Implement `FindMissing` on executors, which read one metadata partition per input."""
    function = partial(_first_missing, location, uuid4().hex, dict(held))
    return executors.run(function, unread, cost=_events, min_task_cost=LEAST_EVENTS)


def _first_missing(
    location: TopicLocation, job: str, held: Mapping[Key, int], unread: Unread
) -> tuple[int, str] | None:
    return first_missing(shared_topic(location, job), held, unread)


def _events(unread: Unread) -> int:
    return unread.end_offset
