"""`apply`: carry out a plan that was saved, as far as it still holds."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tierctl.apply.run import RunOptions
from tierctl.commands.deletion_evidence import deletion_evidence
from tierctl.commands.mutation import Decision, Mutation, MutationResult, mutation
from tierctl.commands.source_tier import TierToTierRequest, source_tier
from tierctl.commands.sweep import PLANNER, SweepRequest
from tierctl.errors import UsageError
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.settings import topic
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.recheck import recheck
from tierctl.plan.steps import SOURCE_SEGMENT_ID, Action, Plan, Skip, Step
from tierctl.state.tier import TierState

_COMMANDS = ("copy", "sweep", "delete")
_RETENTION = frozenset({topic.RETENTION_MS.name, topic.RETENTION_BYTES.name})
"""Breaches that follow from a topic's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest(TierToTierRequest):
    """A request to carry out the plan in a file."""

    plan: Path
    """File that `plan_out` of an earlier request named."""
    all_log_dirs: bool = False
    """`log_dir` names the log directories of all replicas: a topic without a folder there is deleted."""
    i_know_it_is_deleted: Sequence[str] = ()
    """Topic ids to mark without other evidence that they are deleted."""
    max_deletes: int | None = None
    """Segments that a run may delete; default 10,000."""
    max_fraction: float | None = None
    """Share of a partition's segments that a run may delete, if it has 20 or more; default 0.5."""
    custom_metadata_max_bytes: int | None = None
    """KIP-917's limit; a segment with more stops its partition. Default: the broker setting, else 128."""


def apply(request: ApplyRequest, progress: Progress | None = None) -> MutationResult:
    """Drop the steps of the saved plan that no longer hold, and with `apply` carry out the others.

    Each step is compared with the present metadata, and with the cluster or the log directories. Raises
    UsageError for a file that is no plan, and the errors of the command that made the plan.
    """
    request.validate()
    saved = _load(request.plan)
    _require_source(saved, request)
    progress = progress or SilentProgress()
    with (
        mutation(
            request.target,
            progress,
            logs_decide=saved.command == "sweep",
            may_be_new=saved.command == "copy",
        ) as run,
        ExitStack() as opened,
    ):
        source = opened.enter_context(source_tier(request, progress)) if request.from_remote else None
        run.from_remote = None if source is None else source.spec
        state = run.metadata.refresh()
        run.resolve_selection(
            (part.topic_id_partition for part in state), (step.topic_id_partition for step in saved.steps)
        )
        run.inspect_tier(may_be_new=saved.command == "copy")
        run.histories.examine(state, run.read_logs, local_suffices=saved.command != "copy")
        plan = run.narrowed(_recheck(run, request, saved, state))

        def check(plan: Plan) -> None:
            partitions = {step.topic_id_partition for step in plan.steps}
            run.check_fence(partitions, unknown_is_safe=saved.command == "delete")
            if saved.command == "sweep":
                run.check_limits(
                    plan, state, max_deletes=request.max_deletes, max_fraction=request.max_fraction
                )

        def options() -> RunOptions:
            match saved.command:
                case "copy":
                    return run.copy_options(
                        None if source is None else source.sources,
                        custom_metadata_max_bytes=request.custom_metadata_max_bytes,
                    )
                case "sweep":
                    return run.sweep_options({})
                case _:
                    return run.removal_options()

        return run.conclude(Decision(plan=plan, options=options, check=check))


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


def _require_source(plan: Plan, request: ApplyRequest) -> None:
    """Raise UsageError if the request and the plan disagree on where segments are copied from."""
    from_tier = any(SOURCE_SEGMENT_ID in step.details for step in plan.steps)
    if from_tier and request.from_remote is None:
        raise UsageError("--from-remote is missing", hint="the plan copies from tier to tier")
    if request.from_remote is not None and (plan.command != "copy" or (plan.steps and not from_tier)):
        raise UsageError("--from-remote: the plan does not copy from tier to tier")
    if plan.command == "copy" and not request.log_dir and request.from_remote is None:
        raise UsageError("--log-dir is missing", hint="a plan of copy needs the directories it was made from")


def _recheck(run: Mutation, request: ApplyRequest, plan: Plan, state: TierState) -> Plan:
    """Return the plan without the steps that no longer hold; each of these becomes a skip with its reason."""
    topics = CurrentTopics.of(run.read_logs())
    if run.cluster is not None and plan.command != "copy":
        topics = run.cluster.current_topics({step.topic for step in plan.steps})
    expired = None
    if plan.command == "sweep" and run.cluster is not None:
        current = PLANNER.decide(run, SweepRequest()).plan
        expired = {step.segment_id for step in current.steps}
    checked = recheck(plan, state)
    skipped = [Skip.of(d.step.topic_id_partition, d.reason, d.step.segment_id) for d in checked.dropped]
    kept: list[Step] = []
    for step in checked.plan.steps:
        reason = _why_not_current(run, step, topics) if plan.command != "delete" else None
        is_retention = step.details.get("breach") in _RETENTION
        if expired is not None and is_retention and step.segment_id not in expired:
            reason = reason or "the topic's settings, as they are now, don't delete it"
        if reason:
            skipped.append(Skip.of(step.topic_id_partition, reason, step.segment_id))
        else:
            kept.append(step)
    marks = {step.topic_id: step.topic for step in kept if step.action is Action.MARK_PARTITION}
    if marks or request.i_know_it_is_deleted:
        evidence = deletion_evidence(
            run,
            marks,
            all_log_dirs=request.all_log_dirs,
            i_know_it_is_deleted=request.i_know_it_is_deleted,
        )
        evidence.require_overridden_among(marks)
        evidence.require_deleted(marks)
    return replace(checked.plan, steps=tuple(kept), skipped=(*checked.plan.skipped, *skipped))


def _why_not_current(run: Mutation, step: Step, topics: CurrentTopics) -> str | None:
    if step.topic_id_partition.topic_partition in run.unreadable:
        return "its log can't be read"
    return topics.why_not_current(step.topic_id_partition)
