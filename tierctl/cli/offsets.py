"""`tierctl offsets`: options and output of `show`, `check` and `repair`."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import APPLY_IT, Printer, console_of, display_of
from tierctl.cli.options import request_of, with_options
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.errors import ExitCode
from tierctl.report import tables

_NAME = "_rlmm_committed_offsets"

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help=f"Default: {_NAME} in --state-dir, or in --log-dir.", show_default=False
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PARTITION=OFFSET",
        help="Set the offset of this metadata partition. To raise an offset, add --force. Repeatable.",
        rich_help_panel=options.APPLY,
    ),
    TYPED_ONLY,
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Allow --set to raise offsets. The events below a raised offset are never read, so segments "
        "may be lost.",
        rich_help_panel=options.APPLY,
    ),
    TYPED_ONLY,
]


app = new_app(name="offsets", cls=Group, help=f"Show, check and repair {_NAME}.")


@app.command("show", cls=Command)
@with_options(..., options.folders, output_options.rows, options.engine)
def show(ctx: typer.Context, file: File = None) -> None:
    """Print the last consumed offset of each metadata partition, and the format of the file."""
    printer = Printer.of(ctx, tables.COMMITTED_OFFSETS)
    found = commands.show_offsets(request_of(commands.OffsetsRequest, ctx), console_of(ctx))
    _, rows = found.table_rows()
    printer.show(rows)
    printer.finish()


@app.command("check", cls=Command)
@with_options(..., options.metadata_topic, options.folders, output_options.rows, options.engine)
def check(ctx: typer.Context, file: File = None) -> int:
    """Print offsets that would lose segments: beyond the end of the log, or ahead of the caches.

    The caches are those in --state-dir and --log-dir. The exit code is 7 if an offset is printed, and 2 if
    there are no caches and no metadata topic to compare with. With --engine spark, executors read the
    metadata topic and the caches, which they must see under the same paths.
    """
    printer = Printer.of(ctx, tables.UNSAFE_OFFSETS)
    result = commands.check_offsets(request_of(commands.OffsetsRequest, ctx), console_of(ctx))
    printer.show(result.findings)
    printer.finish(following="tierctl offsets repair" if result.findings else None)
    return result.exit_code


@app.command("repair", cls=Command)
@with_options(
    options.metadata_topic, options.folders, ..., options.applying, output_options.rows, options.engine
)
def repair(ctx: typer.Context, file: File = None, set_offset: Set = None, force: Force = False) -> int:
    """Lower offsets to the safe values that `check` found, or to the values of --set.

    The events above a lowered offset are read again, which takes time and is harmless. The old file is kept
    as .bak.
    """
    printer = Printer.of(ctx, tables.OFFSET_REPAIRS)
    result = commands.repair_offsets(request_of(commands.RepairOffsetsRequest, ctx), console_of(ctx))
    printer.show(result.steps)
    printer.finish(following=APPLY_IT if result.is_pending else None)
    return display_of(ctx).exit_code(ExitCode.OK, is_pending=result.is_pending)
