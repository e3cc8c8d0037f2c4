"""`tierctl doctor`: conditions under which tiering fails, before it fails."""

from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.declare import add, option
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
from tierctl.cli.settings.run import RunSettings
from tierctl.doctor.checks import Check
from tierctl.errors import ExitCode
from tierctl.report import tables

ProbeWrites = Annotated[
    bool,
    option(
        "--probe-writes",
        help="Also store, replace and delete two small objects of tierctl's own, .tierctl-probe-<id>*, in "
        "the store of --remote: nothing else shows the rights to write and delete, conditional writes and "
        "leases. A bucket with versions keeps them as noncurrent versions.",
        panel=options.DECIDE,
    ),
]
Skip = Annotated[
    list[Check] | None,
    option(
        "--skip",
        metavar="CHECK",
        help="Leave out this check, as tierctl-doctor(1) names it; it is listed as not checked. Repeatable.",
        panel=options.DECIDE,
    ),
]


def register(app: click.Group) -> None:
    """Add `doctor`."""
    add(app, "doctor", doctor)


def _narrowed(topic: options.Topics = None, state_dir: options.StateDir = None) -> None:
    """Group: the topics whose settings and rights are checked, and the state directory."""


@with_options(options.where, options.private_keys, _narrowed, ..., output_options.rows)
def doctor(
    ctx: click.Context,
    probe_writes: ProbeWrites = False,
    skip: Skip = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
) -> ExitCode:
    """Find the conditions under which tiering fails, before it fails.

    For each check it prints what was found, why it matters, and the fix, the worst last at a terminal and
    first elsewhere: settings of brokers and topics that
    contradict each other, the metadata topic, releases of Kafka with known faults, clocks, rights, what the
    store supports and does by itself, the state directory, files with secrets. Checks are made of what is
    named; the others are listed as not checked, and never count as ok. Nothing is changed, but for
    --probe-writes. Exit 0 if all that was checked is fine, 3 if an operator must act on a problem or a
    warning, or because a check that was asked for could not be made. If no check could be made, the exit code
    is that of the first error.
    """
    printer = Printer.of(ctx, tables.CHECKS)
    settings = ctx.obj
    file = settings.file if isinstance(settings, RunSettings) else None
    request = request_of(commands.DoctorRequest, ctx, profile_file=file)
    diagnosis = commands.doctor(request, console_of(ctx))
    printer.show(diagnosis.table_rows()[1])
    printer.finish()
    return diagnosis.exit_code
