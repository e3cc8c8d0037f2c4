"""`tierctl cache`: options and output of `show`, `verify`, `build` and `compact`."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options
from tierctl.cli.display import display_of, show_rows
from tierctl.cli.request import request_of
from tierctl.cli.taking import takes
from tierctl.model.stored import HeaderForm
from tierctl.report.console import Console

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
Header = Annotated[
    HeaderForm,
    typer.Option(
        "--header",
        help="With --out: with the topic's name in the header, or as early revisions of the KIP without.",
        rich_help_panel=options.SHOW,
    ),
]


def register(app: typer.Typer) -> None:
    """Add `cache` and its commands."""
    group = typer.Typer(no_args_is_help=True, help="Look at, check and make flat-file caches (KIP-405).")
    group.command("show")(show)
    group.command("verify")(verify)
    group.command("build")(build)
    group.command("compact")(compact)
    app.add_typer(group, name="cache")


@takes(..., options.folders, options.rows)
def show(ctx: typer.Context, files: Files = None) -> int:
    """Print the header and every entry of caches, with the byte where each lies.

    An entry that can't be read has its row too, and the exit code is 7.
    """
    result = commands.show_cache(request_of(commands.CacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _SHOWN, table_columns=_SHOWN_IN_TABLE)
    return result.exit_code


@takes(..., options.folders, options.rows)
def verify(ctx: typer.Context, files: Files = None) -> int:
    """Read every byte of caches and say what is wrong, and where.

    A good cache has one row, a bad one a row for each finding; the exit code is then 7.
    """
    result = commands.verify_cache(request_of(commands.CacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _VERIFIED)
    return result.exit_code


@takes(options.metadata_topic, options.state, ..., options.selection, options.rows)
def build(ctx: typer.Context, out: Out = None, header: Header = HeaderForm.NAMED) -> int:
    """Make caches from the metadata topic: a state directory's, or with --out flat files of KIP-405.

    The KIP's entries have no room for broker ids, custom metadata and transaction marks; what has its name
    is kept as .bak.
    """
    result = commands.build_cache(request_of(commands.BuildCacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _BUILT)
    return result.exit_code


@takes(..., options.folders, options.applying, options.rows)
def compact(ctx: typer.Context, files: Files = None) -> int:
    """Leave out of caches what no answer depends on: segments that are gone, entries said again later.

    The old file is kept as .bak. A cache with damage is left as it is, and the exit code is 7.
    """
    result = commands.compact_cache(request_of(commands.CompactCacheRequest, ctx), Console())
    show_rows(ctx, (each.row() for each in result.rewrites), _COMPACTED)
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)
