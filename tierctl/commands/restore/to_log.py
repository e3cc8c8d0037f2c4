"""`restore log`: write records of the tier to the local log of a new topic on stopped brokers."""

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

import typer

from tierctl.apply.run import Acts
from tierctl.apply.run_context import Outcome, Status, log_name
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import (
    DECIDE,
    TYPED_ONLY,
    AsTopic,
    MutationRequest,
    RestoreAfterHole,
    RestoredMetadata,
    RestoreUntil,
)
from tierctl.commands.resources import Resources
from tierctl.commands.restore.erasure import WithoutKeys
from tierctl.commands.restore.inventory import DerivedMetadata
from tierctl.commands.restore.new_logs import (
    TargetFolder,
    remove_left,
    require_writable,
    target_folders,
    written_dirs,
)
from tierctl.commands.restore.written_logs import abort_markers_bytes, materialise_act
from tierctl.errors import NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.files import PLAIN, is_file
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import (
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.checked_values import absolute_path, natural_number
from tierctl.model.events import is_legal_topic_name
from tierctl.model.progress import Progress
from tierctl.model.selection import counted
from tierctl.model.settings import topic
from tierctl.model.times import parse_time_ms
from tierctl.plan.choose_sets import Choice
from tierctl.plan.partition_choice import (
    PartitionDecision,
    PartitionInputs,
    sets_above,
    unused_of,
    why_holed,
    why_undecided,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import (
    AS_TOPIC,
    AS_TOPIC_ID,
    LOG_DIR,
    MATERIALISE,
    SEGMENTS,
    WITHOUT_KEYS,
    Action,
    Plan,
    Skip,
    Step,
)
from tierctl.read.partition_reader import (
    PartitionReader,
    PartitionSet,
    ReadablePartition,
    illegal_name_error,
    readable_partitions,
)
from tierctl.read.readable_log import ReadableLog
from tierctl.read.record_rows import KEY_FORMS
from tierctl.state.lineage import SegmentSpan, segments_in_lineage
from tierctl.state.tier_state import TierState
from tierctl.storage.layouts.kafka import segment_object_name
from tierctl.wire.files.checkpoints import META_PROPERTIES

ROOM_BYTES = "room_bytes"
"""Detail: bytes of disk that the files of a log need."""
_INDEX_SHARE = 0.01
"""Bytes of the indexes for each byte of a log, at most (index.interval.bytes=4096)."""
_INDEX_MIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Where logs end: before an offset by partition, and before the first record later than `time_ms`."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int | None = None

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the values of --until; UsageError for a wrong or repeated one."""
        offsets: dict[TopicPartition, int] = {}
        times: list[int] = []
        for text in texts:
            name, equals, offset = text.rpartition("=")
            if not equals:
                times.append(parse_time_ms(text))
                continue
            partition = TopicPartition.parse(name)
            number = natural_number(offset)
            if number is None or partition in offsets:
                raise UsageError(
                    f"--until {text}: expected TOPIC-PARTITION=OFFSET once for a partition, or a time"
                )
            offsets[partition] = number
        if len(times) > 1:
            raise UsageError("--until names several times", hint="an offset is TOPIC-PARTITION=OFFSET")
        return cls(offsets=offsets, time_ms=times[0] if times else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The records of one partition in a tier.

    `spans` ascend; `until_offset` ends them and the log before its end. `undecided` states why the tier alone
    does not show which records the log had. `without_keys` identifies the keys whose records are erased;
    `listed` then has base offset and size of each segment of the log that a signed list of these records
    names.
    """

    partition: TopicIdPartition
    spans: Sequence[SegmentSpan]
    targets: Sequence[TargetFolder]
    as_topic: str
    as_topic_id: Uuid | None
    until_offset: int | None = None
    undecided: str | None = None
    without_keys: str | None = None
    listed: Sequence[tuple[int, int]] | None = None


def _chosen(source: Source, *, after_hole: bool) -> tuple[Sequence[SegmentSpan], str | None]:
    """Return the spans, with `after_hole` those after the last hole, and a note."""
    holes = list(_holes(source.spans))
    if not holes or not after_hole:
        return source.spans, None
    at, first, last = holes[-1]
    return source.spans[at:], f"no segment has offsets {first} to {last}: the log begins after them"


def _holes(spans: Sequence[SegmentSpan]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of the span after each hole, and the hole's first and last offset."""
    for number, (one, following) in enumerate(pairwise(spans), 1):
        if following.from_offset > one.to_offset + 1:
            yield number, one.to_offset + 1, following.from_offset - 1


def _why_refused(source: Source, spans: Sequence[SegmentSpan]) -> str | None:
    if not spans:
        below = "" if source.until_offset is None else f" below offset {source.until_offset}"
        return f"the tier has no record of it{below}"
    hole = next(_holes(spans), None)
    if hole is not None:
        return (
            f"no segment has offsets {hole[1]} to {hole[2]}: --until ends the log before them, --after-hole "
            "begins it after the last such hole"
        )
    if not source.targets:
        return (
            "no log directory has a folder of it: create the new topic and stop its brokers, or name one log "
            "directory only"
        )
    return None


def _why_not_into(source: Source, spans: Sequence[SegmentSpan], target: TargetFolder) -> str | None:
    """Return why the log may not be written into `target`; None if it may, or is there already."""
    folder = target.path
    reason = _why_not_id(source, target)
    if reason is not None or is_restored(target, source, spans):
        return reason
    if any(size for _, size in target.segments):
        unlisted = ", and no signed list says that it has none of these keys"
        return f"{folder} has records{unlisted if source.without_keys is not None else ''}"
    start = spans[0].from_offset
    if any(base not in {0, start} for base, _ in target.segments):
        return f"{folder} had records: its log begins at offset {target.segments[0][0]}"
    return target.why_kept()


def _why_not_id(source: Source, target: TargetFolder) -> str | None:
    """Return why the new topic's id is unknown or wrong; None if it is known."""
    folder = target.path
    if target.topic_id is None and source.as_topic_id is None:
        return f"{folder} has no topic id: name that of the new topic with --as-id"
    if target.topic_id is not None and source.as_topic_id not in {None, target.topic_id}:
        return f"{folder} is of topic id {target.topic_id}, not {source.as_topic_id}"
    if source.partition.topic_id == (source.as_topic_id or target.topic_id):
        return (
            f"{folder} is of the topic that is restored: brokers would find its segments in their metadata; "
            "restore it as a new topic"
        )
    return None


def is_restored(target: TargetFolder, source: Source, spans: Sequence[SegmentSpan]) -> bool:
    """Return whether the target has the log of `spans`, from a run that was killed after its rename."""
    found, end = list(target.segments), spans[-1].to_offset + 1
    if source.until_offset is not None and len(found) == len(spans) > 1:
        # Where compaction removed all records of the last span, it has no segment.
        spans = spans[:-1]
    if len(found) != len(spans) + 1 or target.found is None:
        return False
    bases = [base for base, _ in found]
    # The first segment begins with the whole batch that has the first offset.
    is_first = spans[0].segment.start_offset <= bases[0] <= spans[0].from_offset
    if not is_first or bases[1:-1] != [span.from_offset for span in spans[1:]]:
        return False
    markers_bytes = abort_markers_bytes(target.found / log_name(bases[-2]), end, bases[-1])
    if markers_bytes is None:
        return False
    if source.without_keys is not None:
        return source.listed is not None and found[:-1] == list(source.listed)
    sizes = [size for _, size in found[:-1]]
    sizes[-1] -= markers_bytes
    whole = [(size, span) for size, span in zip(sizes, spans, strict=True) if span.is_whole]
    return sizes[0] > 0 and all(size == span.segment.segment_size_in_bytes for size, span in whole)


def _step(source: Source, spans: Sequence[SegmentSpan], target: TargetFolder) -> Step:
    partition = source.partition
    topic_id = source.as_topic_id or target.topic_id
    return Step(
        action=Action.MATERIALISE_PARTITION,
        reason=f"{counted(len(spans), 'segment')} as the local log of "
        f"{source.as_topic}-{partition.partition}",
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        start_offset=spans[0].from_offset,
        end_offset=spans[-1].to_offset,
        details={
            LOG_DIR: str(target.log_dir),
            AS_TOPIC: source.as_topic,
            AS_TOPIC_ID: str(topic_id),
            "segment_size_in_bytes": sum(span.segment.segment_size_in_bytes for span in spans),
            ROOM_BYTES: _room_bytes(spans),
            **({} if source.without_keys is None else {WITHOUT_KEYS: source.without_keys}),
            SEGMENTS: [
                {
                    "segment_id": str(span.segment.segment_id),
                    "start_offset": span.from_offset,
                    "end_offset": span.to_offset,
                }
                for span in spans
            ],
        },
    )


def _room_bytes(spans: Sequence[SegmentSpan]) -> int:
    """Return the bytes of disk that the files of the log need."""
    sizes = [span.segment.segment_size_in_bytes for span in spans]
    return sum(int(size * (1 + _INDEX_SHARE)) + _INDEX_MIN for size in sizes)


def unused(
    state: TierState,
    chosen: PartitionSet,
    decisions: Mapping[TopicIdPartition, PartitionDecision],
    sources: Sequence[Source],
    steps: Sequence[Step],
) -> Iterator[Skip]:
    """Yield each chosen partition that is in none of `sources`, and each segment that no step has.

    `decisions` are those about the sets of objects, without metadata. Partitions without a step have another
    reason in the plan already.
    """
    by_partition = {source.partition: source for source in sources}
    for partition, decision in decisions.items():
        # The reason of a partition with a source is in the plan.
        if partition not in by_partition:
            yield Skip.of(partition, decision.refused or "the tier has no complete segment of it")
        yield from unused_of(PartitionInputs(partition=partition, sets=()), decision.choice)
    used = {step.topic_id_partition: step for step in steps}
    for part in state:
        partition = part.topic_id_partition
        if partition not in chosen:
            continue
        if partition in used:
            yield from _unused_segments(
                list(part.cache.list_remote_log_segments()), by_partition[partition], used[partition]
            )
        elif partition not in by_partition and partition not in decisions:
            illegal = illegal_name_error(partition)
            yield Skip.of(
                partition,
                "the metadata have no finished segment of it"
                if illegal is None
                else _not_understood(illegal),
            )


def _not_understood(refusal: SafetyRefusal) -> Reason:
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{refusal.message}; {refusal.hint}")


def _unused_segments(
    segments: Sequence[RemoteLogSegmentMetadata], source: Source, step: Step
) -> Iterator[Skip]:
    written = {each["segment_id"] for each in step.details[SEGMENTS]}
    for segment in segments:
        if str(segment.segment_id) not in written:
            yield Skip.of(source.partition, _why(segment, source, step), segment.segment_id)


def _why(segment: RemoteLogSegmentMetadata, source: Source, step: Step) -> str:
    if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return Reason(ReasonKind.ALREADY_KNOWN, state=str(segment.state))
    span = f"offsets {segment.start_offset} to {segment.end_offset}"
    if source.until_offset is not None and segment.start_offset >= source.until_offset:
        return f"{span}: --until ends the log at {source.until_offset}"
    if step.start_offset is not None and segment.end_offset < step.start_offset:
        return f"{span}: the log begins at {step.start_offset}"
    return f"{span}: other segments of the lineage serve them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreLogRequest(MutationRequest):
    """A request to write topics of the tier as local logs of stopped brokers.

    Without `metadata`, the metadata are derived from the objects of the tier. `log_dir` names the log
    directories of all replicas of the new topic.
    """

    metadata: RestoredMetadata = None
    as_topic: AsTopic = None
    as_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Id of the new topic. Default: the id in the folders of its partitions in --log-dir.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    until: RestoreUntil = ()
    after_hole: RestoreAfterHole = False
    without_keys: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            parser=absolute_path,
            help="Write the records with these keys without key, value and headers, at "
            f"their offsets. The file has one key per line: {KEY_FORMS}, as for fetch --erase-report. Needs "
            "--left-out and --sign-with.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None
    left_out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            parser=absolute_path,
            help="With --without-keys: folder for the lists of the erased records, one list and its "
            "signature per new partition. A list has the SHA-256 of the keys.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    sign_with: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            parser=absolute_path,
            help="With --without-keys: the Ed25519 private key that signs the lists, in PEM without a "
            "password.",
            rich_help_panel=DECIDE,
        ),
    ] = None

    @property
    def reads_metadata_of_cluster(self) -> bool:
        """Implement `Request.reads_metadata_of_cluster`: they are derived from the tier instead."""
        return False

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if not self.topic and not self.topic_id:
            raise UsageError("--topic is missing", hint="name the topics to restore")
        if not self.log_dir:
            raise UsageError(
                "--log-dir is missing",
                hint="name the log directories of the stopped brokers of the new topic",
            )
        if self.as_topic is not None and not is_legal_topic_name(self.as_topic):
            raise UsageError(f"--as {self.as_topic!r} is not a valid topic name")
        for folder in self.log_dir:
            if not is_file(Path(folder) / META_PROPERTIES):
                raise UsageError(
                    f"--log-dir {folder} has no {META_PROPERTIES}: it is not a log directory of a broker",
                    hint="format the broker first (kafka-storage format), and create the new topic",
                )
        Until.parse(self.until)
        self.keys()

    def keys(self) -> WithoutKeys | None:
        """Return the keys whose records are erased; None without `without_keys`. May raise UsageError."""
        return WithoutKeys.read(self.without_keys, self.left_out, self.sign_with)


def restore_log(request: RestoreLogRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the logs to write; with `apply`, write them.

    Neither the tier nor its metadata are changed. Every batch keeps its offsets, timestamps, producer and
    transaction; its leader epoch becomes 0. Records with a key in `without_keys` keep their offset and
    timestamp, and lose key, value and headers. Raise SafetyRefusal if a broker runs on a log directory, a
    partition's folder has records or unknown files, offsets are missing, or the disk has too little room;
    LockedError if another run writes there; NotFoundError for a topic that the tier does not have; and the
    errors of the tier and the metadata.
    """
    with Materialise.opened(request, progress) as change:
        return change.finish(change.decided())


class Materialise(Change[RestoreLogRequest]):
    """One run of the command that writes segments of the tier as local logs."""

    command = MATERIALISE
    request_type = RestoreLogRequest
    saved = ("as_topic", "as_id", "until", "after_hole", "without_keys", "left_out", "sign_with")
    writes_logs = True
    changes_tier = False

    @classmethod
    def reader(cls, resources: Resources) -> RemoteLogMetadataManager | None:
        """Implement `Change.reader`: without --metadata, the metadata follow from the tier's objects."""
        return DerivedMetadata(resources) if resources.request.metadata is None else resources.metadata()

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        run, request = self.run, self.request
        written_dirs(run)
        partitions = _partitions(run)
        topics = {each.topic_id_partition.topic for each in partitions}
        if len(topics) > 1 and (request.as_topic is not None or request.as_id is not None):
            raise UsageError(
                f"--as and --as-id need exactly one topic, selected are {', '.join(sorted(topics))}",
                hint="restore one topic at a time",
            )
        until = Until.parse(request.until)
        require_known(until, {each.topic_id_partition.topic_partition for each in partitions})
        if until.time_ms is not None:
            run.progress.note(
                "--until: the markers of transactions count by the broker's clock, whatever the times of the "
                "records are"
            )
        keys = self._keys = request.keys()
        sources = [_source(run, request, partition, until, keys) for partition in partitions]
        self._sources = sources
        self._new = [TopicPartition(each.as_topic, each.partition.partition) for each in sources]
        state = run.metadata.state
        steps, skipped = self._steps()
        decisions = run.metadata.decisions if isinstance(run.metadata, DerivedMetadata) else {}
        skipped += unused(state, run.resources.selection, decisions, sources, steps)
        return Plan(command=MATERIALISE, steps=tuple(steps), read=state.read, skipped=tuple(skipped))

    def _steps(self) -> tuple[list[Step], list[Skip]]:
        """Return a step for each log that is written, one per replica, and the partitions without one.

        A partition is refused if offsets are missing, unless --after-hole drops those below the last hole; if
        a folder has records, or belongs to another topic.
        """
        steps: list[Step] = []
        skipped: list[Skip] = []
        self._refused: dict[TopicIdPartition, str] = {}
        self._largest_bytes = 0
        """The size of the largest segment: each task needs it, beside the log that it writes."""
        for source in self._sources:
            spans, note = _chosen(source, after_hole=self.request.after_hole)
            reason = source.undecided or _why_refused(source, spans)
            if reason is not None:
                self._refused[source.partition] = reason
                skipped.append(Skip.of(source.partition, reason))
                continue
            sizes = (span.segment.segment_size_in_bytes for span in spans)
            self._largest_bytes = max(self._largest_bytes, *sizes)
            if note is not None:
                skipped.append(Skip.of(source.partition, note))
            for target in source.targets:
                why = _why_not_into(source, spans, target)
                if why is not None:
                    self._refused[source.partition] = why
                if why is not None or is_restored(target, source, spans):
                    reason = why or f"{target.log_dir} has the records already"
                    skipped.append(Skip.of(source.partition, reason))
                else:
                    steps.append(_step(source, spans, target))
        return steps, skipped

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        require_writable(self._refused, self.request.log_dir)
        if self._keys is not None:
            self._keys.removal.require_replaceable(self._new)
        is_on_spark = self.run.resources.is_on_spark and bool(plan.steps)
        tasks = self.run.resources.executors.slots if is_on_spark else self.request.threads
        needed: dict[int, int] = {}
        dirs: dict[int, str] = {}
        for step in plan.steps:
            log_dir = str(step.details[LOG_DIR])
            device = Path(log_dir).stat().st_dev
            dirs[device] = log_dir
            room_bytes = int(step.details[ROOM_BYTES])
            needed[device] = needed.get(device, self._largest_bytes * tasks) + room_bytes
        for device, size_bytes in needed.items():
            free_bytes = shutil.disk_usage(dirs[device]).free
            if free_bytes < size_bytes:
                raise SafetyRefusal(
                    f"the disk of {dirs[device]} has {free_bytes} bytes free, the logs need {size_bytes}",
                    hint="free disk space, or restore fewer partitions or records: --partition, --until",
                )

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        keys = self._keys
        return {Action.MATERIALISE_PARTITION: materialise_act(None if keys is None else keys.removal)}

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Implement `Change.conclude`: print the erased records, and the operator's next steps."""
        targets = [target for source in self._sources for target in source.targets]
        for target in targets:
            remove_left(target.log_dir, str(target.name))
        if any(outcome.status is not Status.DONE for outcome in outcomes):
            return
        for log_dir in {target.log_dir for target in targets}:
            # An earlier run may have put a log in place, and was killed, or its disk failed, before the sync.
            PLAIN.sync_folder(log_dir)
        if self._keys is not None:
            self._keys.report(map(self._keys.removal.read, self._new), self.run.progress)
        if not outcomes:
            return
        # A log without the records of a key differs from the tier, with which the check compares it.
        check = (
            ", and verify with tierctl restore check, with the old topic's --topic-id, and with --as and "
            "--until as in this run"
            if self._keys is None
            else ""
        )
        self.run.progress.say(
            f"now start the brokers{check}. Timestamps are kept: if the records are older than "
            f"{topic.RETENTION_MS.name} of the new topic, set that to -1 first. Replicas without these "
            "records must not be in sync: name the log directories of all, or create the topic with one "
            "replica"
        )


def _partitions(run: Mutation) -> list[ReadablePartition]:
    """Return the selected partitions that have records in the tier; resolve the selection.

    `unused` reports those whose name is illegal, so that no path may contain it.
    """
    resources, state = run.resources, run.metadata.refresh()
    if not isinstance(run.metadata, DerivedMetadata):
        resources.resolve_selection(part.topic_id_partition for part in state)
        run.histories.examine(state)
        resources.inspect_tier(run.metadata)
    selection = resources.selection
    found = readable_partitions(
        state, (), selection, by_name=bool(selection.topics) and not selection.topic_ids
    )
    if not found:
        raise NotFoundError("the tier has no record of the selected partitions")
    return [each for each in found if illegal_name_error(each.topic_id_partition) is None]


def require_known(until: Until, known: Collection[TopicPartition]) -> None:
    """Raise NotFoundError if --until names a partition that is not one of `known`."""
    for partition in until.offsets:
        if partition not in known:
            raise NotFoundError(
                f"--until names {partition}, which is not restored",
                hint=f"restored are {', '.join(map(str, sorted(known)))}",
            )


def _source(
    run: Mutation,
    request: RestoreLogRequest,
    found: ReadablePartition,
    until: Until,
    keys: WithoutKeys | None,
) -> Source:
    partition = found.topic_id_partition
    log = run.resources.readable_log(found)
    end = until_offset(run.resources, log, until)
    asked = until.offsets.get(partition.topic_partition, 0)
    if asked > log.end_offset:
        run.progress.warn(
            f"--until {partition.topic_partition}={asked}: the tier has no record from offset "
            f"{log.end_offset} on, so the log ends there"
        )
    last = log.end_offset - 1 if end is None else min(end, log.end_offset) - 1
    spans = tuple(segments_in_lineage(log.cache, log.lineage, log.log_start_offset, last))
    new = TopicPartition(request.as_topic or partition.topic, partition.partition)
    left_out = None if keys is None else keys.removal.read(new)
    is_own = left_out is not None and left_out.log["topic_id"] == partition.topic_id
    return Source(
        partition=partition,
        spans=spans,
        targets=_targets(request, new),
        as_topic=new.topic,
        as_topic_id=None if request.as_id is None else Uuid.parse(request.as_id),
        until_offset=end,
        undecided=_undecided(run, request, partition, end) or _missing(run, spans),
        without_keys=None if keys is None else keys.removal.keys_sha256,
        listed=left_out.segments if left_out is not None and is_own else None,
    )


def until_offset(resources: Resources, log: ReadableLog, until: Until) -> int | None:
    """Return the offset at which --until ends the log (exclusive); None if the log has no such offset."""
    name = log.topic_id_partition.topic_partition
    ends = [until.offsets[name]] if name in until.offsets else []
    if until.time_ms is not None:
        reader = PartitionReader(log, resources.indexes, resources.problems.report)
        later = reader.offset_for_time(until.time_ms + 1)
        ends += [] if later is None else [later.offset]
    return min(ends, default=None)


def _undecided(
    run: Mutation, request: RestoreLogRequest, partition: TopicIdPartition, end: int | None
) -> str | None:
    """Return why the log's records below offset `end` can't be determined; None if they can."""
    metadata = run.metadata
    if not isinstance(metadata, DerivedMetadata):
        return run.histories.incomplete.get(partition)
    decision = metadata.decisions[partition]
    return (
        why_undecided(decision, after_hole=request.after_hole)
        or why_holed(decision.choice, after_hole=request.after_hole)
        or _incomplete_above(partition, decision.choice, end)
    )


def _incomplete_above(partition: TopicIdPartition, choice: Choice, end: int | None) -> str | None:
    """Return which set above the chain, and below offset `end`, can't be read; None if none is."""
    above = sets_above(choice, end)
    if not above:
        return None
    each = above[0]
    why = each.why_not_understood or each.why_incomplete
    reason = (
        f"the set of objects from offset {each.listed.start_offset} on is not complete ({why}): --until "
        f"{partition.topic_partition}={choice.next_offset or 0} restores the records below that"
    )
    if each.why_not_understood is None:
        return reason
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"segment {each.listed.segment_id}: {reason}")


def _missing(run: Mutation, spans: Sequence[SegmentSpan]) -> str | None:
    """Return which segment has no log object in the tier, or an illegal name; None if all have a log.

    All have one if they were derived from one.
    """
    if isinstance(run.metadata, DerivedMetadata):
        return None
    segments: list[RemoteLogSegmentMetadata] = [span.segment for span in spans]
    for segment, objects in zip(segments, run.remote.objects_of_each(segments), strict=True):
        if isinstance(objects, SafetyRefusal):
            return _not_understood(objects)
        if isinstance(objects, TierctlError):
            raise objects
        names = (segment_object_name(each.key) for each in objects)
        if not any(name is not None and name.part is ObjectPart.LOG for name in names):
            return (
                f"the tier has no log of segment {segment.segment_id}, offsets {segment.start_offset} to "
                f"{segment.end_offset}"
            )
    return None


def _targets(request: RestoreLogRequest, partition: TopicPartition) -> list[TargetFolder]:
    """Return the log directories with a folder of the new partition; the only directory if none has one."""
    dirs = list(dict.fromkeys(Path(folder).resolve() for folder in request.log_dir))
    found = target_folders(dirs, partition)
    return found or [TargetFolder(log_dir=each, name=partition) for each in dirs if len(dirs) == 1]
