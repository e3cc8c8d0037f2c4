"""Decide what is published about one partition: its lineage, its log start, and the choice of its sets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tierctl.model import (
    LocalLog,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.choice import Choice, chains, choose
from tierctl.plan.rebuild.ends import LocalHole, LocalOffsets, with_ends
from tierctl.plan.rebuild.lineage import agrees, lineage_of_sets
from tierctl.plan.rebuild.log_start import AskedLogStart, decided_start, why_impossible
from tierctl.plan.rebuild.not_understood import (
    is_not_understood,
    joined,
    needless_halves,
    reason_of,
    why_needed,
    with_all_sets,
    without,
    without_sealed,
)
from tierctl.state.cut_epochs import cut_among
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import DerivedSets, Log, LogStart, log_start_in_force

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
    usable, sealed = without_sealed(usable, lineage)
    unclear += sealed
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
        "are still in the tier: a broker that knew no segments may have raised it, or retention did and the "
        "objects are not deleted yet"
    )


def _behind(inputs: PartitionInputs) -> str | None:
    """Return why the leader's log can't judge the sets; None if it can."""
    if inputs.leader is None:
        return None
    latest = inputs.leader.leader_epochs[-1].epoch if inputs.leader.leader_epochs else -1
    newest = max(
        (each.segment.segment_leader_epochs[-1][0] for each in inputs.sets if each.segment), default=-1
    )
    if newest <= latest:
        return None
    return (
        f"the log is behind: its latest leader epoch is {latest}, the tier has epoch {newest}; name the log "
        "directories of all replicas"
    )


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
