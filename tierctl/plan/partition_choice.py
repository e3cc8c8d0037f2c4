"""Decide what is published about one partition: its lineage, its log start, the choice of its sets.

The steps that publish the choice are made here, too, for every target.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from tierctl.errors import UsageError
from tierctl.model import (
    LocalLog,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.checked_values import natural_number
from tierctl.model.local import LARGEST_OFFSET
from tierctl.plan.choose_sets import (
    Choice,
    LocalHole,
    LocalOffsets,
    agrees,
    chains,
    choose,
    lineage_of_sets,
    set_key,
    with_ends,
)
from tierctl.plan.preconditions import why_behind
from tierctl.plan.reasons import Reason, ReasonKind, is_not_understood
from tierctl.plan.steps import LINEAGE_EPOCH, STATES, Action, Skip, Step, segment_facts, segment_step
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import Covered, DerivedSets, Log, LogStart, cut_among, log_start_in_force

# Which log start is published where brokers may have raised it: the one that the operator asked for.
#
# `tierctl.state.log_start` finds the log start, and whether a broker may have raised it.

TIER, DISK = "tier", "disk"


@dataclass(frozen=True, slots=True)
class AskedLogStart:
    """The log start to use where brokers raised it: `tier`, `disk`, or an offset."""

    choice: str | int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of --log-start; raise UsageError for an unknown word or a negative offset."""
        if text in {TIER, DISK}:
            return cls(text)
        offset = natural_number(text)
        if offset is None:
            raise UsageError(
                f"--log-start {text}: expected {TIER}, {DISK} or an offset",
                hint=f"{TIER}: as the newest segment's objects say; {DISK}: as the checkpoint files say",
            )
        return cls(offset)


def decided_start(found: LogStart, asked: AskedLogStart | None) -> int | None:
    """Return the log start with which to publish; None if it may be damaged and no choice was given.

    An offset that was asked for must be possible (`why_impossible`).
    """
    if found.raised_from is None:
        return found.offset
    if asked is None:
        return None
    if asked.choice == TIER:
        return found.raised_from
    return asked.choice if isinstance(asked.choice, int) else found.offset


def why_impossible(found: LogStart, asked: AskedLogStart | None) -> str | None:
    """Return why a log can't start at the offset that was asked for; None if it can, or none was asked."""
    if asked is None or not isinstance(asked.choice, int) or asked.choice == found.offset:
        return None
    wanted = f"--log-start {asked.choice} is not possible"
    if found.raised_from is None:
        return (
            f"{wanted}: the log start is {found.offset}, and no complete segments that join it are below it, "
            "so nothing was damaged and it stays"
        )
    if asked.choice < found.raised_from:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the complete "
            f"segments that join the log begin at {found.raised_from}"
        )
    if asked.choice > found.offset:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the log start "
            f"is {found.offset}; DeleteRecords raises it once the brokers run"
        )
    return None


_SHOWN_MAX = 3
_BESIDE = "it is not given up beside sets that are not understood: {reason}{unsound}"
_SEALED = (
    "its manifest has other leader epochs than the log, and its leader-epoch index is encrypted: "
    "--aiven-private-key lets them be compared"
)
_NEEDED = (
    "{sets}: whether the log needs them is unknown, and no log start or end is derived from their absence; "
    "make them readable, or set their objects aside outside of the tier"
)


def reason_of(each: ObjectSet) -> Reason:
    """Return why nothing is decided about a set that is not understood."""
    detail = f"{each.why_not_understood}; it may be the only copy, so nothing is published about it"
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail)


def without_unproven(sets: Sequence[ObjectSet], lineage: Lineage) -> tuple[list[ObjectSet], list[ObjectSet]]:
    """Return the sets without those whose leader epochs contradict the lineage and prove nothing.

    These come second, as not understood. The manifest of a set whose key is missing is no proof that it is
    off the lineage. Leader epochs that begin above the set's start are those of the first segment of a log,
    in which the log start was raised before it was copied (RLMCopyTask cuts the epochs there); a lineage that
    reaches further down shows that they lost entries.
    """
    reasons = [_why_unproven(each, lineage) for each in sets]
    kept = [each for each, reason in zip(sets, reasons, strict=True) if reason is None]
    return kept, [
        replace(each, segment=None, why_not_understood=reason, stated_end_offset=each.shown_end_offset)
        for each, reason in zip(sets, reasons, strict=True)
        if reason is not None
    ]


