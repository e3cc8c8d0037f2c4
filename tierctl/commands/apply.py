"""`apply`: carry out a plan that was saved, as far as the same command decides it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl.apply.run import Acts
from tierctl.commands.change import Change, MutationResult, read_plan
from tierctl.commands.copy.command import TierToTierRequest
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import (
    DECIDE,
    TYPED_ONLY,
    AllLogDirs,
    CustomMetadataMaxBytes,
    IKnowItIsDeleted,
    MaxDeletes,
    MaxFraction,
    MutationRequest,
)
from tierctl.commands.restore.hosts import RebuildOnHost, require_host
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.locallog import list_partitions
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import SelectionRequest, TopicPartition
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import admits_topic, counted, names_text
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.plan.saved import (
    MAX_AGE_MS,
    SavedPlan,
    check_place,
    check_read,
    check_times,
    check_topic_ids,
    still_decided,
)
from tierctl.plan.steps import MATERIALISE, NEW_IDS, REBUILD, RESTORE, VERIFY, Plan
from tierctl.state.tier_state import TierState

_CHANGES = {
    "copy": "tierctl.commands.copy.command:Copy",
    "sweep": "tierctl.commands.sweep:Sweep",
    "delete": "tierctl.commands.delete:Delete",
    REBUILD: "tierctl.commands.restore.to_metadata:Rebuild",
    MATERIALISE: "tierctl.commands.restore.to_log:Materialise",
    RESTORE: "tierctl.commands.restore.to_node:Restore",
    NEW_IDS: "tierctl.commands.restore.to_ids:NewIds",
    VERIFY: "tierctl.commands.verify.repairs:Repair",
}
"""The class of every command whose plans can be saved; it is imported when a plan needs it."""

_LOG_STARTS = "log_start_offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest(TierToTierRequest):
    """A request to carry out the plan in a file."""

    plan: Annotated[Path, typer.Argument(metavar="PLAN", show_default=False, help="What --plan-out wrote.")]
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256",
            help="Refuse a plan with another digest than this one, which --plan-out printed.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None
    max_age_ms: Annotated[
        int,
        typer.Option(
            "--max-age",
            metavar="DURATION",
            show_default="24h",
            parser=parse_duration_ms,
            help=f"Refuse a plan that is older than this: {DURATION_FORMS}.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = MAX_AGE_MS
    all_log_dirs: AllLogDirs = False
    i_know_it_is_deleted: IKnowItIsDeleted = ()
    max_deletes: MaxDeletes = None
    max_fraction: MaxFraction = None
    custom_metadata_max_bytes: CustomMetadataMaxBytes = None


def apply(request: ApplyRequest, progress: Progress | None = None) -> MutationResult:
    """Drop the steps of the saved plan that are no longer valid, and with `apply` carry out the others.

    The command that made the plan decides again from the current state; a step that it no longer decides is
    dropped with the reason. Only a plan for several hosts is carried out as it is. Raise
    SafetyRefusal for a plan that was edited, is too old, or was made for another cluster or tier; UsageError
    for a file that is no plan, and if the request lacks settings or logs from which the plan was decided; and
    the errors of the command. With `apply`, the exit code is REFUSED if no step is left, unless all steps
    were already done.
    """
    saved = read_plan(request.plan, digest=request.digest)
    _print_options(saved, progress or SilentProgress())
    change = _change_of(saved)
    change.require_options(saved.options)
    check_times(saved.identity, clock_ms=request.clock_ms(), max_age_ms=request.max_age_ms)
    _require_inputs(saved, request)
    _require_taken(change, request)
    if request.i_know_it_is_deleted and not saved.options.get("mark"):
        raise UsageError("--i-know-it-is-deleted needs a plan of delete --mark")
    require_host(saved, request)
    selection = _selection(saved, request)
    again = change.request_again(request, _options(saved, request, selection["topic"]), selection)
    if saved.hosts is not None:
        count = again.metadata_partitions or len(saved.hosts.bases)
        again = replace(again, hosts=saved.hosts, metadata_partitions=count)
    had_topic = saved.identity.place.cluster.metadata_topic_id is not None
    with change.opened(again, progress, must_exist=had_topic) as opened:
        return _apply(opened, saved)


def _apply(change: Change[Any], saved: SavedPlan) -> MutationResult:
    run, place = change.run, saved.identity.place
    check_place(place, run.place)
    state = run.metadata.refresh()
    if saved.hosts is not None:
        run.resolve_selection(step.topic_id_partition for step in saved.plan.steps)
        on_host = RebuildOnHost(run, saved, saved.hosts)
        return on_host.finish(on_host.decide(), saved.options)
    check_read(saved.plan.read, state.read)
    # The target tier may have none of the topics: take those of the source from the selection. The topics of
    # a rebuild come from the tier, too.
    in_metadata = saved.identity.source is None and change.changes_tier
    if in_metadata and place.cluster.is_same_as(run.place.cluster) is None:
        check_topic_ids(saved.identity, _known_topic_ids(run, state))
    if not saved.plan.steps and not saved.options.get(_LOG_STARTS):
        run.resolve_selection(part.topic_id_partition for part in state)
        run.inspect_tier(may_be_new=change.may_be_new)
        nothing = _WithoutSteps(change, saved)
        return nothing.finish(nothing.decide(), saved.options)
    decided = change.decide()
    if saved.identity.source is not None and run.source is not None:
        check_place(saved.identity.source, run.source, name="source.")
    selection = run.resources.selection
    steps = tuple(step for step in saved.plan.steps if step.topic_id_partition in selection)
    selected = replace(saved, plan=replace(saved.plan, steps=steps))
    left = still_decided(selected, decided, run.metadata.state)
    change.is_void = left.is_void
    result = change.finish(run.narrowed(left.plan), saved.options)
    if not (left.is_void and run.request.apply):
        return result
    advice = f"plan again with tierctl {saved.plan.command}"
    run.progress.warn(f"no step of the plan is still valid, so none was carried out: {advice}")
    return result if result.exit_code else replace(result, exit_code=ExitCode.REFUSED)


class _WithoutSteps(Change[MutationRequest]):
    """One run of a saved plan that has no steps: nothing is decided again."""

    def __init__(self, change: Change[Any], saved: SavedPlan) -> None:
        super().__init__(change.run, change.request)
        self.command, self.changes_tier = change.command, change.changes_tier
        self._change, self._plan = change, saved.plan

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        return self._plan

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""

    def acts(self) -> Acts:
        """Implement `Change.acts`: a rebuild also completes what an interrupted run did not write."""
        return self._change.acts() if self.command == REBUILD else {}


def _print_options(saved: SavedPlan, progress: Progress) -> None:
    """Print the options that decide the plan, which the command line of `apply` does not show."""
    stated = {name.replace("_", "-"): value for name, value in saved.options.items() if value}
    texts = (f"{name}={', '.join(v) if isinstance(v, list) else v}" for name, v in sorted(stated.items()))
    if stated:
        progress.note(f"the plan was made by {saved.plan.command} with {'; '.join(texts)}")


def _change_of(saved: SavedPlan) -> type[Change[Any]]:
    named = _CHANGES.get(saved.plan.command)
    if named is None:
        raise UsageError(
            f"apply can't carry out a plan of {saved.plan.command!r}",
            hint=f"expected one of {', '.join(sorted(_CHANGES))}",
        )
    module, _, name = named.partition(":")
    found: type[Change[Any]] = getattr(import_module(module), name)
    return found


def _selection(saved: SavedPlan, request: ApplyRequest) -> dict[str, Sequence[str]]:
    """Return the topics and topic ids that the plan changes and the request selects.

    Raises NotFoundError for a topic or a topic id that the plan does not change. If it changes none, the
    selection is that of the request, or of the command that made the plan.
    """
    planned = saved.identity.topic_ids
    if METADATA_TOPIC in planned.values():
        if not request.topic and not request.topic_id:
            # A plan that changes committed offsets, which belong to no topic, was made for all topics.
            return {"topic": (), "topic_id": ()}
        planned = {topic_id: topic for topic_id, topic in planned.items() if topic != METADATA_TOPIC}
    if not planned:
        return {"topic": request.topic or saved.options.get("topic", ()), "topic_id": request.topic_id}
    names = set(planned.values())
    for unknown, known, kind in (
        (SelectionRequest.of(topics=request.topic).unmatched_topics(names), names, "topic"),
        ([each for each in request.topic_id if each not in planned], planned.keys(), "topic id"),
    ):
        for value in unknown:
            raise NotFoundError(
                f"the plan has no step for {kind} {value}", hint=f"it has steps for {names_text(known)}"
            )
    ids = [
        topic_id
        for topic_id, topic in planned.items()
        if admits_topic(request.topic, topic) and topic_id in (request.topic_id or (topic_id,))
    ]
    if not ids:
        raise NotFoundError("no step of the plan matches both --topic and --topic-id")
    return {"topic": sorted({planned[topic_id] for topic_id in ids}), "topic_id": ids}


def _options(saved: SavedPlan, request: ApplyRequest, topics: Sequence[str]) -> Mapping[str, Any]:
    """Return the options saved with the plan, without the log starts of partitions that are not selected."""
    asked = saved.options.get(_LOG_STARTS)
    if not asked:
        return saved.options
    selected = SelectionRequest.of(topics=topics, partitions=request.partition)
    kept = [text for text in asked if selected.may_select(TopicPartition.parse(text.partition("=")[0]))]
    return {**saved.options, _LOG_STARTS: kept}


def _require_inputs(saved: SavedPlan, request: ApplyRequest) -> None:
    """Raise UsageError if the request lacks a source from which the plan was decided.

    Without the settings and logs that it was decided from, the plan cannot be decided again.
    """
    copies_from_tier = saved.identity.source is not None
    if copies_from_tier != (request.from_remote is not None):
        raise UsageError(
            "--from-remote is missing" if copies_from_tier else "--from-remote can't be used with this plan",
            hint="only a plan for a copy from tier to tier needs --from-remote and --to-metadata",
        )
    if request.has_cluster:
        return
    if saved.settings and request.topic_configs is None:
        raise UsageError(
            f"--topic-configs is missing: the plan was decided from settings of {', '.join(saved.settings)}",
            hint="give the present settings, or name the cluster with --bootstrap-server",
        )
    if saved.log_starts and not request.log_dir:
        raise UsageError(
            "--log-dir is missing: the plan was decided from the logs of "
            f"{counted(len(saved.log_starts), 'partition')}",
            hint="name the log directories again, or the cluster with --bootstrap-server",
        )


def _require_taken(change: type[Change[Any]], request: ApplyRequest) -> None:
    """Raise UsageError for an option of some plans that the command of this plan does not have.

    A limit that the run would not keep to, as --max-deletes for a plan of delete, is one of them.
    """
    shared = {each.name for each in fields(MutationRequest)} | {"plan", "digest", "max_age_ms"}
    taken = {each.name for each in fields(change.request_type)}
    for each in fields(request):
        if each.name not in shared | taken and getattr(request, each.name) != each.default:
            option = f"--{each.name.replace('_', '-')}"
            raise UsageError(
                f"{option} can't be used with a plan of {change.command}",
                hint=f"leave {option} out: it does not change what this plan does",
            )


def _known_topic_ids(run: Mutation, state: TierState) -> set[str]:
    in_logs = list_partitions(run.request.log_dir)
    return {part.topic_id_partition.topic_id for part in state} | {p.topic_id for p in in_logs}
