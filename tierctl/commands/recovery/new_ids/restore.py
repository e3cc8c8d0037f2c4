"""`restore --new-ids`: give topics of an existing cluster the records of a lost one, under their new ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.materialise.new_folder import remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.restore.node import NewLogs
from tierctl.apply.restore.objects import ObjectCopies
from tierctl.apply.run import RunOptions
from tierctl.commands.metadata_folder.count import folder_of, is_of_a_broker
from tierctl.commands.metadata_folder.settings import folder_settings
from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.recovery.new_ids.sources import SourceFinder
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.request import MutationRequest
from tierctl.commands.shared_options import DECIDE, TYPED_ONLY, RestoreAfterHole, RestoredMetadata
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.locallog import ensure_stopped
from tierctl.model import Uuid
from tierctl.model.progress import Progress
from tierctl.model.settings import topic
from tierctl.plan.copy.enabled import require_enabled
from tierctl.plan.restore.new_ids import NEW_IDS, NewIdPlan, NewIdSource, plan_new_ids
from tierctl.plan.steps import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIdsRequest(MutationRequest):
    """A request to restore lost topics into topics of the same names that were created again with new ids.

    `log_dir` names the log directories of the stopped brokers of these topics. `metadata` names the log
    directory that has the metadata topic.
    """

    metadata: RestoredMetadata = None
    from_id: Annotated[
        Sequence[str],
        typer.Option(
            "--from-id",
            metavar="ID",
            help="With --new-ids: the id of the lost topic, if the tier has objects of several topics with "
            "its name. Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    assume_enabled: Annotated[
        bool,
        typer.Option(
            "--assume-enabled",
            help="With --new-ids: assume remote.storage.enable=true for the new topics if there is no "
            "--topic-configs.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    after_hole: RestoreAfterHole = False

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if not self.topic:
            raise UsageError("--topic is missing", hint="name the topics to restore")
        if not self.log_dir:
            raise UsageError(
                "--log-dir is missing",
                hint="name the log directories of the stopped brokers of the new topics",
            )
        folder = folder_of(self.metadata)
        if folder is None or not is_of_a_broker(folder):
            raise UsageError(
                f"--metadata {self.metadata} is not a log directory of a broker",
                hint="name the directory of a stopped broker that has the metadata topic: the events are "
                "written before it starts, since a leader without them deletes what is published later",
            )
        self.from_ids()

    def from_ids(self) -> list[Uuid]:
        """Return `from_id` as ids; UsageError for a malformed one."""
        return [Uuid.parse(text) for text in self.from_id]


def restore_new_ids(request: NewIdsRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of objects, the empty logs and the metadata events; with `apply`, carry the plan out.

    The store copies the objects of the lost topics; the originals are not changed. Raise SafetyRefusal if a
    broker runs on a log directory, a topic is not tiered, a folder has records or too low a leader epoch, or
    offsets are missing; NotFoundError for a topic without objects; and the errors of the tier and the
    metadata.
    """
    return PLANNER.run(request, progress)


def _decide(run: Mutation, request: NewIdsRequest) -> Decision:
    finder = SourceFinder(
        run=run,
        log_dirs=[Path(each) for each in request.log_dir],
        from_ids=request.from_ids(),
    )
    sources = finder.find()
    run.inspect_tier()
    found = plan_new_ids(sources, read=run.metadata.state.read, after_hole=request.after_hole)
    return Decision(
        plan=found.plan,
        options=lambda: _options(sources, found),
        check=lambda plan: _check(run, request, plan, found),
        conclude=lambda outcomes: _conclude(run, found, outcomes),
    )


PLANNER = Planner(
    command=NEW_IDS,
    request=NewIdsRequest,
    decide=_decide,
    options=("from_id", "assume_enabled", "after_hole"),
    writes_logs=True,
    folder=folder_settings,
)


def _options(sources: Sequence[NewIdSource], found: NewIdPlan) -> RunOptions:
    segments = {
        (source.targets[0].partition, segment.segment_id): segment
        for source in sources
        if source.targets
        for segment in source.decision.choice.chain
    }
    return RunOptions(new_node=NewLogs(logs=found.logs), object_copies=ObjectCopies(segments=segments))


def _check(run: Mutation, request: NewIdsRequest, plan: Plan, found: NewIdPlan) -> None:
    """Raise SafetyRefusal if the plan may not be applied."""
    if found.refused:
        hint = "leave these partitions out with --topic and --partition, or do what the reason says"
        raise refusal_of(sorted(found.refused.items()), hint)
    for folder in request.log_dir:
        ensure_stopped(Path(folder))
    names = {step.topic for step in plan.steps}
    assumed = names if request.assume_enabled else ()
    require_enabled(names, run.resources.topic_configs(), named=names, assumed=assumed)
    if len(plan.steps) != len(found.plan.steps):
        raise SafetyRefusal(
            "the saved plan differs from a new one, and a partition must be restored as a whole",
            hint="make the plan again",
        )


def _conclude(run: Mutation, found: NewIdPlan, outcomes: Sequence[Outcome]) -> None:
    """Remove temporary folders of killed runs, and print the operator's next steps."""
    for log in found.logs.values():
        remove_left(log.log_dir, str(log.partition.topic_partition))
    if not outcomes or any(outcome.status is not Status.DONE for outcome in outcomes):
        return
    run.progress.say(
        "now start the brokers, and verify with tierctl restore --check, naming the new ids with --topic-id. "
        f"Timestamps are kept: if the records are older than {topic.RETENTION_MS.name} of the new topic, set "
        "that to -1 first. Add replicas by reassignment. The objects of the lost topic stay until you delete "
        "them"
    )
