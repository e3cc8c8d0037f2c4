"""`cache`: show, verify, build and compact the cache files of brokers and of KIP-405."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, TypeVar

import typer

from tierctl import locallog
from tierctl.commands.histories import Histories
from tierctl.commands.request import WHERE, Apply, Request
from tierctl.commands.resources import Resources, required
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.files import exists, is_dir, open_regular
from tierctl.locallog.folders import require_no_log_dir_above
from tierctl.metadata.cache_building import (
    Rewrite,
    plan_compaction,
    rewrite,
    write_flat_files,
)
from tierctl.metadata.cache_files import (
    FileRows,
    Row,
    cache_files,
    check_rows,
    entry_rows,
    found_rows,
    listed_entry_rows,
    remote_index_files,
)
from tierctl.model.checked_values import require_no_file
from tierctl.model.events import HeaderForm
from tierctl.model.progress import Progress, SilentProgress
from tierctl.report import columns as f
from tierctl.report.columns import JSON_ONLY, Columns, Field, Kind, Shown
from tierctl.report.render import SHOW
from tierctl.report.results import TableResult, TableRows
from tierctl.spark import fold as spark_files
from tierctl.storage.open_tier import require_no_tier
from tierctl.wire.files import flatfile

T = TypeVar("T")

_FIND = "Which entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest(Request):
    """A request about cache files: `files`, folders of such files among them, and the files in `log_dir`."""

    files: Annotated[
        Sequence[Path],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Cache files, or folders that have some: KIP-405's flat files, Kafka 3's "
            "remote_log_snapshot; show and verify also read .remoteindex files.",
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCacheRequest(CacheRequest):
    """A request to show the entries of cache files: all of them, or the one that is asked for."""

    epoch: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCH",
            min=0,
            help="With --offset: the leader epoch of the offset. .remoteindex files have no leader epochs.",
            rich_help_panel=_FIND,
        ),
    ] = None
    offset: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=0,
            help="Print only the entry of the segment that serves this offset of --epoch.",
            rich_help_panel=_FIND,
        ),
    ] = None
    position: Annotated[
        int | None,
        typer.Option(
            metavar="BYTE",
            min=0,
            help="Print only the entry at this position, as the column position has it.",
            rich_help_panel=_FIND,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactCacheRequest(CacheRequest):
    """A request to make cache files smaller; it only plans unless `apply` is true."""

    apply: Apply = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCacheRequest(Request):
    """A request to build cache files from the metadata topic in the folder `out`."""

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of the flat files, one for each user partition.",
            rich_help_panel=WHERE,
        ),
    ] = None
    header: Annotated[
        HeaderForm,
        typer.Option(
            help="Whether the header of a flat file contains the topic name (named), or not, as in early "
            "revisions of KIP-405 (unnamed).",
            rich_help_panel=SHOW,
        ),
    ] = HeaderForm.NAMED

    def validate(self) -> None:
        """Implement `Request.validate`."""
        required("--metadata", self.metadata)
        out = required("--out", self.out)
        if self.state_dir is not None and out.resolve() == self.state_dir.resolve():
            raise UsageError(f"--out {out} is the folder of --state-dir", hint="name another folder")
        require_no_tier("--out", out)
        require_no_log_dir_above("--out", out)


class EntryRow(TypedDict):
    """The header or an entry of a cache file."""

    file: Annotated[str, f.FILE, Shown(6)]
    position: Annotated[int | None, f.POSITION, Shown(3)]
    type: Annotated[str | None, f.EVENT_TYPE, Shown(0)]
    form: NotRequired[Annotated[str, f.FORM]]
    topic: NotRequired[Annotated[str | None, f.TOPIC, Shown(2)]]
    topic_id: NotRequired[Annotated[str | None, f.TOPIC_ID]]
    partition: NotRequired[Annotated[int | None, f.PARTITION, Shown(2)]]
    metadata_partition: NotRequired[Annotated[int | None, f.METADATA_PARTITION]]
    metadata_topic_offset: NotRequired[
        Annotated[int, Field(Kind.NUMBER, "last metadata offset that the header states; -1 for none")]
    ]
    segment_id: NotRequired[Annotated[str, f.SEGMENT_ID, Shown(5)]]
    start_offset: NotRequired[Annotated[int, f.START_OFFSET, Shown(2)]]
    end_offset: NotRequired[Annotated[int, f.END_OFFSET, Shown(4)]]
    broker_id: NotRequired[Annotated[int, f.BROKER_ID]]
    leader_epoch: NotRequired[Annotated[int, f.LEADER_EPOCH]]
    epoch: NotRequired[Annotated[int, f.EPOCH]]
    max_timestamp_ms: NotRequired[Annotated[int, f.MAX_TIMESTAMP_MS]]
    event_timestamp_ms: NotRequired[Annotated[int, f.EVENT_TIMESTAMP_MS]]
    segment_leader_epochs: NotRequired[Annotated[list[tuple[int, int]], f.SEGMENT_LEADER_EPOCHS]]
    segment_size_in_bytes: NotRequired[Annotated[int, f.SEGMENT_SIZE_IN_BYTES]]
    custom_metadata: NotRequired[Annotated[str | None, f.CUSTOM_METADATA]]
    state: NotRequired[Annotated[str, f.STATE, Shown(1)]]
    txn_index_empty: NotRequired[Annotated[bool, f.TXN_INDEX_EMPTY]]
    metadata_offset: NotRequired[Annotated[int, f.METADATA_OFFSET]]
    timestamp_ms: NotRequired[Annotated[int, f.TIMESTAMP_MS]]
    dialect: NotRequired[Annotated[str, f.DIALECT]]
    error: NotRequired[Annotated[str, f.ERROR, Shown(7)]]
    value: NotRequired[Annotated[str, f.VALUE, JSON_ONLY]]


CACHE_ENTRIES = Columns(
    EntryRow,
    name="cache-entries",
    title="Headers and entries of cache files",
    commands="cache show",
    noun="row",
)


class FileCheck(TypedDict):
    """A good cache file, or a problem of a bad one."""

    file: Annotated[str, f.FILE, Shown(0)]
    status: Annotated[str, f.STATUS, Shown(0)]
    form: NotRequired[Annotated[str | None, f.FORM, Shown(2)]]
    entries: NotRequired[Annotated[int | None, f.ENTRIES, Shown(3)]]
    size_bytes: NotRequired[Annotated[int, f.SIZE_BYTES, Shown(4)]]
    position: NotRequired[Annotated[int | None, f.POSITION, Shown(5)]]
    detail: Annotated[str | None, f.DETAIL, Shown(1)]


CACHE_CHECKS = Columns(
    FileCheck,
    name="cache-checks",
    title="Good cache files, and each problem of bad ones",
    commands="cache verify",
    noun="result",
    word="status",
)


class BuiltFile(TypedDict):
    """A cache file that was built."""

    file: Annotated[str, f.FILE, Shown(5)]
    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[str, f.TOPIC_ID, Shown(6)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    metadata_partition: Annotated[int, f.METADATA_PARTITION, Shown(4)]
    last_offset: Annotated[int | None, f.LAST_OFFSET, Shown(3)]
    entries: Annotated[int, f.ENTRIES, Shown(2)]
    size_bytes: Annotated[int, f.SIZE_BYTES, Shown(1)]


CACHE_FILES = Columns(
    BuiltFile,
    name="cache-files",
    title="Cache files that were built",
    commands="cache build",
    noun="file",
    size="size_bytes",
)


class FileRewrite(TypedDict):
    """The plan for one cache file."""

    action: Annotated[str, f.ACTION, Shown(0)]
    file: Annotated[str, f.FILE, Shown(0)]
    entries: Annotated[int | None, f.ENTRIES, Shown(4)]
    kept: Annotated[int | None, Field(Kind.NUMBER, "entries of the new file"), Shown(3)]
    size_bytes: Annotated[int, f.SIZE_BYTES, Shown(2)]
    new_size_bytes: Annotated[int, Field(Kind.BYTES, "size of the new file", "new_size"), Shown(2)]
    reason: Annotated[str, f.REASON, Shown(1)]


CACHE_REWRITES = Columns(
    FileRewrite,
    name="cache-rewrites",
    title="Plan of a compaction",
    commands="cache compact",
    noun="file",
    word="action",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRows(TableResult):
    """Rows about cache files, read while they are consumed."""

    rows: Iterator[Row]
    columns: Columns
    """The columns of the rows."""
    _damaged: list[FileRows]

    @property
    def exit_code(self) -> int:
        """7 if the rows consumed so far have a problem."""
        return ExitCode.CORRUPT if self._damaged else ExitCode.OK

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`; all rows are read."""
        return self.columns, self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBuild(TableResult):
    """The cache files of a build, one row each."""

    table = CACHE_FILES, "rows"

    rows: Sequence[Row]
    is_complete: bool
    """False if records of the metadata topic could not be used, or no file be named after a partition."""

    @property
    def exit_code(self) -> int:
        """7 if the build is not complete."""
        return ExitCode.OK if self.is_complete else ExitCode.CORRUPT


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCompaction(TableResult):
    """The plan for each cache file."""

    rewrites: Sequence[Rewrite]
    is_applied: bool

    @property
    def is_pending(self) -> bool:
        """Whether there are files to replace that were not replaced."""
        return not self.is_applied and any(each.plan.compacted is not None for each in self.rewrites)

    @property
    def exit_code(self) -> int:
        """7 if a file is damaged; damaged files are kept as they are."""
        return ExitCode.CORRUPT if any(each.plan.is_damaged for each in self.rewrites) else ExitCode.OK

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return CACHE_REWRITES, [each.row() for each in self.rewrites]


