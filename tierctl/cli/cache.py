"""`tierctl cache`: options and output of `show`, `verify`, `build` and `compact`."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import APPLY_IT, Printer, console_of, display_of
from tierctl.cli.options import request_of, with_options
from tierctl.model.stored import HeaderForm
from tierctl.report import tables
from tierctl.report.units import bytes_text

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Cache files: tierctl's .rlmcache, KIP-405's flat files, Kafka 3's remote_log_snapshot; show "
        "and verify also read .remoteindex files.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write flat files of KIP-405 to this folder instead of the files of a state directory.",
        rich_help_panel=options.WHERE,
    ),
]
Header = Annotated[
    HeaderForm,
    typer.Option(
        "--header",
        help="With --out: whether the header of a flat file contains the topic name (named), or not, as in "
        "early revisions of KIP-405 (unnamed).",
        rich_help_panel=options.SHOW,
    ),
]


app = new_app(name="cache", cls=Group, help="Show, verify, build and compact cache files (KIP-405).")


@app.command("show", cls=Command)
@with_options(..., options.folders, output_options.rows, options.engine)
def show(ctx: typer.Context, files: Files = None) -> int:
    """Print the header and every entry of cache files, with their byte positions.

    An entry that can't be read has a row with the error, and the exit code is 7. With --engine spark,
    executors read the files, which they must see under the same paths.
    """
    printer = Printer.of(ctx, tables.CACHE_ENTRIES)
    result = commands.show_cache(
        request_of(commands.CacheRequest, ctx), console_of(ctx, prints_meanwhile=True)
    )
    printer.show(result.rows)
    printer.finish()
    return result.exit_code


@app.command("verify", cls=Command)
@with_options(..., options.folders, output_options.rows, options.engine)
def verify(ctx: typer.Context, files: Files = None) -> int:
    """Check every byte of cache files, and print each problem with its position.

    A file without problems has one row, a damaged file one row for each problem; the exit code is then 7.
    With --engine spark, executors read the files, which they must see under the same paths.
    """
    printer = Printer.of(ctx, tables.CACHE_CHECKS)
    result = commands.verify_cache(
        request_of(commands.CacheRequest, ctx), console_of(ctx, prints_meanwhile=True)
    )
    printer.show(result.rows)
    printer.finish(following="tierctl cache build" if result.exit_code else None)
    return result.exit_code


@app.command("build", cls=Command)
@with_options(
    options.metadata_topic, options.state, ..., options.selection, output_options.rows, options.engine
)
def build(ctx: typer.Context, out: Out = None, header: Header = HeaderForm.NAMED) -> int:
    """Build cache files from the metadata topic: in a state directory, or with --out as KIP-405's flat files.

    Existing files are kept as .bak. The entries of flat files have no fields for broker ids, custom metadata
    and transaction indexes. With --engine spark, executors read the metadata topic, and this process writes
    the files.
    """
    printer = Printer.of(ctx, tables.CACHE_FILES)
    result = commands.build_cache(request_of(commands.BuildCacheRequest, ctx), console_of(ctx))
    printer.show(result.rows)
    printer.finish()
    return result.exit_code


@app.command("compact", cls=Command)
@with_options(..., options.folders, options.applying, output_options.rows, options.engine)
def compact(ctx: typer.Context, files: Files = None) -> int:
    """Remove entries that no query needs: deleted segments, and entries that later entries replace.

    The old file is kept as .bak. A damaged file is not changed, and the exit code is 7. With --engine spark,
    executors read and compact the files, which they must see under the same paths, and this process writes
    them.
    """
    printer = Printer.of(ctx, tables.CACHE_REWRITES)
    result = commands.compact_cache(request_of(commands.CompactCacheRequest, ctx), console_of(ctx))
    rows = [each.row() for each in result.rewrites]
    printer.show(rows)
    before, after = (sum(row[name] for row in rows) for name in ("size_bytes", "new_size_bytes"))
    printer.finish(
        also=f"{bytes_text(before)} become {bytes_text(after)}",
        following=APPLY_IT if result.is_pending else None,
    )
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)
