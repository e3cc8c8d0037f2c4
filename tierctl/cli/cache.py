"""`tierctl cache`: flat-file caches, tierctl's own and brokers'."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, UsageError

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
_VERIFIED = ("file", "status", "form", "entries", "size_bytes", "position", "detail")


def register(app: typer.Typer) -> None:
    """Adds `cache` and its commands."""
    group = typer.Typer(no_args_is_help=True, help="Look at, check and make flat-file caches (KIP-405).")
    group.command("show")(show)
    group.command("verify")(verify)
    app.add_typer(group, name="cache")


def show(
    ctx: typer.Context,
    files: Files = None,
    state_dir: options.StateDir = None,
    log_dir: options.LogDirs = None,
    output: options.Output = options.OutputFormat.TABLE,
) -> ExitCode:
    """Print the header and every entry of caches, with the byte where each lies.

    An entry that can't be read has its row too, and the exit code is 7.
    """
    from tierctl.report import render

    damaged: list[str] = []
    rows = (row for path in _paths(ctx) for row in _rows(path, damaged))
    render(rows, output, _SHOWN, table_columns=_SHOWN_IN_TABLE)
    return ExitCode.CORRUPT if damaged else ExitCode.OK


def _rows(path: Path, damaged: list[str]) -> Iterator[dict[str, Any]]:
    from tierctl.cli.cache_files import read_cache

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


def verify(
    ctx: typer.Context,
    files: Files = None,
    state_dir: options.StateDir = None,
    log_dir: options.LogDirs = None,
    output: options.Output = options.OutputFormat.TABLE,
) -> ExitCode:
    """Read every byte of caches and say what is wrong, and where.

    A good cache has one row, a bad one a row for each finding; the exit code is then 7.
    """
    from tierctl.report import render

    bad: list[str] = []
    rows = (row for path in _paths(ctx) for row in _verified(path, bad))
    render(rows, output, _VERIFIED)
    return ExitCode.CORRUPT if bad else ExitCode.OK


def _verified(path: Path, bad: list[str]) -> Iterator[dict[str, Any]]:
    from tierctl.cli.cache_check import findings
    from tierctl.cli.cache_files import read_cache

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


def _status(error: CorruptInputError) -> str:
    from tierctl.errors import UnsupportedFormatError

    return "unsupported" if isinstance(error, UnsupportedFormatError) else "corrupt"


def _paths(ctx: typer.Context) -> list[Path]:
    """The caches that are meant: files, or those of --state-dir and --log-dir."""
    from tierctl.cli.cache_files import cache_files

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
