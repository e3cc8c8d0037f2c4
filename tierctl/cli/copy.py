"""`tierctl copy`: rolled segments from brokers' log directories to the tier."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from tierctl.cli import copy_source as tier
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.mutation import Mutation, mutation
from tierctl.cli.taking import takes
from tierctl.errors import UsageError
from tierctl.model import LocalLog, RemoteLogSegmentState, TopicIdPartition
from tierctl.plan.plan import Plan, Skip

if TYPE_CHECKING:
    from tierctl.state.tier import TierState


def register(app: typer.Typer) -> None:
    """Adds `copy`."""
    app.command("copy")(copy)


@takes(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    own.changing,
    options.engine,
)
def copy(
    ctx: typer.Context,
    from_remote: tier.FromRemote = None,
    from_layout: tier.FromLayout = None,
    to_metadata: tier.ToMetadata = None,
    to_command_config: tier.ToCommandConfig = None,
    topic_configs: options.TopicConfigs = None,
    now: options.Now = None,
    clean_dangling: own.CleanDangling = False,
    create_metadata_topic: own.CreateMetadataTopic = False,
    custom_metadata_max_bytes: own.CustomMetadataMaxBytes = None,
) -> int:
    """Copy rolled segments below the last stable offset to the tier, as a broker would.

    A second run copies nothing; a run that was killed is made good by the next. Events of tierctl carry
    broker id -1, which is no broker's.

    With --from-remote segments come from another tier: every finished one of the current lineage, contiguous
    from its start, under new ids and into --to-metadata. Each is fetched whole to a folder for temporary
    files (TMPDIR; at most --threads at a time) and checked before it is stored.

    With --engine spark executors read, check and store segments: folders named here, and files of private
    keys, have to be the same ones there. Credentials are those of their own environment.
    """
    tier.require_one_source(ctx)
    if from_remote is not None:
        return tier.copy_from_tier(ctx, clean_dangling=clean_dangling)
    if not ctx.params["log_dir"]:
        raise UsageError("--log-dir is missing", hint="name a broker's log directory (log.dirs)")
    with mutation(ctx, may_be_new=True) as run:
        state = run.refresh()
        logs = run.read_logs()
        plan = run.narrowed(_plan(run, state, logs, clean_dangling=clean_dangling))
        partitions = _led(run, logs)
        return run.conclude(plan, run.copy_options, check=lambda: run.check_plan_fence(plan, partitions))


def _led(run: Mutation, logs: Sequence[LocalLog]) -> set[TopicIdPartition]:
    """The selected partitions that brokers might copy themselves."""
    from tierctl.plan.preconditions import INTERNAL_TOPICS

    partitions = {log.topic_id_partition for log in logs}
    return {p for p in partitions if p in run.context.selection and p.topic not in INTERNAL_TOPICS}


def _plan(run: Mutation, state: "TierState", logs: Sequence[LocalLog], *, clean_dangling: bool) -> Plan:
    from tierctl.plan.copy import plan_copy
    from tierctl.plan.dangling_copies import DANGLING_AGE_MS_MIN

    configs = run.context.topic_configs()
    refused: tuple[Skip, ...] = ()
    alive: tuple[int, ...] = ()
    if run.live is not None:
        leaders = run.live.leaders(sorted(_led(run, logs)))
        configs |= leaders.configs
        logs, refused = leaders.sources(logs)
        alive = leaders.broker_ids
    plan = plan_copy(
        state,
        logs,
        configs,
        clean_dangling_after_ms=DANGLING_AGE_MS_MIN if clean_dangling else None,
        now_ms=run.context.now_ms,
        live_broker_ids=alive,
    )
    unfinished = () if clean_dangling else tuple(_unfinished(run, state))
    return replace(plan, skipped=(*plan.skipped, *refused, *unfinished))


def _unfinished(run: Mutation, state: "TierState") -> Iterator[Skip]:
    """Copies that were begun and have no end: those of a killed run, or of a broker at work."""
    begun = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    for part in state:
        if part.topic_id_partition not in run.context.selection:
            continue
        for segment in part.cache.list_remote_log_segments():
            if segment.state is begun:
                reason = (
                    f"its copy was begun by broker {segment.broker_id} at {segment.event_timestamp_ms} "
                    "and not finished; --clean-dangling deletes it 24 hours later"
                )
                yield Skip.of(part.topic_id_partition, reason, segment.segment_id)
