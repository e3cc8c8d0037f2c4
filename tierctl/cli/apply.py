"""`tierctl apply` PLAN: carries out a plan that was saved."""

from dataclasses import replace

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Display, Rows, confirmation, show_mutation
from tierctl.cli.options import (
    CHANGING,
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    THROTTLES,
    WHERE,
    Yes,
    with_options,
)
from tierctl.report.plans import PLAN_ROWS

app = new_app()


@app.command("apply", cls=Command)
@with_options(
    commands.ApplyRequest,
    ...,
    "topic_configs",
    "kafka_version",
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    Rows,
    CHANGING,
    Display,
    ENGINE,
    THROTTLES,
    rows=PLAN_ROWS,
)
def apply_plan(ctx: typer.Context, request: commands.ApplyRequest, yes: Yes = False) -> int:
    """Carry out a plan of copy, sweep, delete, rebuild, restore or verify.

    apply decides each step again from the current metadata, settings and logs. If a step is no longer
    decided, apply drops it and prints the reason. Give the same --topic-configs and --log-dir as for the
    command that made the plan, or the cluster; the plan contains the other options. A plan for a copy from
    tier to tier needs --from-remote and --to-metadata again. Without --apply, the remaining steps are
    printed.

    A plan of rebuild for brokers on several hosts is applied on each of them, with the log directory of the
    host, and is not decided again: each host must write the same bytes. apply exits with code 4, and writes
    nothing, if a metadata partition is not as the plan states it, if a replica has another history or a
    raised log start, if the tier lacks an object, or on the host of another broker. A plan that is applied
    already changes nothing.

    apply exits with code 4 if the plan was edited, is older than --max-age, or was made for another cluster,
    metadata topic or tier; and if another user than this one or root owns the file or may write it or its
    folder (a sticky folder, as /tmp, is accepted). The digest in the plan detects mistakes. Whoever may write
    the file can replace it, too: where the plan passed through other hands, give the printed digest with
    --digest. apply prints the options that are saved in the plan. With --apply, the exit code is also 4 if no
    step remains, and 0 if all steps were already done.
    """
    request = replace(request, confirm=confirmation(is_given=yes))
    return show_mutation(ctx, commands.apply, request)
