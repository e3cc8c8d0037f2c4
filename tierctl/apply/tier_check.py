"""Whether the tier at hand is the one that the metadata speak of; asked before anything is begun in it.

A mistyped bucket or prefix looks like a tier whose objects are all gone. Taken for one, its segments would be
written down as deleted, and their objects stay where they truly are for good; or segments be copied to where
no broker looks for them. A segment's id is in its keys, so one object of one segment tells.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from tierctl.apply.run_context import Tools
from tierctl.errors import CorruptInputError, RemoteTierMissing, SafetyRefusal, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid

WITNESSES_MAX = 8
"""Segments that are looked for, besides those to be deleted, before the tier is taken for another one."""

_LOOKERS = 8
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_Segments = Sequence[RemoteLogSegmentMetadata]


def require_known_tier(partitions: Collection[TopicIdPartition], tools: Tools) -> None:
    """RemoteTierMissing when the tier shows none of the segments that the metadata say are finished.

    Those of `partitions` are looked for first; where nothing is finished, no tier can be told from another.
    """
    if tools.allow_missing_objects:
        return
    witnesses = list(islice(_witnesses(partitions, (), tools), WITNESSES_MAX))
    if witnesses and not _shows_any(witnesses, tools):
        raise _missing(witnesses[0], tools)


def why_not_deletable(segments: _Segments, tools: Tools) -> dict[Uuid, TierctlError]:
    """Of the segments of which the tier shows nothing although they are COPY_SEGMENT_FINISHED: the error.

    Those whose deletion, or copy, was begun may have no object any more, or not yet; that counts as long as
    another segment's objects are there, or there is none to know the tier by. RemoteTierMissing when none of
    all that should be there is.
    """
    if tools.allow_missing_objects or not segments:
        return {}
    finished = [segment for segment in segments if segment.state is _FINISHED]
    with ThreadPoolExecutor(_LOOKERS) as pool:
        found = zip(finished, pool.map(lambda segment: _why_not(segment, tools), finished), strict=True)
        errors = {segment.segment_id: error for segment, error in found if error is not None}
    if len(errors) < len(finished):
        return errors
    begun = [segment for segment in segments if segment.state is not _FINISHED]
    partitions = {segment.topic_id_partition for segment in segments}
    witnesses = list(islice(_witnesses(partitions, segments, tools), WITNESSES_MAX))
    if not _shows_any([*begun[:WITNESSES_MAX], *witnesses], tools):
        for error in errors.values():
            if isinstance(error, RemoteTierMissing):
                raise error
        if witnesses:
            raise _missing(witnesses[0], tools)
    return errors


def _why_not(segment: RemoteLogSegmentMetadata, tools: Tools) -> TierctlError | None:
    try:
        return None if tools.remote.objects_of(segment) else _missing(segment, tools)
    except RemoteTierMissing:
        raise
    except TierctlError as e:
        return e


def _shows_any(segments: _Segments, tools: Tools) -> bool:
    for segment in segments:
        try:
            if tools.remote.objects_of(segment):
                return True
        except (SafetyRefusal, CorruptInputError):
            # Nothing to know a tier by; whoever is to delete it says so.
            continue
    return False


def _witnesses(
    partitions: Collection[TopicIdPartition], besides: _Segments, tools: Tools
) -> Iterator[RemoteLogSegmentMetadata]:
    """Finished segments, `partitions`' own first, the newest of each partition first of all."""
    keys = {partition.key for partition in partitions}
    excluded = {segment.segment_id for segment in besides}
    parts = sorted(tools.metadata.state, key=lambda part: part.topic_id_partition.key not in keys)
    for part in parts:
        found = (s for s in part.cache.list_remote_log_segments() if s.segment_id not in excluded)
        newest = max((s for s in found if s.state is _FINISHED), key=lambda s: s.start_offset, default=None)
        if newest is not None:
            yield newest


def _missing(segment: RemoteLogSegmentMetadata, tools: Tools) -> RemoteTierMissing:
    return RemoteTierMissing(
        f"the tier has no object of segment {segment.segment_id} of {segment.topic}-{segment.partition}, "
        f"which the metadata say is finished; looked for {tools.remote.name_of(segment)}",
        hint="are --remote (bucket, prefix) and --layout right? If its objects are known to be lost: "
        "--allow-missing-objects",
    )
