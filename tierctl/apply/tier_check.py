"""Check that --remote names the tier that the metadata describe, before a run changes anything in it.

A mistyped bucket or prefix looks like a tier without objects. Without this check, a sweep would publish its
segments as deleted and leave their objects in the real tier forever, and a copy would go where no broker
reads. Object keys contain the segment id, so one object of one known segment identifies the tier.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from tierctl.apply.run_context import RunContext
from tierctl.errors import CorruptInputError, RemoteTierMissing, SafetyRefusal, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid

WITNESSES_MAX = 8
"""The number of other segments to look for before the tier counts as another one."""

_THREADS = 8
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_Segments = Sequence[RemoteLogSegmentMetadata]


def require_known_tier(partitions: Collection[TopicIdPartition], context: RunContext) -> None:
    """Raise RemoteTierMissing if the tier has no object of any finished segment that was looked for.

    Segments of `partitions` are looked for first. Without a finished segment every tier is accepted.
    """
    if context.allow_missing_objects:
        return
    witnesses = list(islice(_witnesses(partitions, (), context), WITNESSES_MAX))
    if witnesses and not _has_objects_of_any(witnesses, context):
        raise _missing(witnesses[0], context)


def why_not_deletable(segments: _Segments, context: RunContext) -> dict[Uuid, TierctlError]:
    """Return an error for each COPY_SEGMENT_FINISHED segment of which the tier has no object, by segment id.

    Segments in another state may have no objects, because their copy or deletion was interrupted; they are
    accepted if the tier has objects of another segment, or if there is no other segment to look for.
    Raise RemoteTierMissing if the tier has objects of none of these segments.
    """
    if context.allow_missing_objects or not segments:
        return {}
    finished = [segment for segment in segments if segment.state is _FINISHED]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = zip(finished, pool.map(lambda segment: _why_not(segment, context), finished), strict=True)
        errors = {segment.segment_id: error for segment, error in found if error is not None}
    if len(errors) < len(finished):
        return errors
    begun = [segment for segment in segments if segment.state is not _FINISHED]
    partitions = {segment.topic_id_partition for segment in segments}
    witnesses = list(islice(_witnesses(partitions, segments, context), WITNESSES_MAX))
    if not _has_objects_of_any([*begun[:WITNESSES_MAX], *witnesses], context):
        for error in errors.values():
            if isinstance(error, RemoteTierMissing):
                raise error
        if witnesses:
            raise _missing(witnesses[0], context)
    return errors


def _why_not(segment: RemoteLogSegmentMetadata, context: RunContext) -> TierctlError | None:
    try:
        return None if context.remote.objects_of(segment) else _missing(segment, context)
    except RemoteTierMissing:
        raise
    except TierctlError as e:
        return e


def _has_objects_of_any(segments: _Segments, context: RunContext) -> bool:
    for segment in segments:
        try:
            if context.remote.objects_of(segment):
                return True
        except (SafetyRefusal, CorruptInputError):
            # This segment cannot identify the tier. The step that deletes it reports the error.
            continue
    return False


def _witnesses(
    partitions: Collection[TopicIdPartition], excluded: _Segments, context: RunContext
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the newest finished segment of each partition, without `excluded`; `partitions` come first."""
    keys = {partition.key for partition in partitions}
    excluded_ids = {segment.segment_id for segment in excluded}
    parts = sorted(context.metadata.state, key=lambda part: part.topic_id_partition.key not in keys)
    for part in parts:
        found = (s for s in part.cache.list_remote_log_segments() if s.segment_id not in excluded_ids)
        newest = max((s for s in found if s.state is _FINISHED), key=lambda s: s.start_offset, default=None)
        if newest is not None:
            yield newest


def _missing(segment: RemoteLogSegmentMetadata, context: RunContext) -> RemoteTierMissing:
    return RemoteTierMissing(
        f"the tier has no object of segment {segment.segment_id} of {segment.topic}-{segment.partition}, "
        f"which the metadata say is finished; looked for {context.remote.name_of(segment)}",
        hint="are --remote (bucket, prefix) and --layout right? If its objects are known to be lost: "
        "--allow-missing-objects",
    )
