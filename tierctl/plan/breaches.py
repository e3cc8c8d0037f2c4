"""RLMExpirationTask for one partition: which segments of its lineage breach a limit and are deleted."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import pairwise
from typing import Self

import numpy as np

from tierctl.errors import RemoteResourceNotFound
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicConfig, Uuid
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.selection import counted
from tierctl.model.settings import topic
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import CopyBefore, Decision, DecisionColumns, KeptSegments, Limits
from tierctl.plan.reasons import (
    RESUMED,
    SIZE_NOT_KNOWN,
    Reason,
    ReasonKind,
    cleaned_text,
    no_age_text,
    note_of,
)
from tierctl.plan.steps import FOLLOWS, Step, delete_step
from tierctl.plan.views import COPY_STARTED, PartitionView
from tierctl.state.lineage import Lineage, segments_in_lineage
from tierctl.state.log_start import Covered, CutEpochs
from tierctl.state.queries import PartitionSegments
from tierctl.state.table_arrays import STATES
from tierctl.wire.arrays import Bools, Int64s

COPY_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
OFF_LINEAGE, UNREFERENCED_EPOCHS = "--off-lineage", "--unreferenced-epochs"
"""The options of `sweep` that delete segments which the lineage does not have."""


def has_age(segment: RemoteLogSegmentMetadata, now_ms: int) -> bool:
    """Return whether the largest timestamp of `segment` shows its age: it is set, and not in the future."""
    return 0 < segment.max_timestamp_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRetention:
    """The segment that stops retention.ms of its partition, and since when; None if nothing is due yet."""

    segment: RemoteLogSegmentMetadata
    since_ms: int | None
    is_in_future: bool

    @classmethod
    def by(
        cls,
        blocking: RemoteLogSegmentMetadata | None,
        behind: Iterable[RemoteLogSegmentMetadata],
        config: TopicConfig,
        now_ms: int,
    ) -> Self | None:
        """Return the stall if `blocking`, the oldest segment that stays, stays because of its timestamp.

        A segment whose largest timestamp is in the future does not expire by time, and neither do the
        segments after the first one that stays (`behind`). One whose largest timestamp is 0 or less stays in
        `sweep` only: RLMExpirationTask of Kafka 3.9 to 4.4 compares it as any other.
        """
        if blocking is None or config.retention_ms < 0 or has_age(blocking, now_ms):
            return None
        times_ms = (s.max_timestamp_ms for s in behind if has_age(s, now_ms))
        since_ms = min((at_ms + config.retention_ms for at_ms in times_ms), default=now_ms)
        return cls(
            segment=blocking,
            since_ms=since_ms if since_ms < now_ms else None,
            is_in_future=blocking.max_timestamp_ms > now_ms,
        )

    @property
    def message(self) -> str:
        """The stall in words, with the segment's id and the time since which segments behind it are due."""
        since, due = "no segment behind it is due yet", ""
        if self.since_ms is not None:
            since = f"since {iso_utc(self.since_ms)}"
            due = f"; the first segment behind it has been due since {iso_utc(self.since_ms)}"
        segment = self.segment
        stays = "neither this segment nor any behind it expires by time"
        if not self.is_in_future:
            stays = "sweep expires neither this segment nor any behind it by time, but brokers do"
        return (
            f"{topic.RETENTION_MS.name} is stalled ({since}) by segment {segment.segment_id} from offset "
            f"{segment.start_offset}: its {no_age_text(segment.max_timestamp_ms, self.is_in_future)}, "
            f"so {stays}{due}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The deletions by start offset, the log start after them, and notes on segments that stay.

    `stalled` is the segment that stops retention.ms in brokers. `by_brokers` are deletes of brokers that this
    run leaves out, because it is more careful; `limits` are the limits after the deletes of brokers. Of the
    begun deletions, brokers resume `resumed` (segment ids) in their next run, and may stop at `begun`.
    """

    steps: tuple[Step, ...]
    log_start_offset: int
    notes: tuple[str, ...]
    stalled: StalledRetention | None
    limits: "Limits"
    by_brokers: tuple[Decision, ...] = ()
    resumed: Collection[Uuid] = ()
    begun: Sequence[RemoteLogSegmentMetadata] = ()

    @property
    def log_start_of_brokers(self) -> int:
        """The log start after the deletes of brokers, too."""
        ends = (each.end_offset + 1 for each in self.by_brokers if each.end_offset is not None)
        return max(self.log_start_offset, *ends, 0)


def by_start(step: Step) -> tuple[int, str]:
    """Return the key that orders the steps about segments of a partition."""
    return step.start_offset or 0, step.segment_id or ""


def resume_deletions(
    view: PartitionView, config: TopicConfig | None = None, expiry: Expiry | None = None
) -> list[Step]:
    """Return steps that finish every started deletion; consumers no longer read these segments.

    With `expiry`, decided with `config`, a reason states until when brokers leave the deletion as it is.
    """
    begun = view.segments.in_state(DELETE_STARTED)
    reasons = ((s, RESUMED if expiry is None else _why_resumed(view, s, config, expiry)) for s in begun)
    return sorted((delete_step(s, reason, breach="resume") for s, reason in reasons), key=by_start)


def _why_resumed(
    view: PartitionView, segment: RemoteLogSegmentMetadata, config: TopicConfig | None, expiry: Expiry
) -> Reason:
    """Return the reason of the step that finishes a started deletion."""
    newest, earliest = segment.newest_leader_epoch, view.lineage.first_epoch_from(expiry.log_start_of_brokers)
    if segment.segment_id in expiry.resumed or (earliest is not None and newest < earliest):
        return RESUMED
    is_listed = _is_listed(view, segment, config or TopicConfig())
    later = "retention has reached it" if is_listed else f"the log has no leader epoch up to {newest}"
    return Reason(ReasonKind.DELETE_STARTED, later=later)


def expire(view: PartitionView, config: TopicConfig, now_ms: int) -> Expiry:
    """Return what retention.ms, retention.bytes and the log start offset delete of the current lineage.

    Segments expire from the oldest live one to the first that breaches no limit or follows a hole. As in
    brokers, an unfinished copy that breaches no limit ends the run, too; one that breaches a limit, which
    brokers delete first, is passed. Then every segment of the lineage wholly below the new log start is
    deleted. A hole ends the run so that the operator sees it, and can go on by raising the log start above
    it. With a cut leader-epoch checkpoint no limit counts: the log is longer than its epochs say, so its
    oldest segments are not the oldest of the lineage.
    """
    applied = config if view.cut is None else TopicConfig()
    live, over_bytes, notes = _live_and_excess(view, applied)
    limits = Limits(applied, now_ms, over_bytes)
    steps: dict[str, Step] = {}
    log_start_offset = view.log_start_offset
    covered: int | None = None
    hole: Reason | None = None
    remaining = iter(live)
    blocking: RemoteLogSegmentMetadata | None = None
    for segment in remaining:
        if segment.end_offset < log_start_offset:
            # A longer copy of the same offsets has expired, and its bytes were already subtracted from the
            # excess.
            continue
        is_unfinished = segment.state is COPY_STARTED
        reason = limits.breach(segment, is_counted=not is_unfinished)
        if reason is None:
            blocking = segment
            limits.holder = segment if is_unfinished else None
            break
        if is_unfinished:
            continue
        hole = None if covered is None else _hole(view, covered + 1, segment.start_offset - 1)
        if hole:
            notes.append(hole)
            break
        covered = max(segment.end_offset, -1 if covered is None else covered)
        facts = {"breach": reason.settings[0], **reason.facts, **view.decided_in}
        steps[segment.segment_id] = delete_step(
            segment, reason, **facts, new_log_start_offset=segment.end_offset + 1
        )
        log_start_offset = max(log_start_offset, segment.end_offset + 1)
    if view.segments.count_finished_below(log_start_offset) > len(steps):
        for segment in _below(view, log_start_offset):
            if segment.segment_id not in steps:
                steps[segment.segment_id] = _below_step(view, segment, log_start_offset)
    stalled = StalledRetention.by(blocking, remaining, applied, now_ms)
    if stalled is not None:
        notes.append(note_of(stalled.message))
    else:
        notes += _note_of_holder(limits, remaining)
    swept = Expiry(
        steps=_chained(sorted(steps.values(), key=by_start)),
        log_start_offset=log_start_offset,
        notes=tuple(notes),
        stalled=stalled,
        limits=limits,
    )
    return _with_brokers(view, config, swept, hole)


def _with_brokers(view: PartitionView, config: TopicConfig, swept: Expiry, hole: Reason | None) -> Expiry:
    """Return `swept`, what `sweep` deletes, with what brokers delete in their next run beyond that.

    `hole` is the hole of the tier at which `sweep` ends.
    """
    counted = _CountedByBrokers.of(view, config)
    why = _why_careful(view, hole, swept.stalled, counted)
    begun = _begun_deletions(view, config)
    if why is None and not begun:
        return swept
    limits = Limits(
        config, swept.limits.now_ms, counted.over_bytes, is_size_known=counted.is_known, sweep=why
    )
    acted = {step.segment_id for step in swept.steps if step.segment_id is not None}
    by_brokers, resumed, stalled = _deleted_by_brokers_only(view, config, limits, acted, begun)
    if not config.kafka_version.counts_begun_deletions:
        begun = []
    swept = replace(swept, resumed=resumed, begun=[s for s in begun if s.segment_id not in resumed])
    if why is None:
        return swept
    return replace(swept, stalled=stalled, limits=limits, by_brokers=by_brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedByBrokers:
    """The bytes above retention.bytes as brokers count them, negative below it.

    `also` has the bytes among them that `sweep` does not count, by what they are. Unless it `is_known`, the
    size of the log lacks its local part.
    """

    over_bytes: int = 0
    also: Mapping[str, int] = field(default_factory=dict)
    is_known: bool = True

    @classmethod
    def of(cls, view: PartitionView, config: TopicConfig) -> Self:
        """Return what brokers count for a partition with the settings `config`.

        Kafka 3.9 to 4.4 count each finished segment that an epoch of the log lists with its whole size
        (RemoteLogManager.buildRetentionSizeData), also below the log start, and do not subtract the latter
        when they are deleted. Before 4.0 they count segments whose deletion has begun, and before 4.4 the
        local segment that begins at the last copied offset.
        """
        if config.retention_bytes < 0:
            return cls()
        try:
            tier_bytes = int(view.live.column("size").sum(dtype=np.int64))
        except RemoteResourceNotFound:
            # Brokers fail in the same way, and delete nothing.
            return cls()
        also = {
            "below the log start": _bytes_below(view),
            "of offsets that several segments have": tier_bytes - view.live_bytes,
        }
        if config.kafka_version.counts_begun_deletions:
            begun = _begun_deletions(view, config)
            also["of segments whose deletion has begun"] = sum(s.segment_size_in_bytes for s in begun)
        if config.kafka_version.counts_last_offset_twice:
            also["of the local segment from the last copied offset on"] = _bytes_from_last(view)
        size_bytes = view.live_bytes + (view.local_only_bytes or 0) + sum(also.values())
        return cls(
            over_bytes=size_bytes - config.retention_bytes,
            also={what: count for what, count in also.items() if count},
            is_known=view.local_only_bytes is not None,
        )


def _bytes_below(view: PartitionView) -> int:
    """Return the bytes of the finished segments below the log start that brokers list."""
    doubled = view.segments.doubled_ids
    below = _below(view, view.log_start_offset)
    return sum(s.segment_size_in_bytes for s in below if s.segment_id not in doubled)


def _begun_deletions(view: PartitionView, config: TopicConfig) -> list[RemoteLogSegmentMetadata]:
    """Return the segments whose deletion has begun and that a run of brokers may reach."""
    return [s for s in view.segments.in_state(DELETE_STARTED) if _is_listed(view, s, config)]


def _is_listed(view: PartitionView, segment: RemoteLogSegmentMetadata, config: TopicConfig) -> bool:
    """Return whether a run of brokers may reach `segment`, whose deletion has begun.

    From 4.0 on they resume each that an epoch of the log lists; before, they treat those of the lineage as
    any other segment.
    """
    if config.kafka_version.counts_begun_deletions:
        return view.current.contains(segment, view.log_end_offset)
    return any(epoch in view.current.epochs_with_records for epoch, _ in segment.segment_leader_epochs)


def _bytes_from_last(view: PartitionView) -> int:
    """Return the bytes of the local segment that begins at the last copied offset.

    A leader does not tell where its segments begin: there, the last copied one counts if it has one offset.
    """
    if view.bytes_from_highest is not None:
        return view.bytes_from_highest
    if view.local_start_offset is None or view.local_start_offset > view.highest_copied:
        return 0
    is_last = view.live.column("start") == view.highest_copied
    return int(view.live.column("size")[is_last].sum(dtype=np.int64))


def _why_careful(
    view: PartitionView, hole: Reason | None, stalled: StalledRetention | None, counted: _CountedByBrokers
) -> str | None:
    """Return why `sweep` may keep segments that brokers delete in their next run; None if it does not."""
    if view.cut is not None:
        return "the leader epochs of the log were cut"
    if hole is not None:
        return f"the tier has a hole {hole.facts['hole']}"
    if stalled is not None and not stalled.is_in_future:
        segment = stalled.segment
        which = f"segment {segment.segment_id} from offset {segment.start_offset}"
        return f"the largest timestamp of {which} is {segment.max_timestamp_ms}, which is no time"
    if not counted.is_known:
        return SIZE_NOT_KNOWN
    also = " and ".join(f"{count} bytes {what}" for what, count in counted.also.items())
    return f"brokers also count {also}" if also else None


def _deleted_by_brokers_only(
    view: PartitionView,
    config: TopicConfig,
    limits: "Limits",
    steps: Collection[str],
    begun: Sequence[RemoteLogSegmentMetadata],
) -> tuple[tuple[Decision, ...], set[Uuid], StalledRetention | None]:
    """Return what brokers delete next and has no step in `steps`, and what stops retention.ms.

    The second value has the ids of the `begun` deletions that they resume.

    `limits` are those of brokers; each deletion reduces their excess, also one of `steps` that only their run
    after the next makes. Brokers go on behind holes, and delete the copies in them that were not finished.
    They delete nothing where an epoch lists a segment that is gone.
    """
    found, resumed = [], set()
    is_retried = not config.kafka_version.counts_begun_deletions
    remaining = _listed(view, begun)
    blocking = None
    try:
        for segment in remaining:
            is_begun = segment.state is DELETE_STARTED
            if is_begun and (is_retried or segment.end_offset < view.log_start_offset):
                resumed.add(segment.segment_id)
                continue
            reason = limits.breach(segment)
            is_gone = segment.segment_id in steps
            if reason is None and not is_gone:
                blocking = segment
                limits.holder = segment if segment.state is not COPY_FINISHED else None
                break
            if reason is None:
                limits.subtract(segment)
            elif is_begun:
                resumed.add(segment.segment_id)
            elif not is_gone:
                found.append(Decision.deleted(segment, reason, limits.now_ms))
        return tuple(found), resumed, StalledRetention.by(blocking, remaining, config, limits.now_ms)
    except RemoteResourceNotFound:
        return (), set(), None


def _listed(
    view: PartitionView, begun: Iterable[RemoteLogSegmentMetadata] = ()
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the live segments, the ended copies and the deletions that have `begun` as RLMExpirationTask."""
    others = [*view.ended_copies, *begun]
    if not others:
        yield from view.iter_live()
        return
    order = {epoch: number for number, epoch in enumerate(view.current.epochs_with_records)}

    def key(segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
        first = min(order.get(epoch, len(order)) for epoch, _ in segment.segment_leader_epochs)
        return first, segment.start_offset

    yield from merge(view.iter_live(), sorted(others, key=key), key=key)


def _note_of_holder(limits: "Limits", behind: Iterator[RemoteLogSegmentMetadata]) -> list[Reason]:
    """Return a note if the segment behind the unfinished copy that stays breaches a limit."""
    holder, segment = limits.holder, None
    if holder is not None:
        # An epoch that lists a segment which is gone was not read yet: brokers stop before it, too.
        with suppress(RemoteResourceNotFound):
            segment = next(behind, None)
    if holder is None or segment is None or copy(limits).breach(segment) is None:
        return []
    copy_of = f"the unfinished copy {holder.segment_id} from offset {holder.start_offset}"
    note = f"nothing from offset {segment.start_offset} on expires: brokers stop at {copy_of}"
    return [note_of(f"{note}, which breaches no limit; {cleaned_text(holder.broker_id)}")]


def note_of_brokers(deleted: Sequence[Decision], why_careful: str | None = None) -> list[Reason]:
    """Return a note if brokers delete segments that this run keeps; the first one's reason says why."""
    if not deleted:
        return []
    what = counted(len(deleted), "more segment")
    end = max(each.end_offset or 0 for each in deleted)
    where = f"offsets {deleted[0].start_offset} to {end}"
    why = why_careful or deleted[0].reason.facts["sweep"]
    return [note_of(f"brokers would delete {what} ({where}), sweep does not: {why}")]


def _chained(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, each with the id of the one before it: steps may be removed from a saved plan."""
    chained = list(steps[:1])
    for before, step in pairwise(steps):
        chained.append(replace(step, details={**step.details, FOLLOWS: before.segment_id}))
    return tuple(chained)


def _live_and_excess(
    view: PartitionView, config: TopicConfig
) -> tuple[Iterable[RemoteLogSegmentMetadata], int, list[str]]:
    """Return what `_listed` yields, the bytes above retention.bytes, and a note if these can't be computed.

    The bytes are negative below the limit. Of the segments only those up to the first that stays are needed.
    """
    timed = _listed(view) if config.retention_ms >= 0 else ()
    if config.retention_bytes < 0:
        return timed, 0, []
    if view.local_only_bytes is None:
        return timed, 0, [f"{topic.RETENTION_BYTES.name} deletes nothing: {SIZE_NOT_KNOWN}"]
    return _listed(view), view.local_only_bytes + view.live_bytes - config.retention_bytes, []


def _hole(view: PartitionView, from_offset: int, to_offset: int) -> Reason | None:
    """Return a reason to stop at the first offset up to `to_offset` that no segment of the lineage has.

    Return None if there is no such offset. The offsets of segments that are being deleted are not missing.
    """
    if from_offset > to_offset:
        return None
    spans = [(s.start_offset, s.end_offset) for s in view.segments.in_state(DELETE_STARTED)]
    readable = segments_in_lineage(view.segments.cache, view.current, from_offset, to_offset)
    spans += [(span.from_offset, span.to_offset) for span in readable]
    at = Covered(spans).first_missing(from_offset)
    return Reason(ReasonKind.BEHIND_HOLE, hole=f"from {at} to {to_offset}") if at <= to_offset else None


def _below(view: PartitionView, log_start_offset: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments of the lineage that lie wholly below the log start, readable or not."""
    for segment in view.segments.finished_below(log_start_offset):
        if view.lineage.contains(segment, view.log_end_offset):
            yield segment


def _below_step(view: PartitionView, segment: RemoteLogSegmentMetadata, log_start_offset: int) -> Step:
    return delete_step(
        segment,
        Reason(ReasonKind.LOG_START_OFFSET, log_start_offset=log_start_offset),
        breach="log_start_offset",
        **view.decided_in,
        new_log_start_offset=log_start_offset,
    )


def kept_of(
    view: PartitionView, expiry: Expiry, steps: Collection[Step], unfinished: Mapping[Uuid, Reason]
) -> KeptSegments:
    """Return the decisions about the segments that have no step in `steps` and are not being deleted.

    `expiry` is the result of retention for the partition, and `steps` are all its deletes. `unfinished` has
    the reasons, by segment id, of the unfinished copies below the log start. Raises as `PartitionView.live`.
    """
    segments, live = view.segments, view.segments.columns
    columns = DecisionColumns.none(len(live))
    is_kept = _without(segments, steps) & (live.states != STATES.index(DELETE_STARTED))
    by_brokers = _by_place(segments, expiry.by_brokers)
    made = {place: each for place, each in by_brokers.items() if is_kept[place]}
    is_kept_live = is_kept.copy()
    is_kept_live[list(made)] = False
    places = segments.places_of(view.live.rows)
    places = places[is_kept_live[places]]
    why = expiry.limits.why_kept(segments.of_rows(live.rows[places]), _copies_before(view, expiry, places))
    columns.copy(places, why.columns())
    at_live = np.full(len(is_kept), -1, np.int64)
    at_live[places] = np.arange(len(places))
    for place in np.flatnonzero(is_kept & (at_live < 0)).tolist():
        if place not in made:
            segment = live.metadata(place)
            made[place] = Decision.kept(segment, _why_not_live(view, segment, unfinished))
    for place, decision in made.items():
        columns.put(place, decision.reason, decision.due_ms)

    def decide(place: int) -> Decision:
        at = int(at_live[place])
        return made[place] if at < 0 else Decision.kept(live.metadata(place), why.reason(at))

    return KeptSegments(columns, decide)


def _copies_before(view: PartitionView, expiry: Expiry, places: Int64s) -> list[CopyBefore]:
    """Return the segments that are not finished at which brokers stop, before the live ones at `places`."""
    if not view.ended_copies and not expiry.begun:
        return []
    holder = expiry.limits.holder
    holder_id = None if holder is None else holder.segment_id
    found: list[CopyBefore] = []
    kept, at = set(places.tolist()), 0
    for segment in _listed(view, expiry.begun):
        if segment.state is COPY_FINISHED:
            at += view.segments.place(segment.segment_id) in kept
        elif at or found or segment.segment_id == holder_id:
            # Those before the one at which brokers stop are deleted now.
            found.append(CopyBefore(at, segment))
    return found


def _without(segments: PartitionSegments, steps: Iterable[Step]) -> Bools:
    """Return which segments have no step in `steps`, in order of arrival."""
    is_without = np.ones(len(segments.columns), np.bool_)
    places = (segments.place(step.segment_id) for step in steps)
    is_without[[place for place in places if place is not None]] = False
    return is_without


def _by_place(segments: PartitionSegments, decisions: Iterable[Decision]) -> dict[int, Decision]:
    """Return decisions about `segments` by their places in the order of arrival."""
    found = ((segments.place(each.segment_id), each) for each in decisions)
    return {place: each for place, each in found if place is not None}


def _why_not_live(
    view: PartitionView, segment: RemoteLogSegmentMetadata, unfinished: Mapping[Uuid, Reason]
) -> Reason:
    """Return why an unfinished copy stays, or a segment beside the lineage or below the log start."""
    if segment.state is not COPY_STARTED:
        return _why_beside(view, segment)
    begun = iso_utc(segment.event_timestamp_ms)
    copying = Reason(ReasonKind.COPY_STARTED, broker_id=segment.broker_id, begun=begun)
    return unfinished.get(segment.segment_id, copying)


def sweep_option(
    lineage: Lineage, segment: RemoteLogSegmentMetadata, log_start_offset: int, log_end_offset: int
) -> str | None:
    """Return the option of `sweep` that deletes a finished segment which no limit of the topic deletes.

    It is empty if `sweep` needs none: the segment lies wholly below the log start, and is of the lineage or
    of epochs that the checkpoint no longer has. Return None if a log start further on must come first.
    """
    is_below = segment.end_offset < log_start_offset
    if is_below and lineage.contains(segment, log_end_offset):
        return ""
    newest, known = segment.newest_leader_epoch, lineage.earliest
    earliest_epoch = lineage.first_epoch_from(log_start_offset)
    if known is None or earliest_epoch is None or newest >= earliest_epoch:
        return None
    if newest >= known.epoch:
        return OFF_LINEAGE
    return "" if is_below else UNREFERENCED_EPOCHS


def swept_text(option: str | None, *, is_cut: bool = False) -> str:
    """Return how `sweep` deletes a segment, by `sweep_option`; it has no option if the epochs `is_cut`."""
    if option is None:
        return "sweep deletes it once it lies wholly below the log start offset"
    if option and is_cut:
        return "sweep does not delete it before the leader epochs that were cut are back"
    return f"{f'sweep {option}'.rstrip()} deletes it now"


def why_doubled(view: PartitionView, segment: RemoteLogSegmentMetadata, sweep: str) -> Reason:
    """Return why brokers keep a segment of `doubled_ids`; `sweep` states what `sweep` does with it."""
    again_as = view.segments.doubled_by(segment)
    return Reason(ReasonKind.DOUBLED_SEGMENT, again_as=again_as, sweep=sweep)


def undecided(segments: PartitionSegments, reason: str, without: Collection[Step] = ()) -> KeptSegments:
    """Return that every segment of a partition without a step in `without` stays; `reason` is why."""
    found, live = Reason.of(reason), segments.columns
    columns = DecisionColumns.none(len(live))
    columns.fill(_without(segments, without), found.kind)
    return KeptSegments(columns, lambda place: Decision.kept(live.metadata(place), found))


def _why_beside(view: PartitionView, segment: RemoteLogSegmentMetadata) -> Reason:
    """Return how the epochs of `segment` differ from those of the log, or that a later copy replaced it."""
    if segment.end_offset >= LARGEST_OFFSET:
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=endless_text(segment.end_offset))
    if view.cut is not None and segment.segment_id in view.cut.lost_ids:
        return why_cut(view.cut, view.segments, segment, "the log")
    if segment.segment_id in view.segments.doubled_ids:
        option = sweep_option(view.lineage, segment, view.log_start_offset, view.log_end_offset)
        return why_doubled(view, segment, swept_text(option, is_cut=view.cut is not None))
    theirs = ", ".join(f"{epoch}@{start}" for epoch, start in segment.segment_leader_epochs)
    known = ", ".join(f"{epoch}@{start}" for epoch, start in view.current.entries)
    detail = f"{theirs} are not those of the log: {known}, up to offset {view.log_end_offset}"
    return Reason(ReasonKind.OFF_LINEAGE, detail=detail)


def endless_text(end_offset: int) -> str:
    """Return why a segment that ends at the largest offset stays: no log start can be above it."""
    return f"the metadata have a segment that ends at offset {end_offset}, which no log has: it stays"


def why_cut(cut: CutEpochs, known: PartitionSegments, segment: RemoteLogSegmentMetadata, log: str) -> Reason:
    """Return what brokers do with a segment that the cut `log` lost: the first of two copies stays."""
    is_deleted = cut.is_deleted_by_brokers(segment) and segment.segment_id not in known.doubled_ids
    what = f"a broker deletes it once it leads with the cut leader epochs of {log}" if is_deleted else "kept"
    return Reason(ReasonKind.CUT_EPOCHS, is_deleted=is_deleted, detail=f"{what}: {cut}")
