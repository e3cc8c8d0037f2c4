"""`restore log`: write records of the tier to the local log of a new topic on stopped brokers."""

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Self

import typer

from tierctl.apply.log_folder import former_folder, remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run import Acts
from tierctl.apply.to_log import LeftOut, Removal, materialise_act
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.derived_metadata import DerivedMetadata
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import (
    DECIDE,
    TYPED_ONLY,
    AsTopic,
    RestoreAfterHole,
    RestoredMetadata,
    RestoreUntil,
)
from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.files import read_regular
from tierctl.locallog import ensure_stopped
from tierctl.locallog.folders import list_segments
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import (
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.progress import Progress
from tierctl.model.settings import topic
from tierctl.plan.materialise import (
    MATERIALISE,
    ROOM_BYTES,
    SEGMENTS,
    MaterialisePlan,
    Source,
    Target,
    Until,
    plan_materialise,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.choice import Choice
from tierctl.plan.rebuild.partition_choice import PartitionDecision, PartitionInputs, why_undecided
from tierctl.plan.rebuild.plan import unused_of
from tierctl.plan.restore import why_incomplete_below
from tierctl.plan.steps import LOG_DIR, Action, Plan, Skip, Step
from tierctl.read.partition_reader import (
    PartitionReader,
    PartitionSet,
    ReadablePartition,
    illegal_name_error,
    readable_partitions,
)
from tierctl.read.readable_log import ReadableLog
from tierctl.read.record_rows import KEY_FORMS, parse_key
from tierctl.state.lineage import SegmentSpan, segments_in_lineage
from tierctl.state.tier_state import TierState
from tierctl.storage.layouts.kafka import segment_object_name
from tierctl.wire.files.checkpoints import META_PROPERTIES, PARTITION_METADATA_FILE, read_partition_metadata

_LINES_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutKeys:
    """The keys of a file: the SHA-256 of each key, with the number of the first line that has it."""

    file: Path
    lines: dict[bytes, int]
    removal: Removal

    @classmethod
    def read(cls, keys: str | None, lists: str | None, signing_key: str | None) -> Self | None:
        """Return the keys of the file `keys`; None if none of the three options is given.

        Raise UsageError if only some of the options are given, if the file has no keys, or if a line is
        malformed.
        """
        if keys is None and lists is None and signing_key is None:
            return None
        if keys is None or lists is None or signing_key is None:
            raise UsageError(
                "--without-keys, --left-out and --sign-with must be given together",
                hint="--left-out DIR is the folder for the lists of the erased records, and --sign-with FILE "
                "is the Ed25519 key that signs them",
            )
        if Path(lists).exists() and not Path(lists).is_dir():
            raise UsageError(
                f"--left-out {lists} is not a folder", hint="name a folder; tierctl makes it if it is missing"
            )
        path = Path(keys)
        lines = _parsed(path, _text_of(path))
        if find_spec("cryptography") is None:
            raise UsageError(
                "--sign-with needs cryptography, which is not installed", hint="pip install tierctl[kafka]"
            )
        from tierctl.apply.signing import SigningKey

        key = SigningKey.read(Path(signing_key))
        removal = Removal(digests=frozenset(lines), lists=Path(lists), key=key)
        return cls(file=path, lines=lines, removal=removal)

    def report(self, lists: Iterable[LeftOut | None], progress: Progress) -> None:
        """Report how many records the signed lists say were left out, and which keys occur in no list."""
        found: set[bytes] = set()
        records = 0
        for each in lists:
            if each is None:
                progress.warn(
                    f"{self.removal.lists} has no signed list of a log that was restored: it is unknown "
                    f"which keys of {self.file} were not found"
                )
                return
            found |= each.keys
            records += each.records
        progress.say(
            f"left out {records} records with {len(found)} of {len(self.lines)} keys: "
            f"the signed lists are in {self.removal.lists}"
        )
        missing = sorted(number for digest, number in self.lines.items() if digest not in found)
        if missing:
            shown = ", ".join(map(str, missing[:_LINES_SHOWN_MAX]))
            more = f" and {len(missing) - _LINES_SHOWN_MAX} more" if len(missing) > _LINES_SHOWN_MAX else ""
            progress.warn(
                f"not found: {len(missing)} keys of {self.file} occur in no record that was restored, those "
                f"of lines {shown}{more}"
            )


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as e:
        raise UsageError(f"--without-keys {path} can't be read: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise UsageError(
            f"--without-keys {path}: expected UTF-8, found byte {e.object[e.start]:#04x} at byte {e.start}",
            hint=f"one key per line: {KEY_FORMS}",
        ) from None


def _parsed(path: Path, text: str) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        where = f"--without-keys {path} line {number}"
        if line.endswith("\r"):
            raise UsageError(
                f"{where}: expected a key, found one with a carriage return at its end",
                hint="end lines with a line feed only; write a key that ends with a carriage return as hex: "
                "or base64:",
            )
        try:
            found.setdefault(parse_key(line), number)
        except UsageError as e:
            raise UsageError(f"{where}: {e.message}", hint=e.hint) from None
    if not found:
        raise UsageError(f"--without-keys {path} has no keys", hint=f"one key per line: {KEY_FORMS}")
    return found


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
            yield Skip.of(partition, "the metadata have no finished segment of it")


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


def _absolute(text: str) -> str:
    """Return an absolute path, which means the same when a plan is carried out in another folder."""
    return str(Path(text).absolute())


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
            "--as-id",
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
            "--without-keys",
            metavar="FILE",
            parser=_absolute,
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
            "--left-out",
            metavar="DIR",
            parser=_absolute,
            help="With --without-keys: folder for the lists of the erased records, one list and its "
            "signature per new partition. A list has the SHA-256 of the keys.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    sign_with: Annotated[
        str | None,
        typer.Option(
            "--sign-with",
            metavar="FILE",
            parser=_absolute,
            help="With --without-keys: the Ed25519 private key that signs the lists, in PEM without a "
            "password.",
            rich_help_panel=DECIDE,
        ),
    ] = None

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
            if not (Path(folder) / META_PROPERTIES).is_file():
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
    partition's folder has records, offsets are missing, or the disk has too little room; NotFoundError for a
    topic that the tier does not have; and the errors of the tier and the metadata.
    """
    return Materialise.of(request, progress)


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
        partitions = _partitions(run)
        topics = {each.topic_id_partition.topic for each in partitions}
        if len(topics) > 1 and (request.as_topic is not None or request.as_id is not None):
            raise UsageError(
                f"--as and --as-id need exactly one topic, selected are {', '.join(sorted(topics))}",
                hint="restore one topic at a time",
            )
        until = Until.parse(request.until)
        _require_known(until, partitions)
        keys = self._keys = request.keys()
        sources = [_source(run, request, partition, until, keys) for partition in partitions]
        self._sources = sources
        state = run.metadata.state
        found = plan_materialise(sources, read=state.read, after_hole=request.after_hole)
        self._found = found
        decisions = run.metadata.decisions if isinstance(run.metadata, DerivedMetadata) else {}
        rest = unused(state, run.resources.selection, decisions, sources, found.plan.steps)
        return replace(found.plan, skipped=(*found.plan.skipped, *rest))

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        _check(self.run, self.request, plan, self._found)

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: the locks of the log directories keep brokers out."""

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        keys = self._keys
        return {Action.MATERIALISE_PARTITION: materialise_act(None if keys is None else keys.removal)}

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Implement `Change.conclude`."""
        _conclude(self.run, self._sources, outcomes, self._keys)


def _partitions(run: Mutation) -> list[ReadablePartition]:
    """Return the selected partitions that have records in the tier; resolve the selection."""
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
    for each in found:
        refusal = illegal_name_error(each.topic_id_partition)
        if refusal is not None:
            raise refusal
    return found


def _require_known(until: Until, partitions: Sequence[ReadablePartition]) -> None:
    known = {each.topic_id_partition.topic_partition for each in partitions}
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
    undecided = why_undecided(decision, after_hole=request.after_hole)
    if undecided is not None:
        return undecided
    choice = decision.choice
    if choice.hole is not None and not request.after_hole:
        return (
            f"no set of objects has offsets {choice.hole.first} to {choice.hole.last}: --after-hole begins "
            "the log after them"
        )
    lost = why_incomplete_below(decision)
    if lost is not None and not request.after_hole:
        return f"{lost}: --after-hole begins the log after it"
    return _incomplete_above(partition, choice, end)


def _incomplete_above(partition: TopicIdPartition, choice: Choice, end: int | None) -> str | None:
    """Return which set above the chain, and below offset `end`, can't be read; None if none is."""
    first, following = choice.first_offset or 0, choice.next_offset or 0
    for each, _ in choice.left:
        start = each.listed.start_offset
        if each.segment is None and start >= following and (end is None or end > start):
            why = each.why_not_understood or each.why_incomplete
            reason = (
                f"the set of objects from offset {start} on is not complete ({why}): --until "
                f"{partition.topic_partition}={max(following, first)} restores the records below it"
            )
            if each.why_not_understood is None:
                return reason
            return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"segment {each.listed.segment_id}: {reason}")
    return None


