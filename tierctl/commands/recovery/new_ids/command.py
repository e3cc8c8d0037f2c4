"""`restore new-ids`: give topics of an existing cluster the records of a lost one, under their new ids."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tierctl.apply.log_folder import former_folder, remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run import Acts
from tierctl.apply.to_node import NewLogs, ObjectCopies, restore_acts
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.metadata_folder import folder_of, folder_settings, is_of_a_broker
from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import DECIDE, TYPED_ONLY, RestoreAfterHole
from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, UsageError
from tierctl.files import read_regular
from tierctl.locallog import ensure_stopped
from tierctl.locallog.folders import list_segments, read_if_exists
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import ListedSet, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.progress import Progress
from tierctl.model.settings import topic
from tierctl.plan.copy import require_enabled
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.rebuild.partition_choice import PartitionDecision, PartitionInputs, decide_partition
from tierctl.plan.restore import NEW_IDS, NewIdPlan, NewIdSource, Target, plan_new_ids
from tierctl.plan.steps import Plan
from tierctl.storage.object_sets import by_partition
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    read_leader_epoch_checkpoint,
    read_partition_metadata,
)

T = TypeVar("T")
_SMALL_BYTES = 1 << 20


@dataclass(kw_only=True)
class SourceFinder:
    """Find the selected partitions; if several lost topics have the same name, `from_ids` says which one."""

    run: Mutation
    log_dirs: Sequence[Path]
    from_ids: Sequence[Uuid]
    _targets: dict[TopicPartition, list[Target]] = field(default_factory=dict, init=False)

    def find(self) -> list[NewIdSource]:
        """Return the selected partitions with objects under another topic id than the new topic's.

        Raise NotFoundError if there is no such partition, SafetyRefusal if the tier has several topics of one
        name and `from_ids` names none of them, and the errors of the tier.
        """
        self.run.metadata.refresh()
        tier = TierSets.to_change(self.run)
        listed = tier.listed()
        self.run.resolve_selection({each.partition for each in listed})
        chosen = list(self._chosen(listed))
        if not chosen:
            raise NotFoundError("the tier has no object of the selected topics under another topic id")
        sets = tier.derived(chosen)
        decided: list[tuple[PartitionInputs, PartitionDecision]] = []
        for partition, own in by_partition(sets).items():
            inputs = PartitionInputs(partition=partition, sets=own)
            decided.append((inputs, decide_partition(inputs)))
        last = [decision.choice.chain[-1] for _, decision in decided if decision.choice.chain]
        snapshots = tier.producer_snapshots(last)
        return [
            self._source(inputs, decision, snapshots.get(inputs.partition)) for inputs, decision in decided
        ]

    def _source(
        self, inputs: PartitionInputs, decision: PartitionDecision, snapshot: bytes | None
    ) -> NewIdSource:
        targets = self._targets_of(inputs.partition.topic_partition)
        target = targets[0].partition if targets else None
        chain = decision.choice.chain if target is not None else ()
        part = None if target is None else self.run.metadata.state.partition(target)
        segments = () if part is None else part.cache.list_remote_log_segments()
        return NewIdSource(
            inputs=inputs,
            decision=decision,
            renamed=[self.run.remote.renamed(segment, target) for segment in chain] if target else [],
            targets=targets,
            known={segment.segment_id: segment.state for segment in segments},
            snapshot=snapshot,
        )

    def _chosen(self, listed: Sequence[ListedSet]) -> Iterator[ListedSet]:
        """Yield the sets of objects to restore."""
        # The selected ids are those of the new topics, which the steps of a saved plan name.
        asked = self.run.resources.selection_request
        ids: dict[str, Uuid] = {}
        for each in listed:
            partition = each.partition
            new = {target.partition.topic_id for target in self._targets_of(partition.topic_partition)}
            if (
                not asked.may_select(partition.topic_partition)
                or partition.topic in INTERNAL_TOPICS
                or partition.topic_id in new
                or (self.from_ids and partition.topic_id not in self.from_ids)
            ):
                continue
            if ids.setdefault(partition.topic, partition.topic_id) != partition.topic_id:
                raise SafetyRefusal(
                    f"the tier has objects of several topics named {partition.topic}: ids "
                    f"{ids[partition.topic]} and {partition.topic_id}",
                    hint="name the one to restore with --from-id",
                )
            yield each

    def _targets_of(self, partition: TopicPartition) -> list[Target]:
        """Return the folders of the new topic's partition in the log directories."""
        if partition not in self._targets:
            folders = ((each, former_folder(each, str(partition))) for each in self.log_dirs)
            found = [_target(partition, log_dir, folder) for log_dir, folder in folders if folder.is_dir()]
            self._targets[partition] = [each for each in found if each is not None]
        return self._targets[partition]


