"""`tierctl apply PLAN`: carries out a plan that was kept, as far as it still holds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.cli import copy_source as tier
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.mutation import Mutation, clock_ms, mutation
from tierctl.cli.sweep import RETENTION, still_expired
from tierctl.cli.taking import takes
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.plan.plan import Action, Plan, Skip, Step

if TYPE_CHECKING:
    from tierctl.apply.run import RunOptions
    from tierctl.plan.preconditions import CurrentTopics
    from tierctl.state.tier import TierState

_COMMANDS = ("copy", "sweep", "delete")

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="What --plan-out wrote.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds `apply`."""
    app.command("apply")(apply_plan)


@takes(
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
    from_remote: tier.FromRemote = None,
    from_layout: tier.FromLayout = None,
    to_metadata: tier.ToMetadata = None,
    to_command_config: tier.ToCommandConfig = None,
    force: own.Force = False,
    max_deletes: own.MaxDeletes = None,
    max_fraction: own.MaxFraction = None,
    custom_metadata_max_bytes: own.CustomMetadataMaxBytes = None,
) -> int:
    """Carry out a plan of copy, sweep or delete.

    Every step is held against the metadata, and against the cluster or --log-dir, as they are now; what
    changed since is left out. Without --apply what is left of the plan is printed. A plan of a copy from
    tier to tier needs --from-remote and --to-metadata again.
    """
    from tierctl.plan.sweep import check_not_ahead, decided_as_of_ms

    tier.require_one_source(ctx)
    kept = _load(plan)
    _require_source(kept, from_remote)
    with (
        mutation(ctx, fence_logs=kept.command != "delete", may_be_new=kept.command == "copy") as run,
        tier.sources_of(ctx) as source,
    ):
        run.from_remote = None if source is None else source.spec
        state = run.refresh()
        checked = run.narrowed(_still_holds(run, kept, state))
        partitions = {step.topic_id_partition for step in checked.steps}

        def check() -> None:
            run.check_fence(partitions, unknown_is_safe=kept.command == "delete")
            if kept.command == "sweep":
                run.check_limits(checked, state)
                check_not_ahead(state, decided_as_of_ms(checked), clock_ms=clock_ms())

        def needed() -> "RunOptions":
            match kept.command:
                case "copy":
                    return run.copy_options(None if source is None else source.sources)
                case "sweep":
                    return run.sweep_options({})
                case _:
                    return run.removal_options()

        return run.conclude(checked, needed, check=check)


def _load(file: Path) -> Plan:
    try:
        plan = Plan.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{file}: {e}") from e
    if plan.command not in _COMMANDS:
        raise UsageError(
            f"{file}: a plan of {plan.command!r}", hint=f"expected one of {', '.join(_COMMANDS)}"
        )
    return plan


def _require_source(plan: Plan, from_remote: str | None) -> None:
    from tierctl.plan.steps import SOURCE_SEGMENT_ID

    from_tier = any(SOURCE_SEGMENT_ID in step.details for step in plan.steps)
    if from_tier and from_remote is None:
        raise UsageError("--from-remote is missing", hint="the plan copies from tier to tier")
    if from_remote is not None and (plan.command != "copy" or (plan.steps and not from_tier)):
        raise UsageError("--from-remote: the plan does not copy from tier to tier")


def _still_holds(run: Mutation, plan: Plan, state: "TierState") -> Plan:
    from tierctl.plan.preconditions import CurrentTopics
    from tierctl.plan.recheck import recheck

    if plan.command == "copy" and not run.context.log_dir and run.params["from_remote"] is None:
        raise UsageError("--log-dir is missing", hint="a plan of copy needs the directories it was made from")
    topics = CurrentTopics.of(run.read_logs())
    if run.live is not None and plan.command != "copy":
        topics = run.live.current_topics({step.topic for step in plan.steps})
    fresh = still_expired(run, state) if plan.command == "sweep" else None
    checked = recheck(plan, state)
    skipped = [Skip.of(d.step.topic_id_partition, d.reason, d.step.segment_id) for d in checked.dropped]
    kept: list[Step] = []
    for step in checked.plan.steps:
        reason = _why_not_current(run, step, topics) if plan.command != "delete" else None
        if fresh is not None and step.details.get("breach") in RETENTION and step.segment_id not in fresh:
            reason = reason or "the topic's settings, as they are now, don't delete it"
        if reason:
            skipped.append(Skip.of(step.topic_id_partition, reason, step.segment_id))
        else:
            kept.append(step)
    _refuse_current(run, kept, topics)
    return replace(checked.plan, steps=tuple(kept), skipped=(*checked.plan.skipped, *skipped))


def _why_not_current(run: Mutation, step: Step, topics: "CurrentTopics") -> str | None:
    if step.topic_id_partition.topic_partition in run.unreadable:
        return "its log can't be read"
    return topics.why_not_current(step.topic_id_partition)


def _refuse_current(run: Mutation, steps: Sequence[Step], topics: "CurrentTopics") -> None:
    """A topic may have come back, or never have gone, since somebody wanted it marked."""
    current = {topic_id for ids in topics.ids.values() for topic_id in ids}
    marks = {step.topic_id for step in steps if step.action is Action.MARK_PARTITION}
    if marks & current and not run.params["force"]:
        raise SafetyRefusal(
            f"there still is a topic with id {', '.join(sorted(marks & current))}",
            hint="delete the topic first; --force marks it all the same",
        )