def _missing(run: Mutation, spans: Sequence[SegmentSpan]) -> str | None:
    """Return which segment has no log object in the tier; None if all have one, or were derived from one."""
    if isinstance(run.metadata, DerivedMetadata):
        return None
    segments: list[RemoteLogSegmentMetadata] = [span.segment for span in spans]
    for segment, objects in zip(segments, run.remote.objects_of_each(segments), strict=True):
        if isinstance(objects, TierctlError):
            raise objects
        names = (segment_object_name(each.key) for each in objects)
        if not any(name is not None and name.part is ObjectPart.LOG for name in names):
            return (
                f"the tier has no log of segment {segment.segment_id}, offsets {segment.start_offset} to "
                f"{segment.end_offset}"
            )
    return None


def _targets(request: RestoreLogRequest, partition: TopicPartition) -> list[Target]:
    """Return the log directories with a folder of the new partition; the only directory if none has one."""
    dirs = dict.fromkeys(Path(folder).resolve() for folder in request.log_dir)
    folders = {each: former_folder(each, str(partition)) for each in dirs}
    found = [_target(each, folder) for each, folder in folders.items() if folder.is_dir()]
    return found or [Target(log_dir=each) for each in dirs if len(dirs) == 1]


def _target(log_dir: Path, folder: Path) -> Target:
    topic_id = None
    with suppress(FileNotFoundError):
        try:
            topic_id = read_partition_metadata(read_regular(folder / PARTITION_METADATA_FILE))
        except CorruptInputError as e:
            raise e.within(str(folder / PARTITION_METADATA_FILE)) from None
    segments = [(each.base_offset, each.log.stat().st_size) for each in list_segments(folder)]
    return Target(log_dir=log_dir, topic_id=topic_id, segments=segments)


