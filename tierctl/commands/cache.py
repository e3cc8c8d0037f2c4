"""`cache`: show, verify, build and compact the cache files of tierctl and of brokers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tierctl.commands.histories import Histories
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, UnsupportedFormatError, UsageError
from tierctl.metadata.cache_files.build import flat_files, state_caches
from tierctl.metadata.cache_files.check import findings, missing
from tierctl.metadata.cache_files.files import cache_files, read_cache, remote_index_files
from tierctl.metadata.cache_files.rewrite import Rewrite, plan_rewrite, rewrite
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.stored import HeaderForm

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest(Request):
    """A request about cache files: `files`, and those in `state_dir` and `log_dir`."""

    files: Sequence[Path] = ()
    """Cache files of any form; `.remoteindex` files can be shown and verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactCacheRequest(CacheRequest):
    """A request to make cache files smaller; it only plans unless `apply` is true."""

    apply: bool = False
    """Replace the files; otherwise nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCacheRequest(Request):
    """A request to build cache files from the metadata topic, either in `state_dir` or in `out`."""

    out: Path | None = None
    """The folder for KIP-405's flat files."""
    header: HeaderForm = HeaderForm.NAMED
    """The header of the flat files in `out`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRows:
    """Rows about cache files, read while they are consumed."""

    rows: Iterator[Row]
    _problems: list[CorruptInputError]

    @property
    def exit_code(self) -> int:
        """7 if the rows consumed so far have a problem."""
        return ExitCode.CORRUPT if self._problems else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBuild:
    """The cache files of a build, one row each."""

    rows: Sequence[Row]
    is_complete: bool
    """False if records of the metadata topic could not be used."""

    @property
    def exit_code(self) -> int:
        """7 if the build is not complete."""
        return ExitCode.OK if self.is_complete else ExitCode.CORRUPT


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCompaction:
    """The plan for each cache file."""

    rewrites: Sequence[Rewrite]
    is_applied: bool

    @property
    def is_pending(self) -> bool:
        """Whether there are files to replace that were not replaced."""
        return not self.is_applied and any(each.compacted is not None for each in self.rewrites)

    @property
    def exit_code(self) -> int:
        """7 if a file is damaged; damaged files are kept as they are."""
        return ExitCode.CORRUPT if any(each.is_damaged for each in self.rewrites) else ExitCode.OK


def show_cache(request: CacheRequest, progress: Progress | None = None) -> CacheRows:
    """Return the header and every entry of each file, with the position of each in the file.

    An entry that can't be decoded has a row with its `error`. Raise NotFoundError for a missing file or
    folder, UsageError if no file is named.
    """
    problems: list[CorruptInputError] = []
    paths = _paths(request, cache_files, remote_index_files)
    watched = _watched("reading caches", paths, progress or SilentProgress())
    rows = chain.from_iterable(_entry_rows(path, problems) for path in watched)
    return CacheRows(rows=rows, _problems=problems)


def verify_cache(request: CacheRequest, progress: Progress | None = None) -> CacheRows:
    """Return one row for each good file, and one row for each problem of a bad file.

    Raise NotFoundError for a missing file or folder, UsageError if no file is named.
    """
    problems: list[CorruptInputError] = []
    paths = _paths(request, cache_files, remote_index_files)
    watched = _watched("verifying", paths, progress or SilentProgress())
    rows = chain.from_iterable(_problem_rows(path, problems) for path in watched)
    return CacheRows(rows=chain(rows, _missing_rows(request.state_dir, problems)), _problems=problems)


def build_cache(request: BuildCacheRequest, progress: Progress | None = None) -> CacheBuild:
    """Write the cache files of the state directory, or of the selected partitions as KIP-405's flat files.

    Files of the same names are kept as .bak. Flat files lack broker ids, custom metadata and transaction
    indexes. Raise UsageError unless exactly one of `state_dir` and `out` is given.
    """
    if (request.state_dir is None) == (request.out is None):
        raise UsageError("where to?", hint="name --state-dir or --out, one of them")
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        state = resources.metadata().refresh()
        selection = resources.resolve_selection(part.topic_id_partition for part in state)
        histories = Histories(resources, remote=lambda: resources.remote)
        histories.examine(state)
        is_complete = not histories.report(state)
        if request.out is not None:
            selected = [part for part in state if part.topic_id_partition in selection]
            rows = flat_files(selected, request.out, named=request.header is HeaderForm.NAMED)
            return CacheBuild(rows=rows, is_complete=is_complete)
    # Closing the resources writes the state directory.
    assert request.state_dir is not None
    return CacheBuild(rows=list(state_caches(request.state_dir)), is_complete=is_complete)


def compact_cache(request: CompactCacheRequest, progress: Progress | None = None) -> CacheCompaction:
    """Plan, and with `apply` write, each file without deleted segments and superseded entries.

    The old files are kept as .bak. Raise NotFoundError for a missing file or folder, UsageError if no file
    is named, SafetyRefusal if a broker runs on a folder, LockedError if another tierctl works there.
    """
    watched = _watched("compacting", _paths(request, cache_files), progress or SilentProgress())
    rewrites = [plan_rewrite(path) for path in watched]
    if request.apply:
        rewrite(rewrites)
    return CacheCompaction(rewrites=rewrites, is_applied=request.apply)


def _watched(title: str, paths: Sequence[Path], progress: Progress) -> Iterator[Path]:
    """Yield `paths` and show how many of them are done."""
    with progress.bar(title, unit="files", total=len(paths)) as advance:
        for path in paths:
            yield path
            advance(1)


def _paths(request: CacheRequest, *finders: Callable[[Path], Iterable[Path]]) -> list[Path]:
    """Return `files`, and what `finders` find in `state_dir` and each `log_dir`."""
    folders = [*([] if request.state_dir is None else [request.state_dir]), *request.log_dir]
    if not request.files and not folders:
        raise UsageError("no cache is named", hint="name files, --state-dir or --log-dir")
    for path in (*request.files, *folders):
        if not path.exists():
            raise NotFoundError(f"{path}: no such file or folder")
    for file in request.files:
        if file.is_dir():
            raise UsageError(f"{file} is a folder", hint="name it as --state-dir or --log-dir")
    return [*request.files, *(path for folder in folders for find in finders for path in find(folder))]


def _entry_rows(path: Path, problems: list[CorruptInputError]) -> Iterator[Row]:
    name = {"file": str(path)}
    try:
        cache = read_cache(path)
    except CorruptInputError as error:
        problems.append(error)
        yield name | {"position": error.at, "type": None, "error": error.message}
        return
    problems.extend(cache.errors)
    yield name | cache.header()
    for entry in cache.entries:
        yield name | {"position": entry.position} | entry.fields()
    if cache.torn is not None:
        yield name | {"position": cache.torn.at, "type": None, "error": cache.torn.message}


def _problem_rows(path: Path, problems: list[CorruptInputError]) -> Iterator[Row]:
    row: Row = {"file": str(path), "form": None, "entries": None, "size_bytes": path.stat().st_size}
    found: list[CorruptInputError] = []
    try:
        cache = read_cache(path)
        row |= {"form": str(cache.form), "entries": len(cache.entries)}
        found.extend(findings(cache))
    except CorruptInputError as unreadable:
        found.append(unreadable)
    problems.extend(found)
    for error in found:
        status = "unsupported" if isinstance(error, UnsupportedFormatError) else "corrupt"
        yield row | {"status": status, "position": error.at, "detail": error.message}
    if not found:
        yield row | {"status": "ok", "position": None, "detail": None}


def _missing_rows(state_dir: Path | None, problems: list[CorruptInputError]) -> Iterator[Row]:
    if state_dir is None:
        return
    for error in missing(state_dir):
        problems.append(error)
        yield {"file": str(state_dir), "status": "missing", "detail": error.message}
