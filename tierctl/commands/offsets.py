"""`offsets`: read, check and repair a broker's `_rlmm_committed_offsets` file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from tierctl import locallog
from tierctl.commands.cache import each_file
from tierctl.commands.request import APPLY, TYPED_ONLY, Apply, Request
from tierctl.commands.resources import Resources
from tierctl.errors import (
    CorruptInputError,
    ExitCode,
    NotFoundError,
    SafetyRefusal,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.files import exists
from tierctl.locallog.folders import parse_left_out_folder
from tierctl.metadata.cache_files import SNAPSHOT_NAME, SUFFIX, CacheCoverage, Form, cache_files, coverage_of
from tierctl.metadata.offset_repair import (
    Finding,
    FindMissing,
    against_caches,
    against_log,
    against_snapshots,
    held_by_flat_files,
    held_except,
    lowest,
    read_committed,
    read_good_lines,
    with_own_partitions,
    write_committed,
)
from tierctl.model import TopicIdPartition
from tierctl.model.checked_values import natural_number, one_offset_each
from tierctl.model.events import PARTITION_MAX
from tierctl.model.progress import Progress, SilentProgress
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult, TableRows
from tierctl.spark import fold as spark_files
from tierctl.wire.files.checkpoints import CHECKPOINT_FILES, CommittedOffsets, OffsetsForm

FILE_NAME = "_rlmm_committed_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRequest(Request):
    """A request about one file of committed offsets, and about the caches in `log_dir`."""

    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help=f"Default: {FILE_NAME} in --log-dir.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOffsetsRequest(OffsetsRequest):
    """A request to replace unsafe offsets in the file; it only plans unless `apply` is true."""

    set_offset: Annotated[
        Sequence[str],
        typer.Option(
            "--set",
            metavar="PARTITION=OFFSET",
            help="Set the offset of this metadata partition. To raise an offset, or to set one that check "
            "finds unsafe, add --force. Repeatable.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = ()
    force: Annotated[
        bool,
        typer.Option(
            help="Allow --set to raise offsets, and to set unsafe ones. The events below such an offset are "
            "never read, so segments may be lost. Also replace a file that has no good line, or has an "
            "unknown version.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    apply: Apply = False

    def validate(self) -> None:
        """Implement `Request.validate`; NotFoundError without a file."""
        _path(self)


class CommittedOffset(TypedDict):
    """The committed offset of a metadata partition."""

    metadata_partition: Annotated[int, f.METADATA_PARTITION, Shown(0)]
    committed_offset: Annotated[int, f.COMMITTED_OFFSET, Shown(0)]
    form: Annotated[str, f.FORM, Shown(1)]


COMMITTED_OFFSETS = Columns(
    CommittedOffset,
    name="committed-offsets",
    title="Committed offsets",
    commands="offsets show",
    noun="offset",
)


class UnsafeOffset(TypedDict):
    """A committed offset that is too high."""

    metadata_partition: Annotated[int, f.METADATA_PARTITION, Shown(0)]
    committed_offset: Annotated[int, f.COMMITTED_OFFSET, Shown(0)]
    problem: Annotated[str, Field(Kind.WORD, "why the offset can't be right"), Shown(1)]
    limit: Annotated[
        int | None, Field(Kind.NUMBER, "highest safe offset; null if the entry must be removed"), Shown(1)
    ]
    detail: Annotated[str, f.DETAIL, Shown(0)]


UNSAFE_OFFSETS = Columns(
    UnsafeOffset,
    name="unsafe-offsets",
    title="Committed offsets that would lose segments",
    commands="offsets check",
    noun="unsafe offset",
    word="problem",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffsets(TableResult):
    """The offsets in a file by metadata partition, the form of the file, and the errors of its bad lines."""

    offsets: Mapping[int, int]
    form: OffsetsForm
    damage: Sequence[CorruptInputError] = ()

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return COMMITTED_OFFSETS, [
            {"metadata_partition": partition, "committed_offset": offset, "form": str(self.form)}
            for partition, offset in self.offsets.items()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCheck(TableResult):
    """The offsets of a file that can lose segments, in the order of their metadata partitions."""

    table = UNSAFE_OFFSETS, "findings"

    findings: Sequence[Finding]
    is_partial: bool = False
    """Whether a cache can't be read, so that offsets may be too high of which nothing is found."""

    @property
    def exit_code(self) -> int:
        """7 if there is a finding, or if a cache can't be read."""
        return ExitCode.CORRUPT if self.findings or self.is_partial else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStep:
    """One change to a file of committed offsets.

    `action` is `lower`, `raise`, `drop` (remove the entry), `drop_line` (the line is damaged), `rewrite` (the
    head or the end of the file is wrong, and its lines are kept) or `start_over` (no line of the file can be
    used).
    """

    action: Annotated[str, f.ACTION, Shown(0)]
    metadata_partition: Annotated[int | None, f.METADATA_PARTITION, Shown(0)]
    from_offset: Annotated[int | None, Field(Kind.NUMBER, "offset before the repair"), Shown(1)]
    to_offset: Annotated[int | None, Field(Kind.NUMBER, "offset after the repair"), Shown(1)]
    reason: Annotated[str, f.REASON, Shown(0)]