def _check(run: Mutation, request: RestoreLogRequest, plan: Plan, found: MaterialisePlan) -> None:
    """Raise SafetyRefusal if the plan may not be applied."""
    if found.refused:
        hint = "leave these partitions out with --topic and --partition, or do what the reason says"
        raise refusal_of(sorted(found.refused.items()), hint)
    for folder in request.log_dir:
        ensure_stopped(Path(folder))
    tasks = run.resources.executors.slots if run.resources.is_on_spark and plan.steps else request.threads
    needed: dict[int, int] = {}
    dirs: dict[int, str] = {}
    for step in plan.steps:
        log_dir = str(step.details[LOG_DIR])
        device = Path(log_dir).stat().st_dev
        dirs[device] = log_dir
        needed[device] = needed.get(device, found.largest_bytes * tasks) + int(step.details[ROOM_BYTES])
    for device, size_bytes in needed.items():
        free_bytes = shutil.disk_usage(dirs[device]).free
        if free_bytes < size_bytes:
            raise SafetyRefusal(
                f"the disk of {dirs[device]} has {free_bytes} bytes free, the logs need {size_bytes}",
                hint="free disk space, or restore fewer partitions or records: --partition, --until",
            )


def _conclude(
    run: Mutation, sources: Sequence[Source], outcomes: Sequence[Outcome], keys: WithoutKeys | None
) -> None:
    """Remove temporary folders of killed runs; print the erased records and the operator's next steps."""
    for log_dir, name in _folders(sources):
        remove_left(log_dir, name)
    if any(outcome.status is not Status.DONE for outcome in outcomes):
        return
    if keys is not None:
        new = (TopicPartition(each.as_topic, each.partition.partition) for each in sources)
        keys.report(map(keys.removal.read, new), run.progress)
    if not outcomes:
        return
    run.progress.say(
        "now start the brokers. Timestamps are kept: if the records are older than "
        f"{topic.RETENTION_MS.name} of the new topic, set that to -1 first. Replicas without these records "
        "must not be in sync: name the log directories of all, or create the topic with one replica"
    )


def _folders(sources: Sequence[Source]) -> Iterator[tuple[Path, str]]:
    for source in sources:
        for target in source.targets:
            yield target.log_dir, f"{source.as_topic}-{source.partition.partition}"
