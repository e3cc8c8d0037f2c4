"""`tierctl cache`: options and output of `show`, `verify`, `build` and `compact`."""

from pathlib import Path
from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import options
from tierctl.cli.declare import add, add_group, argument, option
from tierctl.cli.display import display_of, show_rows
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
from tierctl.model.stored import HeaderForm
from tierctl.report.console import Console

Files = Annotated[
    list[Path] | None,
    argument(
        metavar="FILE",
        help="Cache files: tierctl's .rlmcache, KIP-405's flat files, Kafka 3's remote_log_snapshot; show "
        "and verify also read .remoteindex files.",
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
    option(
        "--out",
        metavar="DIR",
        help="Write flat files of KIP-405 to this folder instead of the files of a state directory.",
        panel=options.WHERE,
    ),
]
Header = Annotated[
    HeaderForm,
    option(
        "--header",
        help="With --out: whether the header has the topic's name (named) or not, as in early revisions of "
        "KIP-405 (unnamed).",
        panel=options.SHOW,
    ),
]


def register(app: click.Group) -> None:
    """Add `cache` and its commands."""
    group = add_group(app, "cache", "Show, verify, build and compact cache files (KIP-405).")
    add(group, "show", show)
    add(group, "verify", verify)
    add(group, "build", build)
    add(group, "compact", compact)


@with_options(..., options.folders, options.rows)
def show(ctx: click.Context, files: Files = None) -> int:
    """Print the header and every entry of cache files, with their byte positions.

    An entry that can't be read has a row with the error, and the exit code is 7.
    """
    result = commands.show_cache(request_of(commands.CacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _SHOWN, table_columns=_SHOWN_IN_TABLE)
    return result.exit_code


@with_options(..., options.folders, options.rows)
def verify(ctx: click.Context, files: Files = None) -> int:
    """Read every byte of cache files, and print what is wrong and where.

    A good file has one row, a bad file one row for each problem; the exit code is then 7.
    """
    result = commands.verify_cache(request_of(commands.CacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _VERIFIED)
    return result.exit_code


@with_options(options.metadata_topic, options.state, ..., options.selection, options.rows)
def build(ctx: click.Context, out: Out = None, header: Header = HeaderForm.NAMED) -> int:
    """Build cache files from the metadata topic: in a state directory, or with --out as KIP-405's flat files.

    The entries of flat files have no fields for broker ids, custom metadata and transaction indexes. Files
    of the same names are kept as .bak.
    """
    result = commands.build_cache(request_of(commands.BuildCacheRequest, ctx), Console())
    show_rows(ctx, result.rows, _BUILT)
    return result.exit_code


@with_options(..., options.folders, options.applying, options.rows)
def compact(ctx: click.Context, files: Files = None) -> int:
    """Remove entries that no query needs: deleted segments, and entries that later entries replace.

    The old file is kept as .bak. A damaged file is not changed, and the exit code is 7.
    """
    result = commands.compact_cache(request_of(commands.CompactCacheRequest, ctx), Console())
    show_rows(ctx, (each.row() for each in result.rewrites), _COMPACTED)
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)
