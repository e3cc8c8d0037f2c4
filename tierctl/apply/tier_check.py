"""Check, under the lease, that --remote is the tier of the metadata, before a run changes anything in it.

The identity of a tier is written before its first COPY_SEGMENT_STARTED: a crash leaves an identity without
segments, which the next run with the same metadata topic accepts. It is also written before the deletion of
all finished segments in a tier that is recognised by its objects: after a crash no object may be left, and
then the identity alone shows that the deletions were made in this tier.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice

from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import effect
from tierctl.errors import RemoteTierMissing, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TierIdentity,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.safety import (
    GO_ON_WITHOUT,
    WRONG_TIER,
    TierContents,
    check_identity,
    require_objects,
    require_recognised,
)
from tierctl.plan.steps import Action, Plan
from tierctl.storage.identity import (
    WITNESSES_MAX,
    create_identity,
    has_objects_of_any,
    newest_finished,
    read_identity,
    replace_identity,
    tier_contents,
    tier_name,
)
from tierctl.storage.stores.base import RemoteObject

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_Segments = Sequence[RemoteLogSegmentMetadata]


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
    if not deleted or next(newest_finished(state, excluded=deleted), None) is not None:
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
    tier has an identity. Raise RemoteTierMissing if the tier has objects of none of these segments.
    """
    if context.allow_missing_objects or not segments:
        return {}
    finished = [segment for segment in segments if segment.state is _FINISHED]
    errors = {
        segment.segment_id: objects if isinstance(objects, TierctlError) else _missing(segment, context)
        for segment, objects in zip(finished, _objects_of_each(finished, context), strict=True)
        if isinstance(objects, TierctlError) or not objects
    }
    if len(errors) < len(finished):
        return errors
    begun = [segment for segment in segments if segment.state is not _FINISHED]
    partitions = {segment.topic_id_partition for segment in segments}
    ids = {segment.segment_id for segment in segments}
    witnesses = list(islice(newest_finished(context.metadata.state, partitions, ids), WITNESSES_MAX))
    if not has_objects_of_any(context.remote, [*begun[:WITNESSES_MAX], *witnesses]):
        for error in errors.values():
            if isinstance(error, RemoteTierMissing):
                raise error
        if witnesses:
            raise _missing(witnesses[0], context)
        require_recognised(tier_contents(context.remote, context.metadata.state))
    return errors


def _objects_of_each(segments: _Segments, context: RunContext) -> list[list[RemoteObject] | TierctlError]:
    try:
        return context.remote.objects_of_each(segments)
    except RemoteTierMissing:
        raise
    except TierctlError as e:
        return [e] * len(segments)


def _missing(segment: RemoteLogSegmentMetadata, context: RunContext) -> RemoteTierMissing:
    return RemoteTierMissing(
        f"the tier has no objects of segment {segment.segment_id} of {segment.topic}-{segment.partition}, "
        f"which the metadata say is finished; looked for {context.remote.name_of(segment)}",
        hint=f"{WRONG_TIER} If its objects are known to be lost: {GO_ON_WITHOUT}",
    )
