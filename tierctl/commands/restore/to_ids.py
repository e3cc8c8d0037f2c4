"""`restore new-ids`: give topics of an existing cluster the records of a lost one, under their new ids."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.run import Act, Acts, Run, publish_behind_logs
from tierctl.apply.run_context import (
    STOPPED,
    Outcome,
    RunContext,
    SideEffectContext,
    SideEffectResult,
    Status,
    effect,
)
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.metadata_folder import folder_of, folder_settings, is_of_a_broker
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import DECIDE, TYPED_ONLY, MutationRequest, RestoreAfterHole
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets, states_of
from tierctl.commands.restore.new_logs import (
    NewLog,
    NewLogs,
    PartitionSource,
    TargetFolder,
    partition_sources,
    require_same_steps,
    require_writable,
    restore_step,
    target_folders,
    written_dirs,
)
from tierctl.errors import NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import (
    ListedSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SelectionRequest,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.progress import Progress
from tierctl.model.selection import counted
from tierctl.model.settings import topic
from tierctl.plan.choose_sets import Choice
from tierctl.plan.copy import require_enabled
from tierctl.plan.partition_choice import segment_steps, unused_of, why_refused
from tierctl.plan.steps import NEW_IDS, Action, Plan, Skip, Step, segment_step

SOURCE_TOPIC_ID = "source_topic_id"
"""Detail: the id of the topic whose objects are copied."""
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIdSource(PartitionSource):
    """A partition of the lost topic with objects in the tier, and its folders under the id of a new topic.

    `target` is the new partition; None without a folder. `renamed` are the segments that are restored under
    the id of the new topic, and `known` the states of the new partition's segments in the metadata topic.
    """

    target: TopicIdPartition | None
    renamed: Sequence[RemoteLogSegmentMetadata]
    known: Mapping[Uuid, RemoteLogSegmentState]


def _is_restored(source: NewIdSource) -> bool:
    """Return whether every segment is published; a run publishes the segments last."""
    return all(source.known.get(segment.segment_id) is _FINISHED for segment in source.renamed)


def _why_no_target(source: NewIdSource) -> str | None:
    name = source.inputs.partition.topic_partition
    if not source.targets:
        return (
            f"no log directory has a folder of {name} of a new topic: create the topic with as many "
            "partitions and one replica, and name the log directories of its brokers"
        )
    if len(source.targets) > 1:
        return (
            f"{source.targets[0].path} and {source.targets[1].path} are replicas of {name}: create the "
            "topic with one replica, and add others by reassignment after the restore"
        )
    return None


def _why_not_under_new_ids(source: NewIdSource, target: TargetFolder, log: NewLog) -> str | None:
    """Return why `log` may not replace the folder; None if it may, or if a killed run wrote it already."""
    damage = log.why_damaged()
    if damage is not None or target.has_files(log.files):
        return damage
    if source.known:
        return (
            f"the metadata have {counted(len(source.known), 'segment')} of {log.partition}: brokers ran "
            "since a restore of it was stopped; delete the topic, create it again, and run again"
        )
    if [(base, size) for base, size in target.segments if base or size]:
        return f"{target.path} has or had records: create the topic again"
    reached = target.latest_epoch
    if reached is None or reached < log.latest_epoch:
        return (
            f"the leader epoch of the new {target.name} is {'unknown' if reached is None else reached}, its "
            f"records have epoch {log.latest_epoch}: brokers would truncate the lineage; each restart of its "
            "only broker raises the epoch"
        )
    return target.why_kept()


def _steps(source: NewIdSource, log: NewLog) -> Iterator[Step]:
    unpublished = [each for each in source.renamed if source.known.get(each.segment_id) is not _FINISHED]
    sizes = {each.listed.segment_id: each.listed.sizes_bytes for each in source.inputs.sets}
    for segment in unpublished:
        details = {
            SOURCE_TOPIC_ID: str(source.inputs.partition.topic_id),
            "segment_size_in_bytes": segment.segment_size_in_bytes,
            "objects": len(sizes.get(segment.segment_id, ())),
            "bytes": sum(sizes.get(segment.segment_id, {}).values()),
        }
        reason = f"the objects of topic id {source.inputs.partition.topic_id} under the new id"
        yield segment_step(Action.COPY_OBJECTS, segment, reason, details)
    yield restore_step(log, len(source.renamed))
    inputs = replace(source.inputs, partition=log.partition, known=source.known)
    choice = Choice(chain=tuple(source.renamed))
    yield from segment_steps(inputs, replace(source.decision, choice=choice))


def find_sources(run: Mutation, log_dirs: Sequence[Path], from_ids: Collection[Uuid]) -> list[NewIdSource]:
    """Return the selected partitions with objects under another topic id than the new topic's.

    If several lost topics have the same name, `from_ids` says which one. Raise NotFoundError if there is no
    such partition, SafetyRefusal if the tier has several topics of one name and `from_ids` names none of
    them, and the errors of the tier.
    """
    run.metadata.refresh()
    tier = TierSets.to_change(run)
    listed = tier.listed()
    run.resolve_selection({each.partition for each in listed})
    chosen = list(_chosen(run.resources.selection_request, listed, log_dirs, from_ids))
    if not chosen:
        raise NotFoundError("the tier has no object of the selected topics under another topic id")
    return [_source(run, found) for found in partition_sources(tier, chosen, log_dirs)]


def _source(run: Mutation, found: PartitionSource) -> NewIdSource:
    targets = [each for each in found.targets if each.topic_id is not None]
    target = targets[0].partition if targets else None
    chain = found.decision.choice.chain if target is not None else ()
    return NewIdSource(
        inputs=found.inputs,
        decision=found.decision,
        snapshot=found.snapshot,
        targets=targets,
        target=target,
        renamed=[run.remote.renamed(segment, target) for segment in chain] if target else [],
        known={} if target is None else states_of(run.metadata.state.segments_of(target)),
    )


def _chosen(
    asked: SelectionRequest, listed: Sequence[ListedSet], log_dirs: Sequence[Path], from_ids: Collection[Uuid]
) -> Iterator[ListedSet]:
    """Yield the sets of objects to restore: not those of the new topics, whose ids the folders have."""
    # The selected ids are those of the new topics, which the steps of a saved plan name.
    new_ids: dict[TopicPartition, set[Uuid | None]] = {}
    ids: dict[str, Uuid] = {}
    for each in listed:
        partition, name = each.partition, each.partition.topic_partition
        if name not in new_ids:
            new_ids[name] = {folder.topic_id for folder in target_folders(log_dirs, name)}
        if (
            not asked.may_select(name)
            or partition.topic in INTERNAL_TOPICS
            or partition.topic_id in new_ids[name]
            or (from_ids and partition.topic_id not in from_ids)
        ):
            continue
        if ids.setdefault(partition.topic, partition.topic_id) != partition.topic_id:
            raise SafetyRefusal(
                f"the tier has objects of several topics named {partition.topic}: ids "
                f"{ids[partition.topic]} and {partition.topic_id}",
                hint="name the one to restore with --from-id",
            )
        yield each


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreNewIdsRequest(MutationRequest):
    """A request to restore lost topics into topics of the same names that were created again with new ids.

    `log_dir` names the log directories of the stopped brokers of these topics. `metadata` names the log
    directory that has the metadata topic.
    """

    from_id: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ID",
            help="The id of the lost topic, if the tier has objects of several topics with its name. "
            "Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    assume_enabled: Annotated[
        bool,
        typer.Option(
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
    offsets are missing; LockedError if another run writes there; NotFoundError for a topic without objects;
    and the errors of the tier and the metadata.
    """
    with NewIds.opened(request, progress) as change:
        return change.finish(change.decided())


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
        log_dirs = written_dirs(self.run)
        self._sources = find_sources(self.run, log_dirs, self.request.from_ids())
        self.run.inspect_tier()
        self._refused: dict[TopicIdPartition, str] = {}
        self._logs: dict[TopicIdPartition, NewLog] = {}
        steps: list[Step] = []
        skipped: list[Skip] = []
        for source in self._sources:
            partition = source.inputs.partition
            skipped += unused_of(source.inputs, source.decision.choice)
            reason = why_refused(source.decision, after_hole=self.request.after_hole)
            reason, log = reason or _why_no_target(source), None
            if reason is None and source.target is not None:
                log = source.new_log(source.target, source.targets[0].log_dir, has_producers=False)
            if log is not None and not _is_restored(source):
                reason = _why_not_under_new_ids(source, source.targets[0], log)
            if reason is not None:
                self._refused[partition] = reason
                skipped.append(Skip.of(partition, reason))
            elif log is None or _is_restored(source):
                reason = "it is restored already" if log else "the tier has no records"
                skipped.append(Skip.of(partition, reason))
            else:
                self._logs[log.partition] = log
                steps += _steps(source, log)
        self._plan = Plan(
            command=NEW_IDS,
            steps=tuple(steps),
            read=self.run.metadata.state.read,
            skipped=tuple(skipped),
        )
        return self._plan

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        require_writable(self._refused, self.request.log_dir)
        names = {step.topic for step in plan.steps}
        assumed = names if self.request.assume_enabled else ()
        require_enabled(names, self._configs, named=names, assumed=assumed)
        require_same_steps(plan, self._plan, "a partition")

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        segments: dict[tuple[TopicIdPartition, Uuid | None], RemoteLogSegmentMetadata] = {
            (source.target, segment.segment_id): segment
            for source in self._sources
            if source.target is not None
            for segment in source.decision.choice.chain
        }
        return {
            Action.COPY_OBJECTS: copy_act(segments),
            Action.RESTORE_PARTITION: NewLogs(logs=self._logs).write_all,
            Action.PUBLISH_SEGMENT: publish_behind_logs,
            Action.DISCARD_SEGMENT: publish_behind_logs,
        }

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Implement `Change.conclude`: remove folders of killed runs, print the operator's next steps."""
        if not NewLogs(logs=self._logs).are_restored(outcomes):
            return
        self.run.progress.say(
            "now start the brokers, and verify with tierctl restore check, naming the new ids with "
            f"--topic-id. Timestamps are kept: if the records are older than {topic.RETENTION_MS.name} of "
            "the new topic, set that to -1 first. Add replicas by reassignment. The objects of the lost "
            "topic stay until you delete them"
        )


