"""The identity of a tier: the object that names its cluster and metadata topic, and the facts beside it.

The object lies beside LocalTieredStorage's folder, where neither LocalTieredStorage nor Aiven's plugin looks,
and is written before the first COPY_SEGMENT_STARTED: a crash leaves an identity without segments, which the
next run with the same metadata topic accepts. Tiers that only brokers wrote have none. `plan.preconditions`
recognises them by their objects: keys contain the segment id and the topic id, so one object of one segment
is enough. An identity is also written before the deletion of all finished segments in a tier that is
recognised by its objects: after a crash no object may be left, and then the identity alone shows that the
deletions were made in this tier. Runs check, under the lease, that --remote is the tier of the metadata.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from tierctl.apply.run_context import RunContext, effect
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    TierctlError,
)
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentObjectName,
    TierIdentity,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.preconditions import (
    GO_ON_WITHOUT,
    WRONG_TIER,
    TierContents,
    check_identity,
    missing_of,
    require_objects,
    require_recognised,
)
from tierctl.plan.steps import Action, Plan
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.storage.layouts.kafka import segment_object_name
from tierctl.storage.open_tier import encoded_identity, stored_identity
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import RemoteObject


def read_identity(remote: RemoteStorageManager) -> TierIdentity | None:
    """Return the identity of the tier; None if it has none.

    Raise CorruptInputError if the object is no identity, and RemoteTierMissing if there is no tier.
    """
    return stored_identity(remote.store, _key(remote))


def _key(remote: RemoteStorageManager) -> str:
    return remote.own_key("identity")


def create_identity(remote: RemoteStorageManager, identity: TierIdentity) -> bool:
    """Write the identity of the tier unless it has one; return whether it was written."""
    return remote.store.create(_key(remote), encoded_identity(identity))


def replace_identity(remote: RemoteStorageManager, identity: TierIdentity) -> None:
    """Replace the identity of the tier; the caller holds the lease."""
    remote.store.put_all({_key(remote): encoded_identity(identity)})


def tier_name(remote: RemoteStorageManager) -> str:
    """Return the URI or path of the tier, for messages."""
    return remote.store.name_of(remote.layout.base)


WITNESSES_MAX = 8
"""The number of finished segments to look for."""

SAMPLE_MAX = 1000
"""The number of objects to look at: as many as one request to S3 lists."""

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_BEGUN = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
_Segments = Sequence[RemoteLogSegmentMetadata]


def tier_contents(
    remote: RemoteStorageManager,
    state: TierState,
    *,
    partitions: Collection[TopicIdPartition] = (),
    may_be_new: bool = False,
) -> TierContents:
    """Return the identity and first objects of the tier, compared with `state`.

    Segments of `partitions` are examined first. Raise RemoteTierMissing if there is no tier, unless it
    `may_be_new` and there is no finished segment to look for.
    """
    looked_for = list(islice(newest_finished(remote, state, partitions), WITNESSES_MAX))
    begun = [] if looked_for else list(islice(_newest(remote, state, _BEGUN, partitions), WITNESSES_MAX))
    identity, known, sample = None, False, _Sample()
    try:
        identity = read_identity(remote)
        known = has_objects_of_any(remote, looked_for or begun)
        if not known:
            sample = _sampled(remote, state)
            known = sample.known
    except RemoteTierMissing:
        if looked_for or not may_be_new:
            raise
    return TierContents(
        name=tier_name(remote),
        layout=remote.layout.name,
        identity=identity,
        missing=remote.name_of(looked_for[0]) if looked_for and not known else None,
        begun=remote.name_of(begun[0]) if begun else None,
        known=known,
        unknown_key=sample.unknown_key,
        misplaced_key=sample.misplaced_key,
        is_empty=identity is None and sample.is_empty and not may_be_new,
        is_foreign=sample.unknown_key is not None and not sample.knows_topic,
    )


def newest_finished(
    remote: RemoteStorageManager,
    state: TierState,
    partitions: Collection[TopicIdPartition] = (),
    excluded: Collection[Uuid] = (),
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the newest finished segment of each partition, without those of the ids `excluded`.

    `partitions` come first. A segment whose metadata allow no key is left out: it can't identify the tier.
    """
    return _newest(remote, state, {_FINISHED}, partitions, excluded)


