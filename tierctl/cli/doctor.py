"""`tierctl doctor`: conditions under which tiering fails, before it fails."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.checks.check import CHECKS
from tierctl.cli.app import Command, new_app
from tierctl.cli.config.options import own_settings
from tierctl.cli.display import Printer, Rows, console_of
from tierctl.cli.options import ENGINE, PRIVATE_KEYS, WHERE, request_of, with_options
from tierctl.commands.shared_options import OutputFormat
from tierctl.errors import ExitCode
from tierctl.report.render import SHOW
from tierctl.report.texts import counted

All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Also list the checks that were not made because they do not apply here or no option names what "
        "they need.",
        rich_help_panel=SHOW,
    ),
]

app = new_app()


@app.command("doctor", cls=Command)
@with_options(
    commands.DoctorRequest,
    WHERE,
    PRIVATE_KEYS,
    "topic",
    "state_dir",
    ...,
    "topic_configs",
    "kafka_version",
    ENGINE,
    Rows,
    rows=(CHECKS,),
    needs_valid_settings=False,
)
def doctor(ctx: typer.Context, request: commands.DoctorRequest, show_all: All = False) -> ExitCode:
    """Find conditions that would make tiering fail.

    For each check, doctor prints what it found, why it matters, and how to fix it, the worst problems first,
    then what is ok.
    The checks cover tierctl.toml and the files of broker,
    client and topic settings that its profiles or the options name, contradictory settings of brokers and
    topics, the metadata topic, Kafka releases with known bugs, clocks, permissions, the features and
    lifecycle rules of the store, the state directory, and readable files with secrets. doctor checks only
    what the options name; other checks are counted and never count as ok: --all lists them, and --output json
    always has them. It changes nothing, except with --probe-writes.

    The problems of files of settings are: unknown names, wrong types and values out of bounds, settings that
    exclude each other, duplicates, and settings that --kafka-version does not have. A wrong tierctl.toml or
    environment does not end doctor: it is a problem of its own, and the checks that need no value of it are
    made.

    With --engine spark, doctor starts Spark and checks each executor: its versions of Python and of
    libraries, its disk space, and whether it reaches the cluster, the metadata topic and the store with its
    own credentials. Executors also read the metadata topic.

    Exit 0 if every check that was made is ok. Exit 3 if a problem or a warning needs an operator, or if a
    requested check could not be made. If no check could be made, the exit code is that of the first error.
    """
    printer = Printer.of(ctx, CHECKS)
    request = request_of(commands.DoctorRequest, ctx, own_settings=own_settings(ctx))
    diagnosis = commands.doctor(request, console_of(ctx))
    is_table = printer.output is OutputFormat.TABLE and not show_all
    shown = [each for each in diagnosis.results if not (is_table and each.is_left_out)]
    printer.show(shown)
    hidden = len(diagnosis.results) - len(shown)
    left = f"{counted(hidden, 'check')} not made (--all lists them and why)"
    printer.finish(also=left if hidden else None)
    return diagnosis.exit_code