def show_cache(request: ShowCacheRequest, progress: Progress | None = None) -> CacheRows:
    """Return the header and every entry of each file, or the entry that the request asks for.

    An entry that can't be decoded has a row with its `error`. Raise NotFoundError for a missing file or
    folder, and if no file has the entry; UsageError if no file is named.
    """
    damaged: list[FileRows] = []
    paths = _paths(request, cache_files, remote_index_files)
    if request.epoch is None and request.offset is None and request.position is None:
        found = _all_entries(request, progress, paths)
    else:
        found = _one_entry(request, progress, paths)
    rows = _noting_damage(found, damaged)
    return CacheRows(rows=rows, columns=CACHE_ENTRIES, _damaged=damaged)


def _all_entries(request: Request, progress: Progress | None, paths: Sequence[Path]) -> Iterator[FileRows]:
    """Yield the rows of each file; those of a large one in several parts, so that memory stays the same."""
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        read = listed_entry_rows if resources.is_on_spark else entry_rows
        for path, first in zip(paths, each_file(resources, "reading caches", read, paths), strict=True):
            part = first
            yield part
            while part.next_position is not None:
                if resources.is_on_spark:
                    following = partial(read, position=part.next_position)
                    (part,) = spark_files.read_files(resources.executors, following, [path])
                else:
                    part = read(path, part.next_position)
                yield part


