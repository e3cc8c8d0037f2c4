"""The lineage of a log from the leader-epoch indexes of its segments, or from their own epochs alone."""

from collections.abc import Iterable, Sequence

from tierctl.model import EpochEntry, ObjectSet, RemoteLogSegmentMetadata
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map


def lineage_of_sets(sets: Iterable[ObjectSet], leader: Sequence[EpochEntry] = ()) -> Lineage:
    """Return the lineage of a log down to the first offset that the complete `sets` or `leader` know.

    `leader` are the epochs in the leader's checkpoint. Without them the lineage ends with the set of the
    highest last epoch, and of these of the highest end.
    """
    complete = sorted(
        ((each.segment, each.lineage) for each in sets if each.segment is not None),
        key=lambda pair: (pair[0].segment_leader_epochs[-1][0], pair[0].end_offset),
        reverse=True,
    )
    indexes = [entries for _, entries in complete if entries]
    # Each set has its own epochs, also where its leader-epoch index can't be read.
    chained = chain_by_epochs([segment for segment, _ in complete])
    if leader:
        return merge_lineage(leader, [*indexes, chained])
    newest_index = complete[0][1] if complete else None
    return merge_lineage(newest_index or chained, [*indexes, chained])


def merge_lineage(newest: Sequence[EpochEntry], others: Iterable[Sequence[EpochEntry]]) -> Lineage:
    """Return `newest` extended downwards by the lineages of earlier times, `others`, the latest first.

    Where another lineage begins lower, its entries with smaller epochs are taken, and its start for the epoch
    with which `newest` begins.
    """
    merged = list(newest)
    for entries in others:
        if not entries or not merged:
            merged = merged or list(entries)
            continue
        first = merged[0]
        if entries[0].start_offset >= first.start_offset:
            continue
        lower = [e for e in entries if e.epoch < first.epoch and e.start_offset < first.start_offset]
        own = [e for e in entries if e.epoch == first.epoch and e.start_offset < first.start_offset]
        merged = [*lower, *(own or [first]), *merged[1:]]
    return Lineage(merged)


def chain_by_epochs(segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[EpochEntry, ...]:
    """Return the lineage that the epochs of the segments show, without their leader-epoch indexes.

    The chain begins with the segment of the highest last epoch, then of the highest end. The predecessor of a
    segment is the one that ends right before it, whose last epoch is at most the segment's first, and of
    these the one with the highest last epoch. Each epoch starts at its first offset in the chain.
    """
    if not segments:
        return ()
    by_end: dict[int, list[RemoteLogSegmentMetadata]] = {}
    for segment in segments:
        by_end.setdefault(segment.end_offset, []).append(segment)
    current: RemoteLogSegmentMetadata | None = max(segments, key=_recency)
    starts: dict[int, int] = {}
    while current is not None:
        starts |= dict(current.segment_leader_epochs)
        first = current.segment_leader_epochs[0][0]
        before = [
            s for s in by_end.get(current.start_offset - 1, ()) if s.segment_leader_epochs[-1][0] <= first
        ]
        current = max(before, key=_recency, default=None)
    return Lineage(sorted(starts.items())).entries


def _recency(segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return (segment.segment_leader_epochs[-1][0], segment.end_offset)


def agrees(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Return whether the segment's epochs are those of the lineage at its offsets.

    Epochs without records do not count. A segment that a leader of another lineage copied disagrees, also if
    it has the same offsets and size.
    """
    within = lineage.entries_in_range(segment.start_offset, segment.end_offset + 1)
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    return bool(within) and own == build_filtered_leader_epoch_map(dict(within))
