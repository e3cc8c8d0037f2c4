"""`tierctl status`: one screen about a tier."""

import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Rows, TablesPrinter, console_of
from tierctl.cli.options import (
    ENGINE,
    SELECTION,
    STATE,
    WHERE,
    with_options,
)
from tierctl.commands.insight.status import LAST_RUNS, STATUS, STATUS_PROBLEMS
from tierctl.errors import ExitCode, UsageError
from tierctl.model.times import DURATION_FORMS, parse_duration_s
from tierctl.report.render import SHOW
from tierctl.report.texts import counted

_CLEAR = "\x1b[H\x1b[2J"


class Show(StrEnum):
    """The rows that are printed."""

    TOPICS = "topics"
    PROBLEMS = "problems"
    RUNS = "runs"


_COLUMNS = {
    Show.TOPICS: STATUS,
    Show.PROBLEMS: STATUS_PROBLEMS,
    Show.RUNS: LAST_RUNS,
}
ShowOption = Annotated[
    Show | None,
    typer.Option(
        "--show",
        help="Print only these rows: topics, problems that need an operator, or the last successful runs in "
        "--state-dir. Default: tables of all three; json, jsonl and csv print the topics.",
        rich_help_panel=SHOW,
    ),
]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="DURATION",
        parser=parse_duration_s,
        min=0.1,
        help=f"Repeat the output at this interval until interrupted: {DURATION_FORMS}.",
        rich_help_panel=SHOW,
    ),
]


app = new_app()


@app.command("status", cls=Command)
@with_options(
    commands.StatusRequest,
    WHERE,
    STATE,
    SELECTION,
    ...,
    "topic_configs",
    "kafka_version",
    "now_ms",
    "copy_limit_ms",
    Rows,
    ENGINE,
    rows=tuple(_COLUMNS.values()),
)
def status(
    ctx: typer.Context, request: commands.StatusRequest, show: ShowOption = None, watch: Watch = None
) -> ExitCode:
    """Show the state of a tier: its topics, the copy lag, problems and the last runs.

    Exit 0 if the tier is healthy, and 3 if an operator must act: on findings of verify that are more than
    information, on copies that KIP-917's limit stopped, which --state-dir records, or on a transaction that
    keeps segments from the tier for longer than --copy-limit. status does not examine
    the objects of the tier, as verify does; of a tier on S3 it lists them, to show archived ones. To show the
    copy lag and stopped copies, status needs --log-dir and settings that enable the topics. The copy lag is
    what copy would copy now, and what waits for a transaction or a limit.
    """
    if show is Show.RUNS and request.state_dir is None:
        raise UsageError(
            "--show runs needs --state-dir, in which the last successful runs are stored",
            hint="give it here, as TIERCTL_STATE_DIR, or in a profile of tierctl.toml",
        )
    while True:
        printer = TablesPrinter.of(ctx, _COLUMNS, show)
        found = commands.status(request, console_of(ctx))
        if watch is not None and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        rows = {Show.TOPICS: found.topics, Show.PROBLEMS: found.problems, Show.RUNS: found.runs}
        printer.show(rows)
        also = None if show in {Show.PROBLEMS, Show.RUNS} else counted(len(found.problems), "problem")
        printer.finish(also=also, following=found.next_commands)
        if watch is None:
            return found.exit_code
        sys.stdout.flush()
        time.sleep(watch)