def _one_entry(
    request: ShowCacheRequest, progress: Progress | None, paths: Sequence[Path]
) -> Iterator[FileRows]:
    """Yield the entry that the request asks for, of each file that has it; raise NotFoundError if none."""
    if (request.offset is None) == (request.position is None):
        raise UsageError("one of --offset and --position is needed", hint="give --epoch with --offset")
    find = partial(found_rows, epoch=request.epoch, offset=request.offset, position=request.position)
    if request.offset is not None:
        paths = list(_nearest(paths, request.offset))
    has_rows = False
    for part in _each(request, progress, "searching caches", find, paths):
        has_rows |= bool(part.rows)
        yield part
    if not has_rows:
        at = f"no entry is at byte {request.position}"
        served = f"no entry serves offset {request.offset} of leader epoch {request.epoch}"
        raise NotFoundError(
            served if request.position is None else at,
            hint="'tierctl cache show' without this option prints all entries",
        )


def _nearest(paths: Iterable[Path], offset: int) -> Iterator[Path]:
    """Yield the files that may serve an offset: of a folder's .remoteindex files the last up to there."""
    last: dict[Path, tuple[int, Path]] = {}
    for path in paths:
        base = flatfile.parse_remote_index_name(path.name)
        if base is None:
            yield path
        elif base <= offset:
            last[path.parent] = max((base, path), last.get(path.parent, (base, path)))
    yield from (path for _, path in last.values())


def verify_cache(request: CacheRequest, progress: Progress | None = None) -> CacheRows:
    """Return one row for each good file, and one row for each problem of a bad file.

    Raise NotFoundError for a missing file or folder, UsageError if no file is named.
    """
    damaged: list[FileRows] = []
    paths = _paths(request, cache_files, remote_index_files)
    found = _each(request, progress, "verifying", check_rows, paths)
    rows = _noting_damage(found, damaged)
    return CacheRows(rows=rows, columns=CACHE_CHECKS, _damaged=damaged)


