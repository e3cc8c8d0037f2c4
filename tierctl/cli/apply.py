"""`tierctl apply` PLAN: carries out a plan that was saved."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.app import Command, new_app
from tierctl.cli.confirm import confirmation
from tierctl.cli.display import console_of, show_mutation
from tierctl.cli.options import request_of, with_options
from tierctl.cli.output_options import rows
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.model.times import DURATION_FORMS, parse_duration_ms

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="What --plan-out wrote.", show_default=False)]

MaxAge = Annotated[
    int | None,
    typer.Option(
        "--max-age",
        metavar="DURATION",
        parser=parse_duration_ms,
        help=f"Refuse a plan that is older than this: {DURATION_FORMS}. Default: 24h.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]


Digest = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="SHA256",
        help="Refuse a plan with another digest than this one, which --plan-out printed.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]


app = new_app()


@app.command("apply", cls=Command)
@with_options(
    ...,
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    rows,
    own.changing,
    options.engine,
    options.throttles,
)
def apply_plan(
    ctx: typer.Context,
    plan: PlanFile,
    topic_configs: options.TopicConfigs = None,
    digest: Digest = None,
    max_age_ms: MaxAge = None,
    from_remote: own.FromRemote = None,
    from_layout: own.FromLayout = None,
    to_metadata: own.ToMetadata = None,
    to_command_config: own.ToCommandConfig = None,
    all_log_dirs: own.AllLogDirs = False,
    i_know_it_is_deleted: own.IKnowItIsDeleted = None,
    kafka_version: options.KafkaVersionOption = None,
    max_deletes: own.MaxDeletes = None,
    max_fraction: own.MaxFraction = None,
    custom_metadata_max_bytes: own.CustomMetadataMaxBytes = None,
    yes: own.Yes = False,
) -> int:
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
    request = request_of(commands.ApplyRequest, ctx, confirm=confirmation(is_given=yes))
    return show_mutation(ctx, lambda: commands.apply(request, console_of(ctx)))