def _why_unproven(each: ObjectSet, lineage: Lineage) -> str | None:
    own = each.segment
    if own is None or agrees(own, lineage):
        return None
    if each.is_sealed:
        return _SEALED
    if own.segment_leader_epochs[0][1] > own.start_offset:
        return f"its leader epochs do not reach down to offset {own.start_offset}, those of the log do"
    return None


def beside(reason: str, unsound: Mapping[Uuid, str]) -> Reason:
    """Return why a set that would be given up for `reason` is not, beside one that is not understood.

    `unsound` has, by segment id, why the bytes of segments that may serve its offsets are not sound.
    """
    shown = [f"; segment {key}: {why}" for key, why in list(unsound.items())[:_SHOWN_MAX]]
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=_BESIDE.format(reason=reason, unsound="".join(shown)))


def with_all_sets(
    choice: Choice, unclear: Sequence[ObjectSet], own: Sequence[ObjectSet], unsound: Mapping[Uuid, str]
) -> Choice:
    """Return `choice`, made among the sets `own`, with the `unclear` sets of the partition; they are left.

    No set is discarded beside them, or beside `unsound` segments: which sets serve its offsets, and which
    lineage is the log's, may be known from the unclear sets alone, and it may be the only sound copy.
    """
    if not unclear and not unsound:
        return choice
    sets = {set_key(each): each for each in own}
    kept = tuple(
        (each, beside(reason, unsound))
        for segment, reason in choice.discarded
        if (each := sets.get((segment.segment_id, segment.start_offset))) is not None
    )
    left = (*choice.left, *kept, *((each, reason_of(each)) for each in unclear))
    return replace(choice, discarded=(), left=left)


def without(sets: Iterable[ObjectSet], others: Iterable[ObjectSet]) -> list[ObjectSet]:
    """Return the `sets` that are not among `others`."""
    keys = {set_key(each) for each in others}
    return [each for each in sets if set_key(each) not in keys]


def needless_halves(
    choice: Choice,
    unclear: Sequence[ObjectSet],
    own: Sequence[ObjectSet],
    *,
    start_offset: int,
    local: LocalOffsets | None,
) -> list[ObjectSet]:
    """Return those of the `unclear` sets that lack an object, and that no reader needs, as incomplete sets.

    Their logs are whole, and the chain and the `local` log serve all offsets that these have, or they end
    below the log start of a local log. `own` are the other sets. Offsets beyond the end of the local log are
    not this log's.
    """
    log_end = LARGEST_OFFSET if local is None else local.end
    served = Covered([*_spans(choice, own), *([] if local is None else [(local.start, local.end - 1)])])
    return [
        replace(each, why_not_understood=None, why_incomplete=each.why_not_understood)
        for each in unclear
        if (end := each.log_end) is not None
        and (
            (
                each.listed.start_offset < log_end
                and served.has_all(each.listed.start_offset, min(end.offset + 1, log_end))
            )
            or (local is not None and end.offset < start_offset)
        )
    ]


def why_needed(
    choice: Choice,
    unclear: Sequence[ObjectSet],
    own: Sequence[ObjectSet],
    *,
    start_offset: int,
    local: LocalOffsets | None,
) -> Reason | None:
    """Return why the partition can't be decided without the `unclear` sets; None if it can.

    `own` are the other sets. The log begins at `start_offset`, which is known only with a `local` log.
    """
    spans = _spans(choice, own)
    served = Covered(spans)
    needed = [
        each for each in unclear if _is_needed(each.listed.start_offset, spans, served, start_offset, local)
    ]
    if not needed:
        return None
    texts = list(_texts(needed[:_SHOWN_MAX]))
    if len(needed) > _SHOWN_MAX:
        texts.append(f"and {len(needed) - _SHOWN_MAX} more sets")
    detail = _NEEDED.format(sets="; ".join(texts))
    if choice.hole is not None:
        detail += f"; no set has offsets {choice.hole.first} to {choice.hole.last} that is understood"
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail)


def joined(needed: Reason | None, other: str | None) -> str | None:
    """Return both reasons to refuse a partition as one, which is that of sets that are not understood."""
    if needed is None or other is None:
        return needed or other
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{needed.facts['detail']}; {other}")


