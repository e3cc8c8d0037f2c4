"""`tierctl doctor`: conditions under which tiering fails, before it fails."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import request_of, with_options
from tierctl.cli.settings.run import RunSettings
from tierctl.doctor.checks import Check
from tierctl.errors import ExitCode
from tierctl.report import tables

ProbeWrites = Annotated[
    bool,
    typer.Option(
        "--probe-writes",
        help="Also store, replace and delete two small objects, .tierctl-probe-<id>*, in the store of "
        "--remote. Only this shows whether tierctl may write and delete, and whether the store "
        "supports conditional writes and leases. A bucket with versioning keeps these objects as "
        "noncurrent versions.",
        rich_help_panel=options.DECIDE,
    ),
]
Skip = Annotated[
    list[Check] | None,
    typer.Option(
        "--skip",
        metavar="CHECK",
        help="Skip this check, named as in tierctl-doctor(1). It is listed as not checked. Repeatable.",
        rich_help_panel=options.DECIDE,
    ),
]


app = new_app()


def _narrowed(topic: options.Topics = None, state_dir: options.StateDir = None) -> None:
    """Group: the topics whose settings and rights are checked, and the state directory."""


@app.command("doctor", cls=Command)
@with_options(options.where, options.private_keys, _narrowed, ..., options.engine, output_options.rows)
def doctor(
    ctx: typer.Context,
    probe_writes: ProbeWrites = False,
    skip: Skip = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
) -> ExitCode:
    """Find conditions that would make tiering fail.

    For each check, doctor prints what it found, why it matters, and how to fix it. The worst problems are
    printed last at a terminal and first elsewhere. The checks cover contradictory settings of brokers and
    topics, the metadata topic, Kafka releases with known bugs, clocks, permissions, the features and
    lifecycle rules of the store, the state directory, and readable files with secrets. doctor checks only
    what the options name; other checks are listed as not checked and never count as ok. It changes nothing,
    except with --probe-writes.

    With --engine spark, doctor starts Spark and checks each executor: its versions of Python and of
    libraries, its disk space, and whether it reaches the cluster, the metadata topic and the store with its
    own credentials. Executors also read the metadata topic.

    Exit 0 if every check that was made is ok. Exit 3 if a problem or a warning needs an operator, or if a
    requested check could not be made. If no check could be made, the exit code is that of the first error.
    """
    printer = Printer.of(ctx, tables.CHECKS)
    settings = ctx.obj
    file = settings.file if isinstance(settings, RunSettings) else None
    request = request_of(commands.DoctorRequest, ctx, profile_file=file)
    diagnosis = commands.doctor(request, console_of(ctx))
    printer.show(diagnosis.table_rows()[1])
    printer.finish()
    return diagnosis.exit_code