OFFSET_REPAIRS = Columns(
    OffsetStep,
    name="offset-repairs",
    title="Plan of a repair",
    commands="offsets repair",
    noun="change",
    word="action",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRepair(TableResult):
    """The changes of a repair, in the order of their metadata partitions."""

    table = OFFSET_REPAIRS, "steps"

    steps: Sequence[OffsetStep]
    path: Path
    is_applied: bool
    is_partial: bool = False
    """Whether an offset may stay unsafe: a cache can't be read, or a record below it is not understood."""

    @property
    def exit_code(self) -> int:
        """7 if offsets may still be too high."""
        return ExitCode.CORRUPT if self.is_partial else ExitCode.OK

    @property
    def is_pending(self) -> bool:
        """Whether there are changes that were only planned."""
        return bool(self.steps) and not self.is_applied


def show_offsets(request: OffsetsRequest, progress: Progress | None = None) -> StoredOffsets:
    """Return the offsets in the good lines of the file, and the errors of the others.

    Raise NotFoundError without a file, and UnsupportedFormatError for a version that is not known.
    """
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        (found,) = each_file(resources, "reading offsets", read_good_lines, [_path(request)])
        return StoredOffsets(offsets=found.offsets, form=found.form, damage=found.damage)


def check_offsets(request: OffsetsRequest, progress: Progress | None = None) -> OffsetsCheck:
    """Compare the offsets of the file with the caches and, if `metadata` is given, with the metadata topic.

    Raise NotFoundError if there is no file, CorruptInputError if it is damaged, and UsageError if there is
    nothing to compare the offsets with.
    """
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        path = _path(request)
        committed = _read(resources, path).offsets
        findings, unreadable = _findings(resources, path, committed, must_compare=True)
        return OffsetsCheck(findings=findings, is_partial=bool(unreadable))


def repair_offsets(request: RepairOffsetsRequest, progress: Progress | None = None) -> OffsetsRepair:
    """Plan to lower each unsafe offset and to set those of `set_offset`; with `apply` write the file.

    The old file is kept as .bak. Raise SafetyRefusal if an offset would rise, or be unsafe, without `force`,
    if a broker runs on the file's folder, or if the file changes meanwhile; LockedError if another tierctl
    works there. Without `force` also raise CorruptInputError for a file without a good line, which may be of
    another kind, and UnsupportedFormatError for a version that is not known.
    """
    path = _path(request)
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        try:
            (found,) = each_file(resources, "reading offsets", read_good_lines, [path])
            before, errors, frame_damage = found.offsets, found.damage, found.frame_damage
        except UnsupportedFormatError as error:
            before, errors, frame_damage = {}, [error], 0
        if errors and not before and not request.force:
            raise errors[0]
        must_compare = not errors and not request.set_offset
        findings, unreadable = _findings(resources, path, before, must_compare=must_compare)
        after, steps = _plan(request, findings, before)
        kept = [
            each
            for each in findings
            if each.committed_offset == each.limit == after.get(each.metadata_partition)
        ]
        for each in kept:
            resources.progress.warn(
                f"metadata partition {each.metadata_partition} keeps offset {each.limit}: {each.detail}"
            )
    kinds = ["rewrite"] * frame_damage + ["drop_line"] * (len(errors) - frame_damage)
    steps[:0] = [
        _damaged(kind if before else "start_over", error) for kind, error in zip(kinds, errors, strict=True)
    ]
    if request.apply and steps:
        write_committed(path, after, before=before)
    is_partial = bool(unreadable or kept)
    return OffsetsRepair(steps=steps, path=path, is_applied=request.apply, is_partial=is_partial)


def _damaged(action: str, error: CorruptInputError) -> OffsetStep:
    return OffsetStep(
        action=action, metadata_partition=None, from_offset=None, to_offset=None, reason=error.message
    )


def _plan(
    request: RepairOffsetsRequest, findings: Sequence[Finding], before: Mapping[int, int]
) -> tuple[dict[int, int], list[OffsetStep]]:
    """Return the offsets after the repair, and one step for each change to `before`."""
    reasons = {finding.metadata_partition: finding.problem for finding in findings}
    safe = lowest(findings)
    targets = dict(safe)
    asked = map(_partition_and_offset, request.set_offset)
    for partition, offset in one_offset_each(asked, "--set names partition"):
        if not request.force:
            _require_safe(partition, offset, before, safe)
        targets[partition], reasons[partition] = offset, "--set"
    after = dict(before)
    steps = []
    for partition, target in sorted(targets.items()):
        old = after.pop(partition, None)
        if target is not None:
            after[partition] = target
        if target != old:
            steps.append(
                OffsetStep(
                    action="drop" if target is None else "raise" if target > (old or -1) else "lower",
                    metadata_partition=partition,
                    from_offset=old,
                    to_offset=target,
                    reason=reasons[partition],
                )
            )
    return dict(sorted(after.items())), steps


def _require_safe(
    partition: int, offset: int, before: Mapping[int, int], safe: Mapping[int, int | None]
) -> None:
    """Raise SafetyRefusal if the events below `offset` would never be read.

    It raises the offset, or exceeds the highest one in `safe`, which is None if no offset is safe.
    """
    known, limit = before.get(partition), safe.get(partition, offset)
    why = None
    if offset > (-1 if known is None else known):
        why = f"raises the offset from {'none' if known is None else known}"
    elif limit is None or offset > limit:
        why = f"is above the highest safe offset, {'none' if limit is None else limit}"
    if why is not None:
        raise SafetyRefusal(
            f"--set {partition}={offset} {why}",
            hint="the events between both offsets would never be read; use --force to set it anyway",
        )


def _partition_and_offset(text: str) -> tuple[int, int]:
    before, _, after = text.partition("=")
    partition, offset = natural_number(before, PARTITION_MAX), natural_number(after)
    if partition is None or offset is None:
        raise UsageError(f"--set {text}: expected PARTITION=OFFSET", hint="as 3=4711")
    return partition, offset


def _findings(
    resources: Resources, path: Path, committed: Mapping[int, int], *, must_compare: bool
) -> tuple[list[Finding], list[Path]]:
    """Return the offsets that are too high, and the caches that can't be read: they may lack any event.

    `committed` are the offsets of the file `path`.
    """
    dirs = _dirs_of_its_broker(resources, path)
    caches, unreadable = _caches(resources, dirs)
    is_comparable = any(f.form is Form.SNAPSHOT and f.metadata_partition in committed for f in caches)
    if resources.request.metadata is None and not is_comparable and must_compare:
        raise UsageError(
            "there is nothing to compare the offsets with: no --metadata, and no remote_log_snapshot of "
            "their metadata partitions in --log-dir",
            hint="name the metadata topic with --metadata",
        )
    topic = None if resources.request.metadata is None else resources.metadata_topic()
    if topic is not None and topic.partition_count:
        caches = list(with_own_partitions(caches, locallog.list_partitions(dirs), topic.partition_count))
    findings = list(against_snapshots(caches, committed))
    if topic is not None:
        findings += against_log(topic, committed)
        flat_files = [cache for cache in caches if None not in {cache.topic_id, cache.partition}]
        if flat_files or any(path.suffix == SUFFIX for path in unreadable):
            held = held_by_flat_files(flat_files)
            findings += against_caches(topic, held, committed, _find_missing(resources))
        if without_snapshot := _without_snapshot(dirs, caches, unreadable):
            held = held_except(without_snapshot)
            findings += against_caches(topic, held, committed, _find_missing(resources))
    return sorted(findings, key=lambda finding: finding.metadata_partition), unreadable


def _dirs_of_its_broker(resources: Resources, path: Path) -> list[Path]:
    """Return the log directories without those of other brokers than the one whose file `path` is.

    What others have in their caches, this one may lack. Without meta.properties, a directory is any broker's.
    """
    node = locallog.node_of(path.parent)
    if node is None:
        return list(resources.request.log_dir)
    dirs = []
    for folder in resources.request.log_dir:
        if (other := locallog.node_of(folder)) in {None, node}:
            dirs.append(folder)
        else:
            resources.progress.note(f"{folder} is not compared with {path}: it is of {other}, not of {node}")
    return dirs


def _without_snapshot(
    dirs: Sequence[Path], caches: Sequence[CacheCoverage], unreadable: Sequence[Path]
) -> list[TopicIdPartition]:
    """Return the partitions in a broker's log directories whose snapshot of Kafka 3 is missing or not read.

    The snapshots of all partitions are in the first directory, in folders of the partitions' names. There are
    none where no folder has a snapshot: its broker keeps none.
    """
    snapshots = [cache for cache in caches if cache.form is Form.SNAPSHOT]
    if not snapshots and all(path.name != SNAPSHOT_NAME for path in unreadable):
        return []
    read = {Path(cache.source).parent.name for cache in snapshots if cache.metadata_partition is not None}
    return [each for each in locallog.list_partitions(dirs) if str(each.topic_partition) not in read]


def _find_missing(resources: Resources) -> FindMissing | None:
    """Return the search for events on executors; None on the local engine."""
    if not resources.is_on_spark:
        return None
    return partial(spark_files.find_missing, resources.executors, resources.metadata_location)


def _caches(resources: Resources, dirs: Sequence[Path]) -> tuple[list[CacheCoverage], list[Path]]:
    """Read the caches in the log directories; report and return those that can't be read.

    A snapshot of Kafka 3 in the folder of a deleted or moved partition is left out: its broker did not write
    it any more when it wrote the offsets (ConsumerTask), and does not read it again.
    """
    found_in = (path for folder in dirs for path in cache_files(folder))
    paths = [path for path in found_in if parse_left_out_folder(path.parent) is None]
    caches, unreadable = [], []
    read = each_file(resources, "reading caches", coverage_of, paths)
    for path, found in zip(paths, read, strict=True):
        if isinstance(found, CacheCoverage):
            caches.append(found)
            if found.damage is not None:
                resources.progress.warn(f"{found.source} is damaged: {found.damage}")
        else:
            unreadable.append(path)
            resources.progress.warn(f"unreadable: {found.message}")
    return caches, unreadable


def _path(request: OffsetsRequest) -> Path:
    """Return the file that `request` names.

    Raise NotFoundError if it, or a named folder, does not exist, and UsageError for another checkpoint file.
    """
    path, folders = request.file, request.log_dir
    if path is not None and any(path.name.endswith(name) for name in CHECKPOINT_FILES):
        raise UsageError(
            f"{path} is another of Kafka's checkpoint files",
            hint=f"name a file of committed offsets: {FILE_NAME}",
        )
    for folder in folders:
        if not exists(folder):
            raise NotFoundError(f"{folder}: no such folder", hint="check the path")
    if path is None:
        if not folders:
            raise UsageError("no offsets are named", hint="name FILE or --log-dir")
        files = [folder / FILE_NAME for folder in folders]
        existing = [file for file in files if exists(file)]
        if len(existing) > 1:
            raise UsageError(f"{existing[0]} and {existing[1]}: name one of the files as FILE")
        path = next(iter(existing), files[0])
    if not exists(path):
        raise NotFoundError(
            f"{path}: no such file",
            hint="name FILE, or a --log-dir that has one",
        )
    return path


def _read(resources: Resources, path: Path) -> CommittedOffsets:
    """Read the file on the engine of the request."""
    (found,) = each_file(resources, "reading offsets", read_committed, [path])
    return found
