"""`tierctl cache`: flat-file caches, tierctl's own and brokers'."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.taking import takes
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, UsageError


class Header(StrEnum):
    """The two headers a flat file can have."""

    NAMED = "named"
    UNNAMED = "unnamed"


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Cache files: tierctl's .rlmcache, flat files of KIP-405, Kafka 3's remote_log_snapshot.",
        show_default=False,
    ),
]
_SHOWN = (
    *("file", "position", "type", "form", "topic", "topic_id", "partition", "metadata_partition"),
    *("metadata_topic_offset", "segment_id", "start_offset", "end_offset", "broker_id", "leader_epoch"),
    *("epoch", "max_timestamp_ms", "event_timestamp_ms", "segment_leader_epochs", "segment_size_in_bytes"),
    *("custom_metadata", "state", "txn_index_empty", "metadata_offset", "timestamp_ms", "dialect", "error"),
)
_SHOWN_IN_TABLE = (
    *("file", "position", "type", "topic", "partition", "segment_id", "start_offset", "end_offset"),
    *("state", "error"),
)
_BUILT = (
    "file",
    "topic",
    "topic_id",
    "partition",
    "metadata_partition",
    "last_offset",
    "entries",
    "size_bytes",
)
_COMPACTED = ("action", "file", "entries", "kept", "size_bytes", "new_size_bytes", "reason")
_VERIFIED = ("file", "status", "form", "entries", "size_bytes", "position", "detail")


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write flat files of KIP-405 there, instead of a state directory's caches.",
        rich_help_panel=options.WHERE,
    ),
]
HeaderOption = Annotated[
    Header,
    typer.Option(
        "--header",
        help="With --out: with the topic's name in the header, or as early revisions of the KIP without.",
        rich_help_panel=options.SHOW,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `cache` and its commands."""
    group = typer.Typer(no_args_is_help=True, help="Look at, check and make flat-file caches (KIP-405).")
    group.command("show")(show)
    group.command("verify")(verify)
    group.command("build")(build)
    group.command("compact")(compact)
    app.add_typer(group, name="cache")


@takes(..., options.folders, options.rows)
def show(
    ctx: typer.Context,
    files: Files = None,
) -> ExitCode:
    """Print the header and every entry of caches, with the byte where each lies.

    An entry that can't be read has its row too, and the exit code is 7.
    """
    from tierctl.report import render

    damaged: list[str] = []
    rows = (row for path in _paths(ctx) for row in _rows(path, damaged))
    render(rows, ctx.params["output"], _SHOWN, table_columns=_SHOWN_IN_TABLE)
    return ExitCode.CORRUPT if damaged else ExitCode.OK


def _rows(path: Path, damaged: list[str]) -> Iterator[dict[str, Any]]:
    from tierctl.metadata.cache_files.files import read_cache

    name = {"file": str(path)}
    try:
        cache = read_cache(path)
    except CorruptInputError as error:
        damaged.append(error.message)
        yield name | {"position": error.at, "type": None, "error": error.message}
        return
    damaged.extend(error.message for error in cache.errors)
    yield name | cache.header()
    for entry in cache.entries:
        yield name | {"position": entry.position} | entry.fields()
    if cache.torn is not None:
        yield name | {"position": cache.torn.at, "type": None, "error": cache.torn.message}


@takes(..., options.folders, options.rows)
def verify(
    ctx: typer.Context,
    files: Files = None,
) -> ExitCode:
    """Read every byte of caches and say what is wrong, and where.

    A good cache has one row, a bad one a row for each finding; the exit code is then 7.
    """
    from tierctl.report import render

    bad: list[str] = []
    rows = chain.from_iterable(_verified(path, bad) for path in _paths(ctx))
    render(chain(rows, _missing(ctx.params["state_dir"], bad)), ctx.params["output"], _VERIFIED)
    return ExitCode.CORRUPT if bad else ExitCode.OK


def _missing(state_dir: Path | None, bad: list[str]) -> Iterator[dict[str, Any]]:
    from tierctl.metadata.cache_files.check import missing

    for error in missing(state_dir) if state_dir else ():
        bad.append(error.message)
        yield {"file": str(state_dir), "status": "missing", "detail": error.message}


