"""`sweep`: its request, the one protocol of commands that change something, and its act."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from tierctl.apply.acts import DeleteSegments, RaiseLogStarts, raise_log_starts
from tierctl.apply.run import Acts, Run
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import MutationRequest
from tierctl.commands.setting_changes import OF_TIER, Changes
from tierctl.commands.shared_options import DECIDE, TYPED_ONLY, MaxDeletes, MaxFraction
from tierctl.commands.sweep.decide import changed_configs, note_unstated_age, retention_inputs, selected_parts
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.metadata.parallel_fold import Kept
from tierctl.model import TopicIdPartition
from tierctl.model.progress import Progress
from tierctl.model.selection import names_text
from tierctl.plan.safety import check_limits
from tierctl.plan.steps import Action, Plan, Step

_ASSUMED_HINT = "change the settings of the topics first, and leave --assume out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(MutationRequest):
    """A request to delete the segments that a broker's expiration task would delete."""

    log_start_offset: Annotated[
        Sequence[str],
        typer.Option(
            metavar="TOPIC-PARTITION=OFFSET",
            help="Raise the log start offset of a partition to OFFSET, as DeleteRecords does. Repeatable.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = ()
    off_lineage: Annotated[
        bool,
        typer.Option(
            "--off-lineage",
            help="Also delete segments that diverged from the current lineage, once the log start offset has "
            "passed their leader epochs.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    unreferenced_epochs: Annotated[
        bool,
        typer.Option(
            "--unreferenced-epochs",
            help="Also delete segments above the log start offset whose leader epochs are all older than the "
            "earliest epoch of the log. Such segments below the log start offset are deleted without this "
            "option.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    max_deletes: MaxDeletes = None
    max_fraction: MaxFraction = None
    assume: Annotated[
        Sequence[str],
        typer.Option(
            metavar="TOPIC.SETTING=VALUE",
            help="Plan as if a topic, or each topic that matches a glob, had this retention.ms or "
            "retention.bytes. Times such as 1h, sizes such as 50G, or numbers as in Kafka. Repeatable. Such "
            "a plan can't be saved, and --apply refuses it.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = ()

    @property
    def assumed(self) -> Changes:
        """The changes of settings that `assume` states; raises as `Changes.parse`."""
        return Changes.parse(self.assume, "--assume", OF_TIER)

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if self.assumed.changes and (self.apply or self.plan_out is not None):
            raise UsageError(
                f"--assume only shows a plan: {'--apply' if self.apply else '--plan-out'} excludes it",
                hint=_ASSUMED_HINT,
            )
        if self.metadata is not None and not (self.has_cluster or self.log_dir or self.remote):
            raise UsageError(
                "--remote and --log-dir are missing: the leader epochs of the logs are unknown",
                hint="name the tier, the log directories, or the cluster with --bootstrap-server",
            )


def sweep(request: SweepRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the deletes of every selected partition, and with `apply` carry them out.

    Each partition's plan has the oldest segments of its lineage, up to the first segment that no rule
    deletes; deletes that were begun are resumed. With `assume` the plan is that of other settings, and is
    never carried out. Source: Kafka's RLMExpirationTask. Raises LimitExceeded and SafetyRefusal before the
    first delete, LockedError, and the errors of the tier and the metadata.
    """
    return Sweep.of(request, progress)


def _log_starts_of(run: Mutation) -> RaiseLogStarts | None:
    """Return what stores raised log starts: the cluster and the state directory; None if there is neither."""
    if run.cluster is None and run.journal is None:
        return None

    def raise_all(starts: Mapping[TopicIdPartition, int]) -> None:
        # Raise the log start on the cluster before the journal, so that the journal is never ahead of what
        # consumers see.
        if run.cluster is not None:
            run.cluster.raise_log_starts(starts)
        if run.journal is not None:
            run.journal.raise_log_starts(starts)

    return raise_all


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSegments:
    """The act of DELETE_SEGMENT of a sweep; `log_starts` are raised in addition to those in the steps."""

    log_starts: Mapping[TopicIdPartition, int]
    raise_log_starts: RaiseLogStarts | None

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Implement `Act`."""
        if run.may_begin():
            raise_log_starts(self.log_starts, self.raise_log_starts)
        DeleteSegments(raise_log_starts=self.raise_log_starts)(run, steps)


class Sweep(Change[SweepRequest]):
    """One run of `sweep`."""

    command = "sweep"
    request_type = SweepRequest
    saved = ("log_start_offset", "off_lineage", "unreferenced_epochs", "assume")
    logs_decide = True
    kept = Kept.FACTS

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        request = self.request
        assumed = request.assumed
        inputs = retention_inputs(self.run, request.log_start_offset, assumed.size_limit)
        if assumed.changes:
            inputs = replace(inputs, configs=changed_configs(self.run, inputs, assumed))
        self._inputs = inputs
        note_unstated_age(self.run, inputs)
        plan = inputs.plan(
            inputs.configs,
            off_lineage=request.off_lineage,
            unreferenced_epochs=request.unreferenced_epochs,
        )
        return self.run.narrowed(plan)

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: settings are in force, no broker does this work, and the limits hold."""
        run, request, inputs = self.run, self.request, self._inputs
        if request.assume:
            raise SafetyRefusal(
                f"settings of --assume are not in force: {names_text(request.assume)}", hint=_ASSUMED_HINT
            )
        parts = [part.topic_id_partition for part in selected_parts(run, inputs.state)]
        examined = [partition for partition in parts if inputs.topics.why_not_current(partition) is None]
        run.check_plan_fence(plan, examined, [inputs.current[named] for named in inputs.asked])
        check_limits(plan, inputs.state, max_deletes=request.max_deletes, max_fraction=request.max_fraction)

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        asked = {self._inputs.current[named]: offset for named, offset in self._inputs.asked.items()}
        keep = _log_starts_of(self.run)
        if asked and keep is None:
            self.run.progress.say(
                "the raised log start offsets are not stored: give --state-dir, or the same options in each "
                "run"
            )
        return {Action.DELETE_SEGMENT: SweepSegments(log_starts=asked, raise_log_starts=keep)}
