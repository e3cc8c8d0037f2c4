"""`tierctl restore --check`: the options, and how the results are shown."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import request_of, typed_option
from tierctl.errors import ExitCode, UsageError
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.report.tier_tables import RESTORE_CHECKS

CHECK = "With --check"

Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Restore nothing; compare what running brokers serve with the objects of the tier.",
        rich_help_panel=CHECK,
    ),
]
Before = Annotated[
    Path | None,
    typer.Option(
        "--before",
        metavar="FILE",
        help="A listing of the tier that --listing-out wrote before the brokers started. Each of its "
        "objects must still exist.",
        rich_help_panel=CHECK,
    ),
]
ListingOut = Annotated[
    Path | None,
    typer.Option(
        "--listing-out",
        metavar="FILE",
        help="Write the listing of the tier to FILE, for --before of a later check. Without a cluster, only "
        "the listing is written.",
        rich_help_panel=CHECK,
    ),
]
BrokerLog = Annotated[
    list[Path] | None,
    typer.Option(
        "--broker-log",
        metavar="FILE",
        help="The server.log of a broker since its start, which must not contain a deletion of a segment. "
        "Repeatable.",
        rich_help_panel=CHECK,
    ),
]
ElectionTimeout = Annotated[
    int | None,
    typer.Option(
        "--election-timeout",
        metavar="DURATION",
        parser=parse_duration_ms,
        help="Keep consumers at positions in several leader epochs, wait at most this long for you to elect "
        "new leaders of all partitions, and then continue to read. tierctl elects no leader itself. The time "
        f"is written as {DURATION_FORMS}.",
        rich_help_panel=CHECK,
    ),
]
Produce = Annotated[
    str | None,
    typer.Option(
        "--produce",
        metavar="TOPIC",
        help="Write two records with new producers to each checked partition of TOPIC, one of them in a "
        "transaction. Consumers of the topic receive these records.",
        rich_help_panel=CHECK,
    ),
]
_OWN = ("before", "listing_out", "broker_log", "election_timeout_ms", "produce")
_OF_OTHERS = (
    *(
        "materialise",
        "new_ids",
        "from_id",
        "assume_enabled",
        "as_id",
        "after_hole",
        "apply",
        "plan_out",
    ),
    *("without_keys", "left_out", "sign_with"),
    *("into", "topics_file", "publish_later", "topic_configs", "deletes_are_denied", "copy_of_objects"),
)


def checking(
    before: Before = None,
    listing_out: ListingOut = None,
    broker_log: BrokerLog = None,
    election_timeout_ms: ElectionTimeout = None,
    produce: Produce = None,
) -> None:
    """Group: the checks of `--check`."""


def require_consistent(ctx: typer.Context, *, check: bool) -> None:
    """Raise UsageError for typed options that cannot be used with `--check`, or only with it."""
    wrong = typed_option(ctx, _OF_OTHERS if check else _OWN)
    if wrong and check:
        raise UsageError(f"{wrong} can't be used with --check", hint="--check restores nothing")
    if wrong:
        raise UsageError(f"{wrong} needs --check", hint="add it, or leave the option out")


def show_check(ctx: typer.Context, metadata: str | None) -> ExitCode:
    """Make the checks and print their results; return the exit code."""
    printer = Printer.of(ctx, RESTORE_CHECKS)
    request = request_of(commands.RestoreCheckRequest, ctx, metadata=metadata)
    console = console_of(ctx)
    found = commands.check_restored(request, console)
    printer.show(found.table_rows()[1])
    if found.missing:
        console.say(f"not checked, or not all of it: {', '.join(found.missing)}")
    printer.finish()
    return found.exit_code
