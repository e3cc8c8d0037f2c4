"""`tierctl restore --check`: the options, and how the results are shown."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import Fields, request_of, typed_option
from tierctl.commands.recovery.check.restored import CHECK
from tierctl.commands.recovery.check.results import RESTORE_CHECKS
from tierctl.errors import ExitCode, UsageError

Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Restore nothing; compare what running brokers serve with the objects of the tier.",
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


CHECKING = Fields(commands.RestoreCheckRequest, _OWN)
"""The options of `--check`."""


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