def why_end_unknown(choice: Choice, *, after_hole: bool) -> str | None:
    """Return which set may have records where a new log would continue the chain; None if none may.

    An incomplete set, whose upload may have been interrupted, does not count if `after_hole` gives it up, or
    without a chain: an empty log begins at offset 0 when asked for.
    """
    above = sets_above(choice)
    unclear = [each for each in above if each.why_not_understood]
    if unclear:
        texts = "; ".join(_texts(unclear[:_SHOWN_MAX]))
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=_NEEDED.format(sets=texts))
    if after_hole or not above or not choice.chain:
        return None
    texts = "; ".join(_texts(above[:_SHOWN_MAX]))
    return (
        "incomplete sets may have records that no other set has, and new records would get their offsets: "
        f"{texts}; --after-hole gives these up, and the log goes on at {choice.next_offset}"
    )


def sets_above(choice: Choice, end: int | None = None) -> list[ObjectSet]:
    """Return the sets that may have records after the chain and below offset `end`, which can't be read.

    They are incomplete, or not understood: of such a set that begins within the last segment of the chain it
    is unknown where it ends.
    """
    last = choice.chain[-1].start_offset if choice.chain else -1
    following = choice.next_offset or 0
    return [
        each
        for each, _ in choice.left
        if each.segment is None
        and (
            each.listed.start_offset >= (last if each.why_not_understood else following)
            or reaches_above(choice, each)
        )
        and (end is None or end > max(each.listed.start_offset, following))
    ]


def reaches_above(choice: Choice, each: ObjectSet) -> bool:
    """Return whether a set has offsets after those that the chain serves, as far as its objects show.

    Replicas roll at different offsets, so that a set may begin below other segments and end above them.
    """
    return (choice.next_offset or 0) <= each.shown_end_offset < LARGEST_OFFSET


def _is_needed(
    start: int,
    spans: Sequence[tuple[int, int]],
    served: Covered,
    log_start: int,
    local: LocalOffsets | None,
) -> bool:
    """Return whether the log may need the records of an unclear set that begins at `start`.

    Its end is unknown. `served` has the offsets of `spans`.
    """
    if local is not None and not spans:
        return max(start, log_start) < local.start
    if not spans:
        return True
    first, end = spans[0][0], spans[-1][1]
    if start < first:
        return local is None or log_start < first
    if start > end:
        # Without a local log only a restore decides where the log ends.
        return local is not None and not local.start <= start < local.end
    return not served.has_all(start, start + 1)


def _spans(choice: Choice, own: Sequence[ObjectSet]) -> list[tuple[int, int]]:
    """Return the offsets of the records in each segment of the chain; both inclusive."""
    ends = {set_key(each): each.segment.end_offset for each in own if each.segment}
    # The choice may raise an end to the next segment's start, over the offsets of an unclear set.
    return [
        (s.start_offset, min(s.end_offset, ends.get((s.segment_id, s.start_offset), s.end_offset)))
        for s in choice.chain
    ]


def _texts(sets: Sequence[ObjectSet]) -> Iterator[str]:
    for each in sets:
        listed, why = each.listed, each.why_not_understood or each.why_incomplete
        yield f"segment {listed.segment_id} from offset {listed.start_offset}: {why}"


