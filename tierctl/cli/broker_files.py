"""The commands about files that brokers keep of the metadata topic: `cache` and `offsets`."""

from __future__ import annotations

from shlex import quote

import typer

from tierctl import commands
from tierctl.cli.app import command, group
from tierctl.cli.display import Again, Display, Printer, Rows, console_of, display_of, print_result
from tierctl.cli.options import ENGINE, METADATA_TOPIC, SELECTION, STATE
from tierctl.errors import ExitCode
from tierctl.report.texts import bytes_text

group("cache", "Show, verify, build and compact cache files (KIP-405).")
group("offsets", "Show, check and repair _rlmm_committed_offsets.")


@command("cache show", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.CACHE_ENTRIES,))
def show_cache(ctx: typer.Context, request: commands.ShowCacheRequest) -> int:
    """Print the header and every entry of cache files, with their byte positions, or one entry.

    With --epoch and --offset, it is the entry of the segment from which a broker serves that offset. The file
    is searched in chunks, so that a large one needs little memory; a .remoteindex file, which has the offsets
    at which segments begin, is searched by halves. An entry that can't be read has a row with the error, and
    the exit code is 7. With --engine spark, executors read the files, which they must see under the same
    paths.
    """
    return print_result(ctx, commands.show_cache, request, prints_meanwhile=True)


@command("cache verify", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.CACHE_CHECKS,))
def verify_cache(ctx: typer.Context, request: commands.CacheRequest) -> int:
    """Check every byte of cache files, and print each problem with its position.

    A file without problems has one row, a damaged file one row for each problem; the exit code is then 7.
    With --engine spark, executors read the files, which they must see under the same paths.
    """
    printer = Printer.of(ctx)
    result = commands.verify_cache(request, console_of(ctx, prints_meanwhile=True))
    printer.show(result.rows)
    printer.finish(following="tierctl cache build" if result.exit_code else None)
    return result.exit_code


@command(
    "cache build", METADATA_TOPIC, STATE, ..., SELECTION, Rows, ENGINE, rows=lambda: (commands.CACHE_FILES,)
)
def build_cache(ctx: typer.Context, request: commands.BuildCacheRequest) -> int:
    """Build the flat files of KIP-405 from the metadata topic, one for each user partition.

    Existing files are kept as .bak. The entries of flat files have no fields for broker ids, custom metadata
    and transaction indexes. A topic of more than 40,000 events becomes flat files in parts, which take about
    1.5 times its size in the folder for temporary files (TMPDIR). With --engine spark, executors read the
    metadata topic, and this process writes the files.
    """
    return print_result(ctx, commands.build_cache, request)


@command(
    "cache compact", ..., "log_dir", Display, "apply", Rows, ENGINE, rows=lambda: (commands.CACHE_REWRITES,)
)
def compact_cache(ctx: typer.Context, request: commands.CompactCacheRequest) -> int:
    """Remove entries that no query needs: deleted segments, and entries that later entries replace.

    The old file is kept as .bak. A damaged file is not changed, and the exit code is 7. With --engine spark,
    executors read and compact the files, which they must see under the same paths, and this process writes
    them.
    """
    printer = Printer.of(ctx)
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


@command("offsets show", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.COMMITTED_OFFSETS,))
def show_offsets(ctx: typer.Context, request: commands.OffsetsRequest) -> None:
    """Print the last consumed offset of each metadata partition, and the format of the file.

    Of a damaged file the good lines are printed, and the exit code is 7.
    """
    printer = Printer.of(ctx)
    found = commands.show_offsets(request, console_of(ctx))
    _, rows = found.table_rows()
    printer.show(rows)
    for error in found.damage:
        raise error
    printer.finish()


@command(
    "offsets check", ..., METADATA_TOPIC, "log_dir", Rows, ENGINE, rows=lambda: (commands.UNSAFE_OFFSETS,)
)
def check_offsets(ctx: typer.Context, request: commands.OffsetsRequest) -> int:
    """Print offsets that would lose segments: beyond the end of the log, or ahead of the caches.

    The caches are the flat files, and the snapshots of Kafka 3, in --log-dir. The exit code is 7 if an offset
    is printed, and 2 if there are no caches and no metadata topic to compare with. With --engine spark,
    executors read the metadata topic and the caches, which they must see under the same paths.
    """
    printer = Printer.of(ctx)
    result = commands.check_offsets(request, console_of(ctx))
    printer.show(result.findings)
    repair = "tierctl offsets repair" + (f" {quote(str(request.file))}" if request.file else "")
    printer.finish(following=repair if result.findings else None)
    return result.exit_code


@command(
    "offsets repair",
    METADATA_TOPIC,
    "log_dir",
    ...,
    Display,
    "apply",
    Rows,
    ENGINE,
    rows=lambda: (commands.OFFSET_REPAIRS,),
)
def repair_offsets(ctx: typer.Context, request: commands.RepairOffsetsRequest) -> int:
    """Lower offsets to the safe values that `check` found, or to the values of --set.

    The events above a lowered offset are read again, which takes time and is harmless. Damaged lines are left
    out and the good ones are kept. The old file is kept as .bak.
    """
    printer = Printer.of(ctx)
    result = commands.repair_offsets(request, console_of(ctx))
    printer.show(result.steps)
    done = f"written to {result.path}, the old file is kept as .bak"
    printer.finish(
        also=("a plan, nothing changed" if result.is_pending else done) if result.steps else None,
        following=Again.APPLY if result.is_pending else None,
    )
    return display_of(ctx).exit_code(ExitCode.OK, is_pending=result.is_pending)
