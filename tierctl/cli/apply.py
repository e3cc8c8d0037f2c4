"""`tierctl apply` PLAN: carries out a plan that was saved."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.display import show_mutation
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
from tierctl.report.console import Console

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="What --plan-out wrote.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add `apply`."""
    app.command("apply")(apply_plan)


@with_options(
    ...,
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    own.changing,
    options.engine,
)
def apply_plan(
    ctx: typer.Context,
    plan: PlanFile,
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
) -> int:
    """Carry out a plan of copy, sweep or delete.

    Every step is held against the metadata, and against the cluster or --log-dir, as they are now; what
    changed since is left out. Without --apply what is left of the plan is printed. A plan of a copy from
    tier to tier needs --from-remote and --to-metadata again.
    """
    return show_mutation(ctx, commands.apply(request_of(commands.ApplyRequest, ctx), Console()))
