"""`tierctl cache`: options and output of `show`, `verify`, `build` and `compact`."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import Again, Display, Printer, Rows, console_of, display_of
from tierctl.cli.options import ENGINE, METADATA_TOPIC, SELECTION, STATE, with_options
from tierctl.commands.cache import CACHE_CHECKS, CACHE_ENTRIES, CACHE_FILES, CACHE_REWRITES
from tierctl.report.texts import bytes_text

app = new_app(name="cache", cls=Group, help="Show, verify, build and compact cache files (KIP-405).")


@app.command("show", cls=Command)
@with_options(commands.ShowCacheRequest, ..., "log_dir", Rows, ENGINE, rows=(CACHE_ENTRIES,))
def show(ctx: typer.Context, request: commands.ShowCacheRequest) -> int:
    """Print the header and every entry of cache files, with their byte positions, or one entry.

    With --epoch and --offset, it is the entry of the segment from which a broker serves that offset. The file
    is searched in chunks, so that a large one needs little memory; a .remoteindex file, which has the offsets
    at which segments begin, is searched by halves. An entry that can't be read has a row with the error, and
    the exit code is 7. With --engine spark, executors read the files, which they must see under the same
    paths.
    """
    printer = Printer.of(ctx, CACHE_ENTRIES)
    result = commands.show_cache(request, console_of(ctx, prints_meanwhile=True))
    printer.show(result.rows)
    printer.finish()
    return result.exit_code


@app.command("verify", cls=Command)
@with_options(commands.CacheRequest, ..., "log_dir", Rows, ENGINE, rows=(CACHE_CHECKS,))
def verify(ctx: typer.Context, request: commands.CacheRequest) -> int:
    """Check every byte of cache files, and print each problem with its position.

    A file without problems has one row, a damaged file one row for each problem; the exit code is then 7.
    With --engine spark, executors read the files, which they must see under the same paths.
    """
    printer = Printer.of(ctx, CACHE_CHECKS)
    result = commands.verify_cache(request, console_of(ctx, prints_meanwhile=True))
    printer.show(result.rows)
    printer.finish(following="tierctl cache build" if result.exit_code else None)
    return result.exit_code


@app.command("build", cls=Command)
@with_options(
    commands.BuildCacheRequest, METADATA_TOPIC, STATE, ..., SELECTION, Rows, ENGINE, rows=(CACHE_FILES,)
)
def build(ctx: typer.Context, request: commands.BuildCacheRequest) -> int:
    """Build the flat files of KIP-405 from the metadata topic, one for each user partition.

    Existing files are kept as .bak. The entries of flat files have no fields for broker ids, custom metadata
    and transaction indexes. A topic of more than 40,000 events becomes flat files in parts, which take about
    1.5 times its size in the folder for temporary files (TMPDIR). With --engine spark, executors read the
    metadata topic, and this process writes the files.
    """
    printer = Printer.of(ctx, CACHE_FILES)
    result = commands.build_cache(request, console_of(ctx))
    printer.show(result.rows)
    printer.finish()
    return result.exit_code


@app.command("compact", cls=Command)
@with_options(
    commands.CompactCacheRequest, ..., "log_dir", Display, "apply", Rows, ENGINE, rows=(CACHE_REWRITES,)
)
def compact(ctx: typer.Context, request: commands.CompactCacheRequest) -> int:
    """Remove entries that no query needs: deleted segments, and entries that later entries replace.

    The old file is kept as .bak. A damaged file is not changed, and the exit code is 7. With --engine spark,
    executors read and compact the files, which they must see under the same paths, and this process writes
    them.
    """
    printer = Printer.of(ctx, CACHE_REWRITES)
    result = commands.compact_cache(request, console_of(ctx))
    rows = [each.row() for each in result.rewrites]
    printer.show(rows)
    before, after = (sum(row[name] for row in rows) for name in ("size_bytes", "new_size_bytes"))
    done = "a plan, nothing changed" if result.is_pending else "the old files are kept as .bak"
    printer.finish(
        also=f"{bytes_text(before)} become {bytes_text(after)}" + (f"; {done}" if after < before else ""),
        following=Again.APPLY if result.is_pending else None,
    )
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)
