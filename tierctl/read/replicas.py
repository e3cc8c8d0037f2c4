"""Choose the replica to read, and find the lineage of leader epochs by its log or by the tier."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierctl.errors import AuthenticationError, CorruptInputError, ObjectArchived, RemoteResourceNotFound
from tierctl.model import IndexType, LocalLog, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.read.index_lookup import IndexFetcher, Report
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import extended_below, start_within
from tierctl.state.partition_segments import PartitionSegments
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The replica to read, with the high watermark and last stable offset of all replicas, exclusive."""

    log: LocalLog
    lineage: Lineage
    high_watermark: int
    last_stable_offset: int


def choose_replica(logs: Sequence[LocalLog]) -> Replica | None:
    """Return the most recent replica of one partition: latest leader epoch, then highest end offset.

    The high watermark of another replica holds for this one, too, up to the offset at which they diverge.
    """
    if not logs:
        return None
    log = max(logs, key=lambda log: (_latest_epoch(log), log.log_end_offset, log.high_watermark))
    lineage = Lineage(log.leader_epochs)
    common = [(other, _common_end(lineage, other, log.log_end_offset)) for other in logs]
    return Replica(
        log=log,
        lineage=lineage,
        high_watermark=max(min(other.high_watermark, end) for other, end in common),
        last_stable_offset=max(min(other.last_stable_offset, end) for other, end in common),
    )


def _latest_epoch(log: LocalLog) -> int:
    return log.leader_epochs[-1].epoch if log.leader_epochs else -1


def _common_end(lineage: Lineage, other: LocalLog, log_end_offset: int) -> int:
    """Return the offset at which `other`'s log diverges from the lineage, exclusive."""
    if not lineage or not other.leader_epochs:
        return log_end_offset if lineage.entries == tuple(other.leader_epochs) else 0
    return max(lineage.end_offset_for(_latest_epoch(other), log_end_offset).end_offset, 0)


def tier_lineage(cache: RemoteLogMetadataCache, fetcher: IndexFetcher, report: Report) -> Lineage:
    """Return the lineage up to the newest readable segment, by its leader-epoch index.

    If that index is missing, damaged or may not be read, the lineage is built from the epochs of the
    segments; damage and refusals are reported. The lineage begins with the first segment, also if the index
    begins above it (`start_within`).
    """
    segments = PartitionSegments.of_cache(cache)
    newest = segments.newest()
    if newest is None:
        return Lineage()
    source = f"the leader-epoch index of remote segment {newest.segment_id}"
    try:
        data = fetcher.get(newest, IndexType.LEADER_EPOCH)
        lineage = Lineage(read_leader_epoch_checkpoint(data))
        if lineage.contains(newest, newest.end_offset + 1):
            return _from_first_segment(lineage, segments)
        report(_not_of(newest, lineage, source))
    except CorruptInputError as e:
        report(e.within(source))
    except (AuthenticationError, ObjectArchived) as e:
        report(e)
    except RemoteResourceNotFound:
        pass
    return lineage_from_segments(cache.list_remote_log_segments())


def _from_first_segment(lineage: Lineage, segments: PartitionSegments) -> Lineage:
    index_start = lineage.entries[0].start_offset
    first = min(segments.finished_before(index_start), key=lambda s: s.start_offset, default=None)
    if first is None:
        return lineage
    extended = Lineage(extended_below(lineage.entries, segments))
    return extended.truncate_from_start(start_within(first, index_start))


def lineage_from_segments(segments: Iterable[RemoteLogSegmentMetadata]) -> Lineage:
    """Return the lineage that the leader epochs of readable segments form.

    An epoch belongs to the lineage if it starts before all later epochs of the lineage.
    """
    starts: dict[int, int] = {}
    for segment in segments:
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            for epoch, start in segment.segment_leader_epochs:
                starts[epoch] = min(start, starts.get(epoch, start))
    # `Lineage` removes an epoch if a later epoch has the same or a lower start offset.
    return Lineage(sorted(starts.items()))


def _not_of(segment: RemoteLogSegmentMetadata, lineage: Lineage, source: str) -> CorruptInputError:
    return CorruptInputError(
        "leader epochs",
        expected=f"those of the segment, {list(segment.segment_leader_epochs)}",
        found=repr(lineage),
        source=source,
    )
