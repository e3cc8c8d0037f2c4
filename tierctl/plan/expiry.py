"""RLMExpirationTask for all partitions: the plan of `sweep`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, Self

from tierctl.errors import RemoteResourceNotFound, SafetyRefusal, UsageError
from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.progress import Advance, no_op
from tierctl.model.times import iso_utc
from tierctl.plan.breaches import (
    OFF_LINEAGE,
    UNREFERENCED_EPOCHS,
    Expiry,
    by_start,
    endless_text,
    expire,
    kept_of,
    note_of_brokers,
    resume_deletions,
    sweep_option,
    undecided,
    why_doubled,
)
from tierctl.plan.dangling import DANGLING_AGE_MS_MIN
from tierctl.plan.decisions import Decision, DecisionColumns, KeptSegments
from tierctl.plan.preconditions import (
    CurrentTopics,
    newest_replicas,
    why_behind,
    why_never_tiered,
    why_unknown,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import CLOCK_SKEW_MS_MAX, Basis, Plan, Skip, Step, delete_step, step_decisions
from tierctl.plan.views import ClusterViews, PartitionView, view_of_leader, view_of_log, view_of_tier
from tierctl.state.log_start import REPAIR_OF_CUT, CutEpochs
from tierctl.state.tier_state import PartitionState, TierState


def unfinished_copies(
    view: PartitionView, log_start_offset: int, now_ms: int, *, unreferenced_epochs: bool = False
) -> tuple[list[Step], dict[Uuid, Reason]]:
    """Return the deletes of unfinished copies that lie wholly below `log_start_offset`.

    The second value has the reason of each copy that may still run, and has no step.

    If a broker stops during a copy, the segment stays COPY_SEGMENT_STARTED. Brokers delete it with the
    finished segments, because `RemoteLogMetadataManager.listRemoteLogSegments(partition, epoch)` also lists
    the segments in COPY_SEGMENT_STARTED and DELETE_SEGMENT_STARTED
    (RemoteLogLeaderEpochState.listAllRemoteLogSegments), and
    RLMExpirationTask.cleanupExpiredRemoteLogSegments filters none of them out (3.9 to 4.4):

    - In the checkpoint's epochs, RemoteLogRetentionHandler.isSegmentBreachByLogStartOffset deletes a segment
      that ends below the log start, unless one of its epochs is above the checkpoint's first, or the broker
      is copying it (`segmentIdsBeingCopied`). From 4.0 on, it repeats the started deletions before the first
      segment that stays; 3.9 treats those of the lineage as any other segment.
    - In older epochs, deleteLogSegmentsDueToLeaderEpochCacheTruncation deletes each segment, in any state,
      whose epochs are all older than the checkpoint's first entry.

    `breaches.resume_deletions` repeats started deletions. `unreferenced_epochs` also deletes copies of older
    epochs that end above the log start.
    """
    earliest_epoch = view.lineage.first_epoch_from(log_start_offset)
    steps: list[Step] = []
    kept: dict[Uuid, Reason] = {}
    if earliest_epoch is None:
        return steps, kept
    for segment, reason in _below(
        view, log_start_offset, earliest_epoch, unreferenced_epochs=unreferenced_epochs
    ):
        if not _has_ended(view, segment, now_ms):
            kept[segment.segment_id] = _why_kept(segment)
            continue
        steps.append(_step_below(view, segment, reason, log_start_offset, reason.facts))
    return sorted(steps, key=by_start), kept


def _step_below(
    view: PartitionView,
    segment: RemoteLogSegmentMetadata,
    reason: Reason,
    log_start_offset: int,
    facts: Mapping[str, Any],
) -> Step:
    """Return the step that deletes a segment which `reason` deletes once the log starts at an offset."""
    details = {"breach": reason.kind.value, **facts, **view.decided_in}
    if log_start_offset > view.known_log_start_offset:
        # The step must wait for this log start: until then, the segment's epochs are in the checkpoint, and
        # the leader may copy an unfinished segment again.
        details["new_log_start_offset"] = log_start_offset
    return delete_step(segment, reason, **details)


def _below(
    view: PartitionView, log_start_offset: int, earliest_epoch: int, *, unreferenced_epochs: bool
) -> Iterator[tuple[RemoteLogSegmentMetadata, Reason]]:
    """Yield the unfinished copies that a broker deletes if it does not write them, each with the reason."""
    for segment in view.segments.in_state(RemoteLogSegmentState.COPY_SEGMENT_STARTED):
        newest = segment.newest_leader_epoch
        is_below = segment.end_offset < log_start_offset
        if newest < earliest_epoch and (is_below or unreferenced_epochs):
            yield (
                segment,
                Reason(ReasonKind.UNREFERENCED_EPOCHS, earliest_epoch=earliest_epoch, is_unfinished=True),
            )
        elif newest == earliest_epoch and is_below:
            yield (
                segment,
                Reason(ReasonKind.LOG_START_OFFSET, log_start_offset=log_start_offset, is_unfinished=True),
            )


def _has_ended(view: PartitionView, segment: RemoteLogSegmentMetadata, now_ms: int) -> bool:
    """Return whether the copy of `segment` no longer runs.

    It is not enough that its epochs have left the checkpoint: RLMCopyTask lists its candidates once, and
    copies them even if DeleteRecords removes their epochs meanwhile. A broker knows its own copies; tierctl
    does not, so it needs one of two facts:

    - The copy is a broker's, and a later copy finished at or above the segment's end, in its newest epoch or
      a later one of the log. RLMCopyTask begins a copy only above every copied offset of its lineage, and
      copies one segment after the other. When this copy began, no such offset was copied, so its writer, or
      the next leader, has continued since. Deleting the later copy does not lower the highest copied offset.
    - The copy began over 24 hours ago, as for `copy --clean-dangling`.

    A later copy is no evidence for a copy by tierctl (its broker id is negative): tierctl cleans up each copy
    that fails, unless it is killed or the outcome of a write is unknown. Such a write may still reach the
    store, and its object would be left there after DELETE_SEGMENT_FINISHED.

    A deposed leader may not have noticed its replacement; its upload is below the log start, no reader uses
    it, and its COPY_SEGMENT_FINISHED is rejected after DELETE_SEGMENT_STARTED. When the step is applied, the
    lease excludes copies by tierctl, and the fence excludes tiering brokers.
    """
    begun_ms = segment.event_timestamp_ms
    if begun_ms > 0 and now_ms - begun_ms > DANGLING_AGE_MS_MIN:
        return True
    if segment.broker_id is None or segment.broker_id < 0:
        return False
    newest = segment.newest_leader_epoch
    later = (entry.epoch for entry in view.lineage.entries if entry.epoch > newest)
    return view.segments.has_copied_since(segment.segment_id, segment.end_offset, (newest, *later))


def _why_kept(segment: RemoteLogSegmentMetadata) -> Reason:
    return Reason(
        ReasonKind.COPY_MAY_RUN,
        broker_id=segment.broker_id,
        begun=iso_utc(segment.event_timestamp_ms),
        end_offset=segment.end_offset,
    )


def unreferenced_epoch_steps(
    view: PartitionView,
    log_start_offset: int,
    taken: Collection[Uuid | None],
    *,
    off_lineage: bool = False,
    unreferenced_epochs: bool = False,
) -> list[Step]:
    """Return deletes of finished segments whose epochs are all older than the log's earliest epoch.

    RLMExpirationTask deletes these segments after the log start has moved to `log_start_offset` and the
    epochs below it have left the leader-epoch checkpoint. There are two kinds:

    - "unreferenced_epochs": the checkpoint no longer has the epochs, so it can't show whether the segment
      diverged. It is deleted by default if it lies wholly below the log start, otherwise only with
      `unreferenced_epochs` or `off_lineage`.
    - "off_lineage": the checkpoint has the epochs and shows that the segment diverged. It is deleted only
      with `off_lineage`.

    Segments whose id is in `taken` have a step already.
    """
    given = {"", OFF_LINEAGE, UNREFERENCED_EPOCHS} if off_lineage else {""}
    if unreferenced_epochs:
        given.add(UNREFERENCED_EPOCHS)
    steps = []
    for segment, earliest_epoch, option in _of_older_epochs(view, log_start_offset):
        # Segments of the lineage with such epochs are below the log start; `taken` contains them already.
        if segment.segment_id in taken or option not in given:
            continue
        reason = Reason(ReasonKind.UNREFERENCED_EPOCHS, earliest_epoch=earliest_epoch)
        if option == OFF_LINEAGE:
            detail = f"are older than {earliest_epoch}, the log's earliest"
            reason = Reason(ReasonKind.OFF_LINEAGE, detail=detail)
        facts = {"earliest_epoch": earliest_epoch}
        steps.append(_step_below(view, segment, reason, log_start_offset, facts))
    return sorted(steps, key=by_start)


def _of_older_epochs(
    view: PartitionView, log_start_offset: int
) -> Iterator[tuple[RemoteLogSegmentMetadata, int, str | None]]:
    """Yield the finished segments whose epochs are all older than the log's earliest, with that epoch.

    The third item is the option of `sweep` that deletes the segment, as `sweep_option` returns it.
    """
    earliest_epoch = view.lineage.first_epoch_from(log_start_offset)
    if earliest_epoch is None:
        return
    for segment in view.segments.finished_of_epochs_below(earliest_epoch):
        option = sweep_option(view.lineage, segment, log_start_offset, view.log_end_offset)
        yield segment, earliest_epoch, option


_CUT = "the leader epochs of the log were cut"


def deleted_by_epochs(
    view: PartitionView, expiry: Expiry, taken: Collection[Uuid | None], now_ms: int
) -> list[Decision]:
    """Return the deletes of `unreferenced_epoch_steps` that brokers make and this run leaves out.

    What brokers delete beyond this run raises their log start, and more epochs leave their checkpoint.
    Segments whose id is in `taken` have a step. Of two copies from one offset, brokers do not know the first.
    """
    lost_ids = frozenset[Uuid]() if view.cut is None else view.cut.lost_ids
    known = {*taken, *view.segments.doubled_ids, *(each.segment_id for each in expiry.by_brokers)}
    starts = {expiry.log_start_offset: ""}
    if expiry.log_start_of_brokers > expiry.log_start_offset:
        starts[expiry.log_start_of_brokers] = expiry.by_brokers[-1].reason.facts["sweep"]
    found = []
    for log_start_offset, why_not_yet in starts.items():
        for segment, earliest_epoch, option in _of_older_epochs(view, log_start_offset):
            # `why_cut` tells what brokers do with the lost ones before they raise the log start.
            if segment.segment_id in known or (not why_not_yet and segment.segment_id in lost_ids):
                continue
            known.add(segment.segment_id)
            why = why_not_yet or (f"it needs {option}" if view.cut is None else _CUT)
            reason = Reason(ReasonKind.UNREFERENCED_EPOCHS, earliest_epoch=earliest_epoch, sweep=why)
            found.append(Decision.deleted(segment, reason, now_ms))
    return sorted(found, key=lambda each: each.start_offset)


def _as_brokers_see(view: PartitionView, step: Step) -> Step:
    """Return `step`; if brokers never delete its segment, the reason says so."""
    if step.segment_id is None or step.segment_id not in view.segments.doubled_ids:
        return step
    segment = view.segments.cache.get(step.segment_id)
    if segment is None:
        return step
    return replace(step, reason=why_doubled(view, segment, f"sweep deletes it: {step.reason}"))


PartitionKey = tuple[Uuid, int]


@dataclass(slots=True)
class PartitionDecisions:
    """The decisions about one partition."""

    partition: TopicIdPartition
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    log_start_offset: int | None = None
    kept: KeptSegments | None = None
    """Those about segments without a step; None if these are not asked for."""
    explained: tuple[Decision, ...] = ()
    """Those of `kept`, for a plan that has each of them."""
    refused: list[Skip] = field(default_factory=list)
    segments: int | None = None
    """The number of segments, if the partition was decided or has events of the future."""
    ahead: list[str] = field(default_factory=list)
    """The text of each of the first two segments whose event is later than the clock can be."""

    def kept_columns(self, part: PartitionState) -> DecisionColumns:
        """Return the decisions about the segments of `part`, the partition, that have no step."""
        return DecisionColumns.none(part.segment_count) if self.kept is None else self.kept.columns

    def columns(self, part: PartitionState, now_ms: int) -> DecisionColumns:
        """Return the decisions about the segments of `part`, the partition, as of `now_ms`."""
        return self.kept_columns(part).with_decisions(part.segments, step_decisions(self.steps, now_ms))


class Digest(Protocol):
    """Sum up the decisions about partitions where their segments are, for a command that needs no single one.

    It is picklable and consists of classes that `spark.executors.task` decodes.
    """

    def empty(self) -> Self:
        """Return a digest without partitions, that sums up as this one does."""
        ...

    def add(self, part: PartitionState, decisions: PartitionDecisions, /) -> None:
        """Add a partition, whose segments may be read during this call."""
        ...

    def answer(self) -> Self:
        """Return this digest without what only `add` needs: executors return it."""
        ...

    def merge(self, other: Self, /) -> None:
        """Add the partitions of `other`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The arguments of `plan_retention`, with logs and log starts by partition.

    Together they are a question for `TierState.map_parts`.
    """

    logs: Mapping[PartitionKey, LocalLog]
    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    now_ms: int
    log_starts: Mapping[PartitionKey, int]
    lineages: Mapping[PartitionKey, Sequence[EpochEntry]]
    cluster: ClusterViews | None
    off_lineage: bool
    unreferenced_epochs: bool
    explained: Selection | None
    digest: Digest | None
    is_now_given: bool

    @property
    def set_clock(self) -> str:
        """What to do about an event later than `now_ms`."""
        if self.is_now_given:
            return "name a later --now, or leave it out"
        return "set the clock of this machine, or of the broker that wrote the event"

    def __call__(self, state: TierState) -> Iterator[PartitionDecisions | Digest]:
        """Yield the decisions about each partition; with `digest`, no segments of it, and then the digest."""
        digest = None if self.digest is None else self.digest.empty()
        for part in state.by_metadata_partition():
            decisions = _decide(self, state, part)
            if digest is None:
                decisions.explained = tuple(decisions.kept or ())
            else:
                if self.explains(decisions.partition):
                    digest.add(part, decisions)
                decisions.steps = []
            decisions.kept = None
            yield decisions
        if digest is not None:
            yield digest.answer()

    def explains(self, partition: TopicIdPartition) -> bool:
        """Return whether the plan has the segments of `partition` that stay."""
        return self.explained is not None and partition in self.explained


def plan_retention(
    state: TierState,
    logs: Collection[LocalLog],
    configs: Mapping[str, TopicConfig],
    *,
    now_ms: int,
    log_start_offsets: Mapping[TopicPartition, int] | None = None,
    lineages: Mapping[PartitionKey, Sequence[EpochEntry]] | None = None,
    cluster: ClusterViews | None = None,
    off_lineage: bool = False,
    unreferenced_epochs: bool = False,
    topics: CurrentTopics | None = None,
    explained: Selection | None = None,
    digest: Digest | None = None,
    advance: Advance = no_op,
    is_now_given: bool = False,
) -> Plan:
    """Return the plan of a broker's deletes at `now_ms`: a contiguous prefix of each lineage.

    A setting that `configs` lacks sets no limit. `log_start_offsets` raises log starts as DeleteRecords does.
    `lineages` has, for partitions without a log, the entries of the newest finished segment's leader-epoch
    index; retention.bytes deletes none of their segments. With `cluster`, its leaders replace `logs` and
    `lineages`. `topics` are the topics that exist now (default: those of the logs, or of the cluster).

    Segments wholly below the log start whose epochs are all older than the checkpoint's first entry are
    deleted, too, and so are unfinished copies wholly below the log start. `unreferenced_epochs` also deletes
    such segments that end above the log start; `off_lineage` deletes both, and the segments that diverged,
    once the log start has passed their epochs. Where the leader-epoch checkpoint was cut, only what lies
    wholly below the log start is deleted, and both options are refused.

    A step that moves the log start has the detail `new_log_start_offset`; the log start moves before the
    deletion.

    For partitions in `explained`, the plan also has the segments without a step. With `digest`, the decisions
    about these partitions are added to it, and the plan has no segments, because a tier has millions.
    `advance` receives the number of segments of each partition. Nothing is decided for a partition with an
    event more than five minutes after `now_ms`: it is in `Plan.refused`. Raise SafetyRefusal if most
    partitions have such events, which shows that the clock, or the `now_ms` that the command line gives
    (`is_now_given`), is behind; and UsageError for a log start of an unknown partition or above the high
    watermark.
    """
    if topics is None:
        topics = CurrentTopics.of(logs) if cluster is None else cluster.topics
    replicas = newest_replicas(logs) if cluster is None else {}
    ends = {key: log.high_watermark for key, log in replicas.items()}
    if cluster is not None:
        ends = {key: leader.log.log_end_offset for key, leader in cluster.views.items()}
    inputs = _Inputs(
        logs=replicas,
        topics=topics,
        configs=configs,
        now_ms=now_ms,
        log_starts=_resolve(state, replicas, ends, topics, log_start_offsets or {}),
        lineages=lineages or {},
        cluster=cluster,
        off_lineage=off_lineage,
        unreferenced_epochs=unreferenced_epochs,
        explained=explained,
        digest=digest,
        is_now_given=is_now_given,
    )
    decided: dict[TopicIdPartition, PartitionDecisions] = {}
    for found in state.map_parts(inputs):
        if isinstance(found, PartitionDecisions):
            decided[found.partition] = found
            advance(state.partitions[found.partition.key].segment_count)
        elif digest is not None:
            digest.merge(found)
    in_order = {part.topic_id_partition: decided[part.topic_id_partition] for part in state}
    _check_clock(in_order.values(), inputs.set_clock)
    log_starts = {partition: each.log_start_offset for partition, each in in_order.items()}
    return Plan(
        command="sweep",
        steps=tuple(step for each in in_order.values() for step in each.steps),
        read=dict(state.read),
        skipped=tuple(skip for each in in_order.values() for skip in each.skipped),
        basis=Basis(
            configs=configs,
            log_starts={partition: start for partition, start in log_starts.items() if start is not None},
        ),
        kept=tuple(kept for each in in_order.values() for kept in each.explained),
        refused=tuple(skip for each in in_order.values() for skip in each.refused),
    )


def _resolve(
    state: TierState,
    logs: Mapping[PartitionKey, LocalLog],
    ends: Mapping[PartitionKey, int],
    topics: CurrentTopics,
    wanted: Mapping[TopicPartition, int],
) -> dict[PartitionKey, int]:
    """Return the log starts by topic id and number, since several topics may have had the same name."""
    resolved: dict[PartitionKey, int] = {}
    known = topics.named(state, logs.values()) if wanted else {}
    for named, offset in wanted.items():
        meant = known.get(named, [])
        if len(meant) != 1:
            raise UsageError(
                f"--log-start-offset {named}: {len(meant)} known partitions have this name",
                hint="name a partition that the metadata have; with --log-dir, deleted topics do not count",
            )
        end = ends.get(meant[0].key)
        if end is not None and offset > end:
            raise UsageError(f"--log-start-offset {named}={offset} is above the high watermark {end}")
        resolved[meant[0].key] = offset
    return resolved


def _decide(inputs: _Inputs, state: TierState, part: PartitionState) -> PartitionDecisions:
    partition = part.topic_id_partition
    decisions = PartitionDecisions(partition)
    if part.segment_count == 0:
        return decisions
    reason = why_unknown(state, part) or inputs.topics.why_not_current(partition)
    reason = reason or why_never_tiered(partition.topic, inputs.configs)
    if inputs.cluster is not None:
        reason = reason or inputs.cluster.why_unseen(partition)
    if reason:
        decisions.skipped.append(Skip.of(partition, reason))
        if inputs.explains(partition):
            decisions.kept = undecided(part.segments, reason)
        return decisions
    view = _view(inputs, part)
    decisions.segments, decisions.ahead = part.segment_count, _events_ahead(inputs, view)
    if decisions.ahead:
        detail = f"nothing is decided: {decisions.ahead[0]}; {inputs.set_clock}, if the event is not wrong"
        refusal = Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail)
        decisions.skipped.append(Skip.of(partition, refusal))
        decisions.refused += decisions.skipped
        if inputs.explains(partition):
            decisions.kept = undecided(view.segments, refusal)
        return decisions
    if inputs.cluster is not None or partition.key in inputs.logs:
        decisions.log_start_offset = view.log_start_offset
    steps: Sequence[Step]
    notes: Sequence[str]
    why_not = _why_no_lineage(view)
    if why_not:
        steps, notes = resume_deletions(view), (why_not,)
        if inputs.explains(partition):
            decisions.kept = undecided(view.segments, why_not, without=steps)
    else:
        steps, notes = _expired(inputs, view, decisions)
    decisions.steps += steps
    decisions.skipped += [Skip.of(partition, note) for note in notes]
    return decisions


def _view(inputs: _Inputs, part: PartitionState) -> PartitionView:
    partition, segments = part.topic_id_partition, part.segments
    key = partition.key
    if inputs.cluster is not None:
        view = view_of_leader(partition, segments, inputs.cluster.views[key])
    elif log := inputs.logs.get(key):
        view = view_of_log(partition, segments, log)
    else:
        view = view_of_tier(partition, segments, inputs.lineages.get(key, ()))
    return view.raised_to(inputs.log_starts.get(key, 0))


def _events_ahead(inputs: _Inputs, view: PartitionView) -> list[str]:
    """Return a text for each of the first two segments with an event over five minutes after `now_ms`."""
    now_ms, clock = inputs.now_ms, "--now" if inputs.is_now_given else "the clock"
    if view.segments.newest_event_ms() <= now_ms + CLOCK_SKEW_MS_MAX:
        return []
    times = (segment.event_timestamp_ms for segment in view.segments)
    ahead = (at for at in times if at > now_ms + CLOCK_SKEW_MS_MAX)
    return [
        f"{clock} is at {iso_utc(now_ms)}, but {view.partition} has an event of {iso_utc(at)}, "
        f"{(at - now_ms) // 1000} s later"
        for at in islice(ahead, 2)
    ]


def _check_clock(decisions: Iterable[PartitionDecisions], set_clock: str) -> None:
    """Raise SafetyRefusal with the hint `set_clock` if the events of the future show a wrong clock.

    They do if most partitions have one: with one wrong event among others, the clock is not the cause.
    """
    decided = [each for each in decisions if each.segments is not None]
    ahead = [text for each in decided for text in each.ahead]
    is_one_event = len(ahead) == 1 and sum(each.segments or 0 for each in decided) > 1
    if ahead and not is_one_event and 2 * sum(bool(each.ahead) for each in decided) > len(decided):
        raise SafetyRefusal(ahead[0], hint=set_clock)


def _why_no_lineage(view: PartitionView) -> str | None:
    """Return why the lineage does not decide which segments are current; None if it does."""
    if view.lineage.latest is None:
        detail = "no leader epochs are known, so only started deletions are resumed"
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail) if len(view.segments.columns) else detail
    return why_behind(view.segments.latest_epoch(), view.lineage.latest.epoch)


def _expired(
    inputs: _Inputs, view: PartitionView, decisions: PartitionDecisions
) -> tuple[list[Step], Sequence[str]]:
    """Return the steps of retention, and notes.

    Add to `decisions` the unfinished copies that stay and, if asked, every segment without a step.
    """
    config = inputs.configs.get(view.partition.topic)
    is_asked = inputs.unreferenced_epochs or inputs.off_lineage
    if view.cut is not None:
        is_asked = False
    try:
        expiry = expire(view, config or TopicConfig(), inputs.now_ms)
    except RemoteResourceNotFound as e:
        reason, resumed = f"no segment expires: {e.message}", resume_deletions(view)
        if inputs.explains(view.partition):
            decisions.kept = undecided(view.segments, reason, without=resumed)
        return resumed, (reason,)
    resumed, steps = resume_deletions(view, config, expiry), list(expiry.steps)
    steps += unreferenced_epoch_steps(
        view,
        expiry.log_start_offset,
        {step.segment_id for step in steps},
        off_lineage=is_asked and inputs.off_lineage,
        unreferenced_epochs=is_asked,
    )
    deletes, kept = unfinished_copies(
        view, expiry.log_start_offset, inputs.now_ms, unreferenced_epochs=is_asked
    )
    taken = {step.segment_id for step in (*steps, *deletes)}
    by_limits = [each for each in expiry.by_brokers if each.segment_id not in taken]
    by_epochs = deleted_by_epochs(view, expiry, taken, inputs.now_ms)
    if by_epochs:
        expiry = replace(expiry, by_brokers=(*expiry.by_brokers, *by_epochs))
    steps = [_as_brokers_see(view, step) for step in steps] + deletes
    for segment_id, reason in kept.items():
        decisions.skipped.append(Skip.of(view.partition, reason, segment_id))
    if inputs.explains(view.partition):
        try:
            decisions.kept = kept_of(view, expiry, steps, kept)
        except RemoteResourceNotFound as e:
            # Brokers stop at the first segment that stays, and would meet this one later.
            decisions.kept = undecided(view.segments, e.message, without=[*steps, *resumed])
    older = "their epochs are older than the log's earliest" if view.cut is None else _CUT
    notes = [*expiry.notes, *note_of_brokers(by_limits), *note_of_brokers(by_epochs, older)]
    finished = view.segments.finished_range()
    if finished is not None and finished[1] >= LARGEST_OFFSET:
        notes.append(Reason(ReasonKind.NOT_UNDERSTOOD, detail=endless_text(finished[1])))
    if view.cut is not None:
        notes.append(_note_cut(inputs, view.partition, view.cut, decisions))
    if config is None:
        notes.append("no settings are known for this topic, so no segment expires by time or size")
    return [*resumed, *steps], notes


def _note_cut(
    inputs: _Inputs, partition: TopicIdPartition, cut: CutEpochs, decisions: PartitionDecisions
) -> str:
    """Return the note that nothing expires; it is also the refusal of options that would delete segments."""
    asked = {"--off-lineage": inputs.off_lineage, "--unreferenced-epochs": inputs.unreferenced_epochs}
    options = " and ".join(name for name, is_given in asked.items() if is_given)
    refusal = f"{options}: refused, and " if options else ""
    note = f"{refusal}no segment at or above the log start is deleted: {cut}; {REPAIR_OF_CUT}"
    if options:
        decisions.refused.append(Skip.of(partition, note))
    return note