def build_cache(request: BuildCacheRequest, progress: Progress | None = None) -> CacheBuild:
    """Write KIP-405's flat files of the selected partitions to the folder `out`.

    Files with another content are kept as .bak. Flat files lack broker ids, custom metadata and transaction
    indexes. Raise UsageError without `metadata` or `out`, SafetyRefusal if a file to replace is a link,
    LockedError if another tierctl writes there.
    """
    request.validate()
    out = required("--out", request.out)
    require_no_file("--out", out)
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        state = resources.metadata().refresh()
        selection = resources.resolve_selection(part.topic_id_partition for part in state)
        histories = Histories(resources)
        histories.examine(state)
        is_complete = not histories.report(state)
        named, total = request.header is HeaderForm.NAMED, sum(part.segment_count for part in state)
        with resources.progress.bar("writing flat files", unit="segments", total=total) as advance:
            built = write_flat_files(state, selection, out, named=named, advance=advance)
        for partition, why in built.left_out.items():
            resources.progress.warn(f"{partition} has no flat file: {why.message}")
    return CacheBuild(rows=built.rows, is_complete=is_complete and not built.left_out)


def compact_cache(request: CompactCacheRequest, progress: Progress | None = None) -> CacheCompaction:
    """Plan, and with `apply` write, each file without deleted segments and superseded entries.

    The old files are kept as .bak. Raise NotFoundError for a missing file or folder, UsageError if no file
    is named, SafetyRefusal if a broker runs on a folder, LockedError if another tierctl works there.
    """
    paths = _paths(request, cache_files)
    plans = _each(request, progress, "compacting", plan_compaction, paths)
    rewrites = [Rewrite(path=path, plan=plan) for path, plan in zip(paths, plans, strict=True)]
    if request.apply:
        rewrite(rewrites)
    return CacheCompaction(rewrites=rewrites, is_applied=request.apply)


def each_file(
    resources: Resources, title: str, function: Callable[[Path], T], paths: Sequence[Path]
) -> Iterator[T]:
    """Yield the result of `function` for each file, on the engine of the request, in the order of `paths`.

    `function` is called by its name on executors, and its results are of the classes that they may return.
    """
    if resources.is_on_spark:
        # Spark's own bar shows the tasks.
        yield from spark_files.read_files(resources.executors, function, paths)
        return
    with resources.progress.bar(title, unit="files", total=len(paths)) as advance:
        for path in paths:
            yield function(path)
            advance(1)


def _each(
    request: Request,
    progress: Progress | None,
    title: str,
    function: Callable[[Path], T],
    paths: Sequence[Path],
) -> Iterator[T]:
    """Yield the results of `each_file` while the resources of the request are open."""
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        yield from each_file(resources, title, function, paths)


def _noting_damage(found: Iterable[FileRows], damaged: list[FileRows]) -> Iterator[Row]:
    """Yield the rows of all files; put the first damaged file into `damaged`."""
    for each in found:
        if each.is_damaged and not damaged:
            damaged.append(each)
        yield from each.rows


def _paths(request: CacheRequest, *finders: Callable[[Path], Iterable[Path]]) -> list[Path]:
    """Return `files`, and what `finders` find in the folders among them and in each `log_dir`.

    Raise NotFoundError for a folder among `files` that has no cache file of any kind, and OSError for what is
    named and is no regular file.
    """
    locallog.require_log_dirs(filter(exists, request.log_dir))
    if not request.files and not request.log_dir:
        raise UsageError("no cache file is named", hint="name files, folders that have some, or --log-dir")
    for path in (*request.files, *request.log_dir):
        if not exists(path):
            raise NotFoundError(f"{path}: no such file or folder", hint="check the path")
    found: list[Path] = []
    for named in (*request.files, *request.log_dir):
        if not is_dir(named):
            # What is named must be a file; what is found beside others may be a problem of its own.
            os.close(open_regular(named))
            found.append(named)
            continue
        found += (path for find in finders for path in find(named))
        if named in request.files and not cache_files(named) and not remote_index_files(named):
            raise NotFoundError(f"no cache files in {named}", hint="'tierctl cache build --out' writes some")
    # A file that is named twice, or through a link, is one file.
    return list({os.path.realpath(path): path for path in reversed(found)}.values())[::-1]