def _verified(path: Path, bad: list[str]) -> Iterator[dict[str, Any]]:
    from tierctl.metadata.cache_files.check import findings
    from tierctl.metadata.cache_files.files import read_cache

    row: dict[str, Any] = {
        "file": str(path),
        "form": None,
        "entries": None,
        "size_bytes": path.stat().st_size,
    }
    found: list[CorruptInputError] = []
    try:
        cache = read_cache(path)
        row |= {"form": str(cache.form), "entries": len(cache.entries)}
        found.extend(findings(cache))
    except CorruptInputError as unreadable:
        found.append(unreadable)
    for error in found:
        bad.append(error.message)
        yield row | {"status": _status(error), "position": error.at, "detail": error.message}
    if not found:
        yield row | {"status": "ok", "position": None, "detail": None}


@takes(options.metadata_topic, options.state, ..., options.selection, options.rows)
def build(
    ctx: typer.Context,
    out: Out = None,
    header: HeaderOption = Header.NAMED,
) -> ExitCode:
    """Make caches from the metadata topic: a state directory's, or with --out flat files of KIP-405.

    The KIP's entries have no room for broker ids, custom metadata and transaction marks; what has its name
    is kept as .bak.
    """
    from tierctl.metadata.cache_files.build import flat_files, state_caches
    from tierctl.report import render

    state_dir = ctx.params["state_dir"]
    if (state_dir is None) == (out is None):
        raise UsageError("where to?", hint="name --state-dir or --out, one of them")
    with Context.of(ctx) as context:
        manager = context.metadata()
        state = manager.refresh()
        damaged = [
            f"metadata partition {bad.metadata_partition}: {bad.error.message}" for bad in state.quarantined
        ]
        if out is not None:
            chosen = [part for part in state if part.topic_id_partition in context.selection]
            rows: Iterable[dict[str, Any]] = flat_files(chosen, out, named=header is Header.NAMED)
    if state_dir is not None:
        rows = state_caches(state_dir)
    render(rows, ctx.params["output"], _BUILT)
    for text in damaged:
        typer.echo(f"not complete: {text}", err=True)
    return ExitCode.CORRUPT if damaged else ExitCode.OK


@takes(..., options.folders, options.applying, options.rows)
def compact(
    ctx: typer.Context,
    files: Files = None,
) -> ExitCode:
    """Leave out of caches what no answer depends on: segments that are gone, entries said again later.

    The old file is kept as .bak. A cache with damage is left as it is, and the exit code is 7.
    """
    from tierctl.metadata.cache_files.rewrite import plan_rewrite, rewrite
    from tierctl.report import render

    plans = [plan_rewrite(path) for path in _paths(ctx)]
    pending = [plan for plan in plans if plan.compacted is not None]
    if ctx.params["apply"]:
        rewrite(pending)
    render((plan.row() for plan in plans), ctx.params["output"], _COMPACTED)
    if any(plan.is_damaged for plan in plans):
        return ExitCode.CORRUPT
    return options.ended(ctx, pending=bool(pending))


def _status(error: CorruptInputError) -> str:
    from tierctl.errors import UnsupportedFormatError

    return "unsupported" if isinstance(error, UnsupportedFormatError) else "corrupt"


def _paths(ctx: typer.Context) -> list[Path]:
    """The caches that are meant: files, or those of --state-dir and --log-dir."""
    from tierctl.metadata.cache_files.files import cache_files

    context = Context.of(ctx)
    files = list(ctx.params["files"] or ())
    folders = [*([context.state_dir] if context.state_dir else []), *context.log_dir]
    if not files and not folders:
        raise UsageError("no cache is named", hint="name files, --state-dir or --log-dir")
    for path in (*files, *folders):
        if not path.exists():
            raise NotFoundError(f"{path}: no such file or folder")
    for file in files:
        if file.is_dir():
            raise UsageError(f"{file} is a folder", hint="name it as --state-dir or --log-dir")
    return [*files, *(path for folder in folders for path in cache_files(folder))]
