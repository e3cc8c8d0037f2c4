"""`tierctl offsets`: `_rlmm_committed_offsets`, tierctl's own and brokers'."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.taking import takes
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, SafetyRefusal, UsageError

if TYPE_CHECKING:
    from tierctl.metadata.cache_files.files import CacheFile
    from tierctl.metadata.committed_offsets import Finding
    from tierctl.wire.files.committed_offsets import CommittedOffsets

_NAME = "_rlmm_committed_offsets"
_CHECKED = ("metadata_partition", "committed_offset", "problem", "limit", "detail")
_REPAIRED = ("action", "metadata_partition", "from_offset", "to_offset", "reason")

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help=f"Default: {_NAME} in --state-dir, or in --log-dir.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PARTITION=OFFSET",
        help="Set this offset; raising one needs --force. Repeatable.",
        rich_help_panel=options.APPLY,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Raise offsets too. What lies below a raised offset is never read: segments may be lost.",
        rich_help_panel=options.APPLY,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `offsets` and its commands."""
    group = typer.Typer(no_args_is_help=True, help=f"Look at, check and repair {_NAME}.")
    for command in (show, check, repair):
        group.command(command.__name__)(command)
    app.add_typer(group, name="offsets")


@takes(..., options.folders, options.rows)
def show(
    ctx: typer.Context,
    file: File = None,
) -> None:
    """Print the last consumed offset of each metadata partition, and in which form the file is."""
    from tierctl.report import render

    found = _read(_path(ctx))
    rows = (
        {"metadata_partition": partition, "committed_offset": offset, "form": str(found.form)}
        for partition, offset in found.offsets.items()
    )
    render(rows, ctx.params["output"], ("metadata_partition", "committed_offset", "form"))


@takes(..., options.metadata_topic, options.folders, options.rows)
def check(
    ctx: typer.Context,
    file: File = None,
) -> ExitCode:
    """Say which offsets would lose segments: beyond the log's end, or ahead of what caches hold.

    The caches are those of --state-dir and --log-dir. With a finding the exit code is 7.
    """
    from tierctl.report import render

    found = _findings(ctx, _read(_path(ctx)).offsets)
    render(map(asdict, found), ctx.params["output"], _CHECKED)
    return ExitCode.CORRUPT if found else ExitCode.OK


@takes(options.metadata_topic, options.folders, ..., options.applying, options.rows)
def repair(
    ctx: typer.Context,
    file: File = None,
    set_: Set = None,
    force: Force = False,
) -> ExitCode:
    """Lower offsets to what is safe, by the findings of check and by --set.

    A lower offset costs time: what follows it is read once more. The old file is kept as .bak.
    """
    from tierctl.report import render

    path = _path(ctx)
    try:
        before: Mapping[int, int] = _read(path).offsets
        damage = None
    except CorruptInputError as error:
        before, damage = {}, error
    after, steps = _plan(ctx, before)
    if damage is not None:
        steps.insert(0, _step("start_over", None, None, None, damage.message))
    if ctx.params["apply"] and steps:
        _write(path, after)
    render(steps, ctx.params["output"], _REPAIRED)
    return options.ended(ctx, pending=bool(steps))


def _step(
    action: str, partition: int | None, before: int | None, after: int | None, reason: str
) -> dict[str, Any]:
    return dict(zip(_REPAIRED, (action, partition, before, after, reason), strict=True))


def _plan(ctx: typer.Context, before: Mapping[int, int]) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """The offsets to be, and a step for each change; SafetyRefusal for a raise without --force."""
    from tierctl.metadata.committed_offsets import lowest

    found = _findings(ctx, before)
    reasons = {finding.metadata_partition: finding.problem for finding in found}
    wanted = lowest(found)
    for partition, offset in _set(ctx.params["set_"] or ()).items():
        if offset > before.get(partition, -1) and not ctx.params["force"]:
            raise SafetyRefusal(
                f"--set {partition}={offset} raises the offset from {before.get(partition, 'none')}",
                hint="what lies between would never be read; --force does it all the same",
            )
        wanted[partition], reasons[partition] = offset, "--set"
    after = dict(before)
    steps = []
    for partition, target in sorted(wanted.items()):
        old = after.pop(partition, None)
        if target is not None:
            after[partition] = target
        if target != old:
            action = "drop" if target is None else "raise" if target > (old or -1) else "lower"
            steps.append(_step(action, partition, old, target, reasons[partition]))
    return dict(sorted(after.items())), steps


def _set(texts: Any) -> dict[int, int]:
    offsets = {}
    for text in texts:
        partition, equals, offset = text.partition("=")
        if not equals or not partition.isdigit() or not offset.isdigit():
            raise UsageError(f"--set {text}: expected PARTITION=OFFSET", hint="as 3=4711")
        offsets[int(partition)] = int(offset)
    return offsets


def _findings(ctx: typer.Context, committed: Mapping[int, int]) -> list["Finding"]:
    from tierctl.metadata.committed_offsets import against_caches, against_log, against_snapshots

    with Context.of(ctx) as context:
        caches = _caches(context)
        found = list(against_snapshots(caches, committed))
        if context.metadata_uri is not None:
            topic = context.metadata_topic()
            found += against_log(topic, committed)
            if context.state_dir is not None:
                found += against_caches(topic, caches, committed)
    return sorted(found, key=lambda finding: finding.metadata_partition)


def _caches(context: Context) -> list["CacheFile"]:
    """The caches beside the offsets; one that can't be read holds nothing."""
    from tierctl.metadata.cache_files.files import cache_files, read_cache

    caches = []
    for folder in _folders(context):
        for path in cache_files(folder):
            try:
                caches.append(read_cache(path))
            except CorruptInputError as error:
                typer.echo(f"unreadable: {error.message}", err=True)
    return caches


def _folders(context: Context) -> list[Path]:
    return [*([context.state_dir] if context.state_dir else []), *context.log_dir]


def _path(ctx: typer.Context) -> Path:
    path: Path | None = ctx.params["file"]
    folders = _folders(Context.of(ctx))
    if path is None:
        if not folders:
            raise UsageError("no offsets are named", hint="name FILE, --state-dir or --log-dir")
        path = next((folder / _NAME for folder in folders if (folder / _NAME).exists()), folders[0] / _NAME)
    if not path.exists():
        raise NotFoundError(f"{path}: no such file")
    return path


def _read(path: Path) -> "CommittedOffsets":
    from tierctl.wire.files import committed_offsets

    try:
        return committed_offsets.read(path.read_bytes())
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def _write(path: Path, offsets: Mapping[int, int]) -> None:
    """Replace the file; SafetyRefusal beside a running broker, LockedError beside another tierctl."""
    from tierctl.files import broker_kept_out, exclusive, replace_durably
    from tierctl.metadata.state_dir.directory import LOCK
    from tierctl.wire.files import committed_offsets

    with broker_kept_out(path.parent), exclusive(path.parent, LOCK):
        replace_durably(path, committed_offsets.write(offsets, _form(path)), backup=True)


def _form(path: Path) -> Any:
    from tierctl.wire.files.committed_offsets import OffsetsForm

    try:
        return _read(path).form
    except CorruptInputError:
        return OffsetsForm.CHECKPOINT