_S = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInputs:
    """The inputs of the decision about one partition.

    `sets` are its sets of objects, `known` the states of its segments in the remaining metadata. `leader` is
    the log that decides: the newest replica's, or the leader's on a cluster; None without brokers. `replicas`
    are the logs of all replicas in log directories. `why_no_log` is the reason if there are brokers and the
    log that decides is missing: then no event may be published. `unsound` has, by segment id, why the bytes
    of a segment in `serving` are damaged, or can't be read: no set is given up beside one. `local_holes` are
    those of `LocalOffsets`, if the files of the leader's log can be read.
    """

    partition: TopicIdPartition
    sets: Sequence[ObjectSet]
    known: Mapping[Uuid, RemoteLogSegmentState] = field(default_factory=dict)
    leader: Log | None = None
    replicas: Sequence[LocalLog] = ()
    why_no_log: str | None = None
    unsound: Mapping[Uuid, str] = field(default_factory=dict)
    local_holes: Mapping[int, LocalHole] = field(default_factory=dict)

    @property
    def serving(self) -> list[RemoteLogSegmentMetadata]:
        """The finished segments with offsets of other sets, which may have the only sound copy of these.

        A set counts up to the last offset that its objects show; one of which no offset is known, as its
        first offset.
        """
        spans: list[tuple[int, int]] = []
        finished: list[RemoteLogSegmentMetadata] = []
        for each in self.sets:
            state = self.known.get(each.listed.segment_id)
            if state is _S.COPY_SEGMENT_FINISHED:
                finished += [] if each.segment is None else [each.segment]
            elif state not in GOING:
                spans.append((each.listed.start_offset, each.shown_end_offset))
        return [s for s in finished if any(a <= s.end_offset and s.start_offset <= b for a, b in spans)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDecision:
    """The events to publish about a partition, or with `refused` the reason to publish none.

    `log_start` is the log start as it was found, `start_offset` the one with which segments are published.
    `choice` has a place for every set, also if the partition is refused because its log may need a set that
    is not understood.
    """

    choice: Choice
    lineage: Lineage
    log_start: LogStart
    start_offset: int
    refused: str | None = None
    is_damaged: bool = False


def decide_partition(inputs: PartitionInputs, asked: AskedLogStart | None = None) -> PartitionDecision:
    """Return what is published about one partition.

    A partition is refused if a broker may have raised its log start and `asked` is None, if its log can't
    start at the offset that was asked for, if the local log does not join the tier, if publishing would make
    the leader delete records that only it has, if its leader epochs were cut, if the log may need a set that
    is not understood, and if the log that decides is missing.
    """
    going = [each for each in inputs.sets if inputs.known.get(each.listed.segment_id) not in GOING]
    unclear = [each for each in going if each.why_not_understood is not None]
    usable = [each for each in going if each.why_not_understood is None]
    leader = () if inputs.leader is None else inputs.leader.leader_epochs
    lineage = lineage_of_sets(usable, leader)
    usable, unproven = without_unproven(usable, lineage)
    unclear += unproven
    finished = {key for key, state in inputs.known.items() if state is _S.COPY_SEGMENT_FINISHED}
    log = inputs.leader
    local = None
    if log is not None:
        local = LocalOffsets(log.local_log_start_offset, log.log_end_offset, inputs.local_holes)
    ends = with_ends(usable, lineage, known=finished, local=local, unclear=unclear)
    good = [each for each in ends.sets if each.segment is not None and agrees(each.segment, lineage)]
    logs: Collection[Log] = inputs.replicas or ([] if inputs.leader is None else [inputs.leader])
    found = log_start_in_force(list(logs), DerivedSets(chains(good, finished), good))
    start = decided_start(found, asked)
    impossible = why_impossible(found, asked)
    if start is None or impossible is not None:
        return PartitionDecision(
            choice=Choice(left=tuple((each, reason_of(each)) for each in unclear)),
            lineage=lineage,
            log_start=found,
            start_offset=found.offset,
            refused=impossible or _damage(found),
            is_damaged=found.raised_from is not None,
        )
    unclear += [each for each in ends.unclear if each.log_end is None or each.log_end.offset >= start]
    usable = without(usable, unclear)
    choose_among = partial(choose, lineage=lineage, log_start_offset=start, local=local, known=finished)
    choice = choose_among(usable, unclear=unclear)
    needless = needless_halves(choice, unclear, usable, start_offset=start, local=local)
    if needless:
        usable, unclear = [*usable, *needless], without(unclear, needless)
        choice = choose_among(usable, unclear=unclear)
    needed = why_needed(choice, unclear, usable, start_offset=start, local=local)
    return PartitionDecision(
        choice=with_all_sets(choice, unclear, usable, inputs.unsound),
        lineage=lineage,
        log_start=found,
        start_offset=start,
        refused=inputs.why_no_log
        or _behind(inputs)
        or _cut(usable, lineage, start, local)
        or joined(needed, _apart(choice, start, local)),
        is_damaged=found.raised_from is not None,
    )


GOING = {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}
"""States of segments that no reader uses any more."""


def _damage(found: LogStart) -> str:
    start = f"the log start is {found.offset}"
    if found.checkpoint is not None:
        start = f"the log start is {found.checkpoint}, but the leader epochs begin at {found.offset}"
    return (
        f"{start}, and complete segments from {found.raised_from} on, which join it, "
        "are still in the tier: a broker that knew no segments may have raised it, or one that was cut below "
        "its local log, or retention did and the objects are not deleted yet"
    )


def _behind(inputs: PartitionInputs) -> str | None:
    """Return why the leader's log can't judge the sets; None if it can."""
    if inputs.leader is None:
        return None
    latest = inputs.leader.leader_epochs[-1].epoch if inputs.leader.leader_epochs else -1
    newest = max(
        (each.segment.segment_leader_epochs[-1][0] for each in inputs.sets if each.segment), default=-1
    )
    reason = why_behind(newest, latest)
    return None if reason is None else f"{reason}; name the log directories of all replicas"


def _cut(
    sets: Sequence[ObjectSet], lineage: Lineage, start_offset: int, local: LocalOffsets | None
) -> str | None:
    """Return why the lineage can't judge the sets, because it lost entries; None if it did not."""
    segments = [s for each in sets if (s := each.segment) is not None and s.end_offset >= start_offset]
    good = [(s.start_offset, s.end_offset) for s in segments if agrees(s, lineage)]
    cut = cut_among(
        lineage,
        segments,
        good if local is None else [*good, (local.start, local.end - 1)],
        log_start_offset=start_offset,
        log_end_offset=max((end + 1 for _, end in good), default=start_offset)
        if local is None
        else local.end,
    )
    return (
        None if cut is None else f"{cut}; put back the leader-epoch-checkpoint of another replica or a backup"
    )


def _apart(choice: Choice, start_offset: int, local: LocalOffsets | None) -> str | None:
    """Return why chain and local log are not one log; None if they are, or without one of them."""
    first, following = choice.first_offset, choice.next_offset
    if first is None or following is None or local is None:
        return None
    if following < local.start:
        return (
            f"a gap: the tier ends at offset {following - 1} and the local log begins at "
            f"{local.start}, so the records between are lost and readers would stall there"
        )
    if local.end < following:
        return (
            f"the tier has offsets up to {following - 1} and the local log ends at {local.end}: its log "
            "directory was replaced, or the log was truncated, so the leader would give offsets of the tier "
            "to other records"
        )
    if max(start_offset, local.start) < first:
        return (
            f"the tier begins at offset {first} and the local log has records from "
            f"{max(start_offset, local.start)} on: a leader that learns of these segments deletes its "
            "records below them"
        )
    return None


def why_undecided(decision: PartitionDecision, *, after_hole: bool) -> str | None:
    """Return why nothing is decided about a partition; None if it is, or if `after_hole` accepts the hole.

    Sets that are not understood may leave a hole, or be the first of the log: only the option says that the
    log begins above them. They and the sets below them are left.
    """
    refused, choice = decision.refused, decision.choice
    if not is_not_understood(refused):
        return refused
    first = choice.first_offset
    if first is None or not any(
        is_not_understood(reason) and each.listed.start_offset < first for each, reason in choice.left
    ):
        return refused
    if after_hole:
        return None
    said = f"--after-hole begins the log at {first}"
    if choice.hole is not None:
        hole = choice.hole
        said = f"no set of objects has offsets {hole.first} to {hole.last} and is understood: {said}"
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{said}; {refused.facts['detail']}")


def why_refused(decision: PartitionDecision, *, after_hole: bool) -> str | None:
    """Return why a partition can't be restored completely; None if it can, or `after_hole` accepts it."""
    reason = (
        why_undecided(decision, after_hole=after_hole)
        or why_end_unknown(decision.choice, after_hole=after_hole)
        or why_holed(decision.choice, after_hole=after_hole)
    )
    if reason is None and not after_hole and not decision.choice.chain:
        return "the tier has no complete segment of it: --after-hole begins with an empty log at offset 0"
    return reason


def why_holed(choice: Choice, *, after_hole: bool) -> str | None:
    """Return which offsets below the chain are lost; None if none are, or `after_hole` accepts it."""
    if after_hole:
        return None
    if choice.hole is not None:
        return (
            f"no set of objects has offsets {choice.hole.first} to {choice.hole.last}: --after-hole begins "
            "the log after them"
        )
    for each, reason in choice.left:
        if is_lost_below(choice, reason):
            # The log may begin only above it.
            what = f"is not complete ({each.why_incomplete})" if each.segment is None else f"is {reason}"
            return (
                f"the set of objects from offset {each.listed.start_offset} on {what}: --after-hole begins "
                f"the log at {choice.first_offset}"
            )
    return None


def is_lost_below(choice: Choice, reason: Reason) -> bool:
    """Return whether a set that is left for `reason` may have the only copy of an offset below the chain."""
    first = choice.first_offset
    return first is not None and reason.kind is ReasonKind.NOT_SERVED and reason.facts["start_offset"] < first


def segment_steps(inputs: PartitionInputs, decision: PartitionDecision) -> Iterator[Step]:
    """Yield the steps that publish the chain in order of offsets, then those of discarded sets."""
    damaged = {each.listed.segment_id: each.damaged_indexes for each in inputs.sets}
    yield from (
        publish_step(segment, inputs.known, decision, damaged.get(segment.segment_id, ()))
        for segment in decision.choice.chain
        if inputs.known.get(segment.segment_id) is not _S.COPY_SEGMENT_FINISHED
    )
    yield from (
        _segment_step(Action.DISCARD_SEGMENT, segment, reason, _DISCARDED, decision)
        for segment, reason in decision.choice.discarded
        if segment.segment_id not in inputs.known
    )


_UNINDEXED = "brokers fail to read it until tierctl verify --deep --plan-out has derived it from the log"
_PUBLISHED = (_S.COPY_SEGMENT_STARTED, _S.COPY_SEGMENT_FINISHED)
_DISCARDED = (_S.COPY_SEGMENT_STARTED, _S.DELETE_SEGMENT_STARTED)


def publish_step(
    segment: RemoteLogSegmentMetadata,
    known: Mapping[Uuid, RemoteLogSegmentState],
    decision: PartitionDecision,
    damaged_indexes: Sequence[str] = (),
) -> Step:
    """Return the step that publishes the lacking events of a segment that the decision's chain has.

    `known` are the states of the segments in the metadata; the reason names the segment's `damaged_indexes`.
    """
    hole = next((each for each in decision.choice.compacted if each.last == segment.end_offset), None)
    detail = "" if hole is None else f"; no set has a record from {hole.first} to {hole.last}: compacted once"
    if damaged_indexes:
        detail += f"; its {' and '.join(damaged_indexes)} can't be used: {_UNINDEXED}"
    reason = Reason(ReasonKind.ON_LINEAGE, first=segment.start_offset, last=segment.end_offset, detail=detail)
    states = _PUBLISHED[1:] if known.get(segment.segment_id) is _S.COPY_SEGMENT_STARTED else _PUBLISHED
    return _segment_step(Action.PUBLISH_SEGMENT, segment, reason, states, decision)


def _segment_step(
    action: Action,
    segment: RemoteLogSegmentMetadata,
    reason: Reason,
    states: Sequence[RemoteLogSegmentState],
    decision: PartitionDecision,
) -> Step:
    custom = segment.custom_metadata
    details = {
        STATES: ",".join(states),
        **segment_facts(segment),
        "custom_metadata": None if custom is None else custom.hex(),
        LINEAGE_EPOCH: decision.lineage.entries[-1].epoch,
    }
    return segment_step(action, segment, reason, details)


def skips_of(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield the sets about which no event is published, except those with correct metadata."""
    partition = inputs.partition
    for each, reason in choice.left:
        yield Skip.of(partition, reason, each.listed.segment_id)
    for each in inputs.sets:
        state = inputs.known.get(each.listed.segment_id)
        if state in GOING:
            yield Skip.of(
                partition, Reason(ReasonKind.ALREADY_KNOWN, state=str(state)), each.listed.segment_id
            )
    for segment, _ in choice.discarded:
        state = inputs.known.get(segment.segment_id)
        if state is not None:
            yield Skip.of(partition, Reason(ReasonKind.ALREADY_KNOWN, state=str(state)), segment.segment_id)
    if choice.hole is not None:
        is_lost = not any(is_not_understood(reason) for _, reason in choice.left)
        sets, what = ("set", "these records are lost, and ") if is_lost else ("usable set", "")
        yield Skip.of(
            partition,
            f"no {sets} has offsets {choice.hole.first} to {choice.hole.last}: {what}the log begins at "
            f"{choice.first_offset}",
        )


def unused_of(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield every set that is not in the chain, where no event is planned about those that are discarded."""
    yield from skips_of(inputs, choice)
    for segment, reason in choice.discarded:
        if segment.segment_id not in inputs.known:
            yield Skip.of(inputs.partition, reason, segment.segment_id)


def unclear_skips(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield the sets whose records are unknown, because they are incomplete or not understood."""
    for each, reason in choice.left:
        if each.segment is None or is_not_understood(reason):
            yield Skip.of(inputs.partition, reason, each.listed.segment_id)
