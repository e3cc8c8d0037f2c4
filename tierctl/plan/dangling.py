"""Which unfinished copies `copy` deletes: dangling ones, and those of its own killed runs.

A dangling copy was started and did not finish, and its writer no longer runs. Brokers copy such a segment
again under a new id; the first copy stays COPY_SEGMENT_STARTED for ever, possibly with objects in the store.
tierctl withdraws the copies of its own killed runs before it copies their segments again: the lease of the
tier shows that their run has ended.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.model.times import iso_utc
from tierctl.plan.reasons import RESUMED
from tierctl.plan.steps import Skip, Step, delete_step
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache, segments_in_lineage
from tierctl.state.log_start import Covered
from tierctl.state.tier_state import PartitionState

_S = RemoteLogSegmentState
Range = tuple[int, int]
"""The first and the last offset of a range."""

DANGLING_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""The age up to which no copy counts as dangling: a slow upload of a large segment may still be running."""

DANGLING_REASON = "dangling copy"
WITHDRAWN_REASON = "its copy was begun by a run of tierctl that was killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dangling:
    """The rule for dangling copies: older than 24 hours, and written by a broker that is not in `alive`."""

    now_ms: int
    alive: Collection[int] = ()

    def clean(
        self, part: PartitionState, held: Iterable[Range] | None = None
    ) -> tuple[list[Step], list[Skip]]:
        """Return steps that delete the partition's dangling copies, and the reasons for leaving other copies.

        A copy is left if `held`, the offsets that are known to be elsewhere or needed by nobody, lacks one of
        its offsets; None if the caller decides that. Deletions that were started are resumed.
        """
        elsewhere = None if held is None else Covered(held)
        steps: list[Step] = []
        skipped: list[Skip] = []
        for segment in part.cache.list_remote_log_segments():
            if segment.state is _S.DELETE_SEGMENT_STARTED:
                steps.append(delete_step(segment, RESUMED, breach="resume"))
            if segment.state is not _S.COPY_SEGMENT_STARTED:
                continue
            reason = self._why_not(segment)
            if reason is None and elsewhere is not None and not is_held(segment, elsewhere):
                reason = _ONLY_COPY
            if reason:
                skipped.append(Skip.of(part.topic_id_partition, reason, segment.segment_id))
            else:
                facts = {"event_timestamp_ms": segment.event_timestamp_ms, "broker_id": segment.broker_id}
                steps.append(delete_step(segment, DANGLING_REASON, **facts))
        return steps, skipped

    def _why_not(self, segment: RemoteLogSegmentMetadata) -> str | None:
        age_ms = self.now_ms - segment.event_timestamp_ms
        if segment.event_timestamp_ms <= 0 or age_ms <= DANGLING_AGE_MS_MIN:
            return f"a copy was started at {iso_utc(segment.event_timestamp_ms)} and may still be running"
        if segment.broker_id in self.alive:
            return f"a copy was started by broker {segment.broker_id}, which is alive"
        return None


_ONLY_COPY = (
    "neither the finished segments of the log's lineage nor the local log have all of its offsets, so its "
    "objects may be the only ones: verify --plan-out plans to finish it"
)


def is_held(segment: RemoteLogSegmentMetadata, elsewhere: Covered) -> bool:
    """Return whether all offsets of `segment` are `elsewhere`."""
    return elsewhere.has_all(segment.start_offset, segment.end_offset + 1)


def served_ranges(cache: RemoteLogMetadataCache, lineage: Lineage) -> list[Range]:
    """Return the offsets that finished segments serve to the readers of a log with this lineage."""
    return [(span.from_offset, span.to_offset) for span in segments_in_lineage(cache, lineage)]


def held_ranges(part: PartitionState, lineage: Lineage, source: Iterable[Range]) -> list[Range]:
    """Return the ranges of `source` and those that the partition's finished segments serve.

    Without an unfinished copy nobody needs them, and the list is empty.
    """
    is_needed = part.segments.count_in(_S.COPY_SEGMENT_STARTED) > 0
    return [*source, *served_ranges(part.cache, lineage)] if is_needed else []


def withdraw(part: PartitionState, writer: int, held: Collection[Range]) -> Iterator[Step]:
    """Yield steps that delete the copies of ended runs, which have the broker id `writer` in their events.

    Deletions that these runs started are resumed. A copy is kept if `held`, the offsets that can be copied
    again or are served, lacks one of its offsets: a rebuild that was killed leaves such segments, and their
    objects may be the only ones.
    """
    elsewhere = Covered(held)
    for segment in part.cache.list_remote_log_segments():
        if segment.broker_id != writer:
            continue
        if segment.state is _S.DELETE_SEGMENT_STARTED:
            yield delete_step(segment, RESUMED, breach="resume")
        elif segment.state is _S.COPY_SEGMENT_STARTED and is_held(segment, elsewhere):
            yield delete_step(segment, WITHDRAWN_REASON)
