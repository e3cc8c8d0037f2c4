"""`tierctl offsets`: options and output of `show`, `check` and `repair`."""

from shlex import quote

import typer

from tierctl import commands
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import Again, Display, Printer, Rows, console_of, display_of
from tierctl.cli.options import ENGINE, METADATA_TOPIC, with_options
from tierctl.commands.offsets import COMMITTED_OFFSETS, FILE_NAME, OFFSET_REPAIRS, UNSAFE_OFFSETS
from tierctl.errors import ExitCode

app = new_app(name="offsets", cls=Group, help=f"Show, check and repair {FILE_NAME}.")


@app.command("show", cls=Command)
@with_options(commands.OffsetsRequest, ..., "log_dir", Rows, ENGINE, rows=(COMMITTED_OFFSETS,))
def show(ctx: typer.Context, request: commands.OffsetsRequest) -> None:
    """Print the last consumed offset of each metadata partition, and the format of the file.

    Of a damaged file the good lines are printed, and the exit code is 7.
    """
    printer = Printer.of(ctx, COMMITTED_OFFSETS)
    found = commands.show_offsets(request, console_of(ctx))
    _, rows = found.table_rows()
    printer.show(rows)
    for error in found.damage:
        raise error
    printer.finish()


@app.command("check", cls=Command)
@with_options(commands.OffsetsRequest, ..., METADATA_TOPIC, "log_dir", Rows, ENGINE, rows=(UNSAFE_OFFSETS,))
def check(ctx: typer.Context, request: commands.OffsetsRequest) -> int:
    """Print offsets that would lose segments: beyond the end of the log, or ahead of the caches.

    The caches are the flat files, and the snapshots of Kafka 3, in --log-dir. The exit code is 7 if an offset
    is printed, and 2 if there are no caches and no metadata topic to compare with. With --engine spark,
    executors read the metadata topic and the caches, which they must see under the same paths.
    """
    printer = Printer.of(ctx, UNSAFE_OFFSETS)
    result = commands.check_offsets(request, console_of(ctx))
    printer.show(result.findings)
    repair = "tierctl offsets repair" + (f" {quote(str(request.file))}" if request.file else "")
    printer.finish(following=repair if result.findings else None)
    return result.exit_code


@app.command("repair", cls=Command)
@with_options(
    commands.RepairOffsetsRequest,
    METADATA_TOPIC,
    "log_dir",
    ...,
    Display,
    "apply",
    Rows,
    ENGINE,
    rows=(OFFSET_REPAIRS,),
)
def repair(ctx: typer.Context, request: commands.RepairOffsetsRequest) -> int:
    """Lower offsets to the safe values that `check` found, or to the values of --set.

    The events above a lowered offset are read again, which takes time and is harmless. Damaged lines are left
    out and the good ones are kept. The old file is kept as .bak.
    """
    printer = Printer.of(ctx, OFFSET_REPAIRS)
    result = commands.repair_offsets(request, console_of(ctx))
    printer.show(result.steps)
    done = f"written to {result.path}, the old file is kept as .bak"
    printer.finish(
        also=("a plan, nothing changed" if result.is_pending else done) if result.steps else None,
        following=Again.APPLY if result.is_pending else None,
    )
    return display_of(ctx).exit_code(ExitCode.OK, is_pending=result.is_pending)