def copy_act(segments: Mapping[tuple[TopicIdPartition, Uuid | None], RemoteLogSegmentMetadata]) -> Act:
    """Return the act of COPY_OBJECTS; `segments` are those to copy, by new partition and segment id."""

    def copy(context: RunContext, steps: Sequence[Step]) -> list[Outcome]:
        """Copy the objects of each step's segment, several segments at a time; return an outcome per step."""
        context.engine.ready()
        new = [(step.topic_id_partition, step.segment_id) for step in steps]
        inputs = [_CopyInput(segments[key], key[0]) for key in new]
        results = context.engine.begin(_copy, inputs, context.side_effect_context())()
        return [_outcome(step, result) for step, result in zip(steps, results, strict=True)]

    def copy_all(run: Run, steps: Sequence[Step]) -> None:
        for wave in run.context.waves(steps):
            run.attempt(wave, lambda each: copy(run.context, each))
        run.require_all_done()

    return copy_all


@dataclass(frozen=True, slots=True)
class _CopyInput:
    segment: RemoteLogSegmentMetadata
    partition: TopicIdPartition


def _copy(context: SideEffectContext, each: _CopyInput) -> SideEffectResult:
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        with effect("restore.objects.copy"):
            context.remote.copy_objects(each.segment, each.partition)
    except TierctlError as e:
        return SideEffectResult(begun=True, error=e)
    context.advance(each.segment.segment_size_in_bytes)
    return SideEffectResult(begun=True)


def _outcome(step: Step, result: SideEffectResult) -> Outcome:
    if result.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(
        step=step, status=Status.DONE if result.error is None else Status.FAILED, error=result.error
    )