def _newest(
    remote: RemoteStorageManager,
    state: TierState,
    states: Collection[RemoteLogSegmentState],
    partitions: Collection[TopicIdPartition],
    excluded: Collection[Uuid] = (),
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the newest segment of each partition that is in one of `states`; as `newest_finished`."""
    keys = {partition.key for partition in partitions}
    parts = sorted(state, key=lambda part: part.topic_id_partition.key not in keys)
    chosen = [part.topic_id_partition for part in parts if _has_any(part, states)]
    if state.elsewhere is not None:
        # No caller that changes nothing needs more.
        chosen = chosen[:WITNESSES_MAX]
    question = partial(_newest_of, chosen, states, excluded)
    for _, newest in state.map_in_order(question, [partition.key for partition in chosen]):
        if remote.has_keys(newest):
            yield newest


def _has_any(part: PartitionState, states: Collection[RemoteLogSegmentState]) -> bool:
    return part.finished_count > 0 if _FINISHED in states else part.segment_count > part.finished_count


def _newest_of(
    partitions: Sequence[TopicIdPartition],
    states: Collection[RemoteLogSegmentState],
    excluded: Collection[Uuid],
    state: TierState,
) -> Iterator[tuple[TopicIdPartition, RemoteLogSegmentMetadata]]:
    """Yield each of `partitions` with its newest segment that is in one of `states`, and not `excluded`."""
    for partition in partitions:
        segments = state.segments_of(partition)
        found = (each for each in segments if each.state in states and each.segment_id not in excluded)
        newest = max(found, key=lambda each: each.start_offset, default=None)
        if newest is not None:
            yield partition, newest


def has_objects_of_any(remote: RemoteStorageManager, segments: _Segments) -> bool:
    """Return whether the tier has an object of one of the segments.

    Raise AuthenticationError if none was found and the store refused to tell of one: only a part of the tier
    may be hidden from this user.
    """
    refused: AuthenticationError | None = None
    for segment in segments:
        try:
            if _has_objects(remote, segment):
                return True
        except AuthenticationError as e:
            refused = refused or e
    if refused is not None:
        raise refused
    return False


def _has_objects(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bool | None:
    """Return whether the tier has an object of the segment; None if its metadata allow no key.

    Such a segment cannot identify the tier. The step that deletes it reports the error.
    """
    try:
        return bool(remote.objects_of(segment))
    except (SafetyRefusal, CorruptInputError):
        return None


@dataclass(slots=True)
class _Sample:
    """The facts from the first objects of a tier; the fields are those of `TierContents`."""

    known: bool = False
    is_empty: bool = False
    unknown_key: str | None = None
    misplaced_key: str | None = None
    knows_topic: bool = False


def _sampled(remote: RemoteStorageManager, state: TierState) -> _Sample:
    """Read the tier's first objects, and judge them up to the first one of a known segment under its key."""
    known_topics = {part.topic_id_partition.topic_id for part in state}
    listed = list(islice(remote.list_objects(), SAMPLE_MAX))
    objects = [(found.key, segment_object_name(found.key)) for found in listed]
    sample = _Sample(is_empty=not objects)
    names = {name for _, name in objects if name is not None}
    owners = {(name.topic_id, name.partition) for name in names}
    segments = dict(state.map_parts(partial(_segments_of, names), owners))
    misplaced: set[Uuid] = set()
    for key, name in objects:
        if name is None:
            continue
        segment = segments.get((name.topic_id, name.partition, name.segment_id))
        if segment is not None:
            if name.segment_id not in misplaced and _has_objects(remote, segment) is not False:
                return _Sample(known=True)
            misplaced.add(name.segment_id)
            sample.misplaced_key = sample.misplaced_key or key
            if len(misplaced) == WITNESSES_MAX:
                break
            continue
        sample.unknown_key = sample.unknown_key or key
        # The events that named the topic may have been deleted from the metadata topic.
        is_lost = bool(missing_of(state, TopicIdPartition(name.topic_id, "", name.partition)))
        sample.knows_topic = sample.knows_topic or is_lost or name.topic_id in known_topics
    return sample


def _segments_of(
    names: Collection[SegmentObjectName], state: TierState
) -> Iterator[tuple[tuple[Uuid, int, Uuid], RemoteLogSegmentMetadata]]:
    """Yield the segments to which objects of these names belong, by topic id, partition and segment id."""
    for name in names:
        part = state.partitions.get((name.topic_id, name.partition))
        segment = None if part is None else part.get(name.segment_id)
        if segment is not None:
            yield (name.topic_id, name.partition, name.segment_id), segment


_COPIES = {Action.COPY_SEGMENT, Action.COPY_OBJECTS}


def claim_tier(context: RunContext, plan: Plan) -> None:
    """Require that the tier's identity is that of the metadata; write it if there is none yet.

    A `plan` that copies writes it, and one that deletes all finished segments of the metadata, if the tier
    has an object of them. With `adopt_tier` write it in any case, and replace another identity. Raise
    SafetyRefusal if the tier belongs to another metadata topic, also if another run wrote its identity at the
    same time.
    """
    own = TierIdentity(cluster=context.metadata.identity(), layout=context.remote.layout.name)
    if context.adopt_tier:
        with effect("tier.identity.write"):
            replace_identity(context.remote, own)
        return
    found = _identity(context)
    copies = any(step.action in _COPIES for step in plan.steps)
    deleted = {
        step.segment_id
        for step in plan.steps
        if step.action is Action.DELETE_SEGMENT and step.segment_id is not None
    }
    if found is None and (copies or _may_be_emptied(context, deleted)):
        with effect("tier.identity.write"):
            if create_identity(context.remote, own):
                return
        found = read_identity(context.remote)
    contents = TierContents(name=tier_name(context.remote), layout=own.layout, identity=found)
    check_identity(contents, own.cluster)


def _may_be_emptied(context: RunContext, deleted: Collection[Uuid]) -> bool:
    """Return whether the tier has objects, and no finished segment is left without those of `deleted`."""
    state = context.metadata.state
    if not deleted or next(newest_finished(context.remote, state, excluded=deleted), None) is not None:
        return False
    return tier_contents(context.remote, state, may_be_new=True).known


def _identity(context: RunContext) -> TierIdentity | None:
    with suppress(RemoteTierMissing):
        # The first copy creates the tier; every other step checks again that the tier has objects.
        return read_identity(context.remote)
    return None


def require_known_tier(partitions: Collection[TopicIdPartition], context: RunContext) -> None:
    """Raise RemoteTierMissing if the tier has none of the examined finished segments.

    Segments of `partitions` are examined first. Without a finished segment every tier is accepted.
    """
    if not context.allow_missing_objects:
        require_objects(
            tier_contents(context.remote, context.metadata.state, partitions=partitions, may_be_new=True)
        )


def why_not_deletable(segments: _Segments, context: RunContext) -> dict[Uuid, TierctlError]:
    """Return one error, by segment id, for each COPY_SEGMENT_FINISHED segment without any object in the tier.

    Segments in another state may have no objects, because their copy or deletion was interrupted; they are
    accepted if the tier has objects of another segment, or if there is no other segment to look for and the
    tier has an identity. A segment without objects is RemoteResourceNotFound, which no other segment need
    meet. Raise RemoteTierMissing if the tier has objects of none of these segments.
    """
    if context.allow_missing_objects or not segments:
        return {}
    finished = [segment for segment in segments if segment.state is _FINISHED]
    found = list(zip(finished, _objects_of_each(finished, context), strict=True))
    errors = {
        segment.segment_id: objects
        if isinstance(objects, TierctlError)
        else _missing(RemoteResourceNotFound, segment, context)
        for segment, objects in found
        if isinstance(objects, TierctlError) or not objects
    }
    if len(errors) < len(finished):
        return errors
    begun = [segment for segment in segments if segment.state is not _FINISHED]
    partitions = {segment.topic_id_partition for segment in segments}
    ids = {segment.segment_id for segment in segments}
    newest = newest_finished(context.remote, context.metadata.state, partitions, ids)
    witnesses = list(islice(newest, WITNESSES_MAX))
    if not has_objects_of_any(context.remote, [*begun[:WITNESSES_MAX], *witnesses]):
        gone = [*(segment for segment, objects in found if objects == []), *witnesses]
        if gone:
            raise _missing(RemoteTierMissing, gone[0], context)
        require_recognised(tier_contents(context.remote, context.metadata.state))
    return errors


def _objects_of_each(segments: _Segments, context: RunContext) -> list[list[RemoteObject] | TierctlError]:
    try:
        return context.remote.objects_of_each(segments)
    except RemoteTierMissing:
        raise
    except TierctlError as e:
        return [e] * len(segments)


def _missing(
    kind: type[RemoteStorageError], segment: RemoteLogSegmentMetadata, context: RunContext
) -> RemoteStorageError:
    return kind(
        f"the tier has no objects of segment {segment.segment_id} of {segment.topic}-{segment.partition}, "
        f"which the metadata say is finished; looked for {context.remote.name_of(segment)}",
        hint=f"{WRONG_TIER} If its objects are known to be lost: {GO_ON_WITHOUT}",
    )