def _target(partition: TopicPartition, log_dir: Path, folder: Path) -> Target | None:
    """Return the folder as a target; None without a topic id. Raise CorruptInputError for a damaged file."""
    topic_id = _read(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    if topic_id is None:
        return None
    segments = [(each.base_offset, each.log.stat().st_size) for each in list_segments(folder)]
    # Only an empty log, whose files are small, can be replaced: larger files are not read.
    is_small = sum(size for _, size in segments) <= _SMALL_BYTES
    files = {path.name: read_regular(path) for path in sorted(folder.iterdir())} if is_small else {}
    return Target(
        partition=TopicIdPartition(topic_id, partition.topic, partition.partition),
        log_dir=log_dir,
        files=files,
        segments=segments,
        leader_epochs=_read(folder / LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint) or (),
    )


def _read(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return the decoded file, None if it is missing; raise CorruptInputError, with the path, if damaged."""
    data = read_if_exists(path)
    if data is None:
        return None
    try:
        return decode(data)
    except CorruptInputError as e:
        raise e.within(str(path)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreNewIdsRequest(MutationRequest):
    """A request to restore lost topics into topics of the same names that were created again with new ids.

    `log_dir` names the log directories of the stopped brokers of these topics. `metadata` names the log
    directory that has the metadata topic.
    """

    from_id: Annotated[
        Sequence[str],
        typer.Option(
            "--from-id",
            metavar="ID",
            help="The id of the lost topic, if the tier has objects of several topics with "
            "its name. Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    assume_enabled: Annotated[
        bool,
        typer.Option(
            "--assume-enabled",
            help="Assume remote.storage.enable=true for the new topics if there is no --topic-configs.",
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


def restore_new_ids(request: RestoreNewIdsRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of objects, the empty logs and the metadata events; with `apply`, carry the plan out.

    The store copies the objects of the lost topics; the originals are not changed. Raise SafetyRefusal if a
    broker runs on a log directory, a topic is not tiered, a folder has records or too low a leader epoch, or
    offsets are missing; NotFoundError for a topic without objects; and the errors of the tier and the
    metadata.
    """
    return NewIds.of(request, progress)


class NewIds(Change[RestoreNewIdsRequest]):
    """One run of the command that restores lost topics under new ids."""

    command = NEW_IDS
    request_type = RestoreNewIdsRequest
    saved = ("from_id", "assume_enabled", "after_hole")
    writes_logs = True

    @classmethod
    def folder(cls, request: RestoreNewIdsRequest, resources: Resources) -> FolderSettings | None:
        """Implement `Change.folder`."""
        return folder_settings(request, resources)

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        self._configs = self.run.resources.topic_configs()
        finder = SourceFinder(
            run=self.run,
            log_dirs=[Path(each) for each in self.request.log_dir],
            from_ids=self.request.from_ids(),
        )
        self._sources = finder.find()
        self.run.inspect_tier()
        read = self.run.metadata.state.read
        self._found = plan_new_ids(self._sources, read=read, after_hole=self.request.after_hole)
        return self._found.plan

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        _check(self.request, plan, self._found, self._configs)

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: the locks of the log directories keep brokers out."""

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        segments = {
            (source.targets[0].partition, segment.segment_id): segment
            for source in self._sources
            if source.targets
            for segment in source.decision.choice.chain
        }
        return restore_acts(NewLogs(logs=self._found.logs), ObjectCopies(segments=segments))

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Implement `Change.conclude`."""
        _conclude(self.run, self._found, outcomes)


def _check(
    request: RestoreNewIdsRequest, plan: Plan, found: NewIdPlan, configs: Mapping[str, TopicConfig]
) -> None:
    """Raise SafetyRefusal if the plan may not be applied."""
    if found.refused:
        hint = "leave these partitions out with --topic and --partition, or do what the reason says"
        raise refusal_of(sorted(found.refused.items()), hint)
    for folder in request.log_dir:
        ensure_stopped(Path(folder))
    names = {step.topic for step in plan.steps}
    assumed = names if request.assume_enabled else ()
    require_enabled(names, configs, named=names, assumed=assumed)
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
        "now start the brokers, and verify with tierctl restore check, naming the new ids with --topic-id. "
        f"Timestamps are kept: if the records are older than {topic.RETENTION_MS.name} of the new topic, set "
        "that to -1 first. Add replicas by reassignment. The objects of the lost topic stay until you delete "
        "them"
    )
