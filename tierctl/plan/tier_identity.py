"""Decide whether a tier belongs to the metadata, before anything is planned for it.

A mistyped bucket or prefix looks like a tier without objects. With it, a sweep would publish its segments as
deleted and leave their objects in the real tier forever, and a copy would be stored where no broker reads.
With the tier of another cluster, deletes and lists of leaked objects would be about that cluster's segments.
"""

from dataclasses import dataclass

from tierctl.errors import RemoteTierMissing, SafetyRefusal, UsageError
from tierctl.model import ClusterIdentity, TierIdentity

WRONG_TIER = "are --remote (bucket, prefix), --layout and --metadata right?"
_ADOPT = (
    "If the tier belongs to this metadata topic (the topic was created again): copy, sweep, delete or apply, "
    "with --adopt-tier and --apply, assigns it"
)
GO_ON_WITHOUT = "copy, sweep, delete and apply go on with --allow-missing-objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContents:
    """Facts about a tier: its identity object, and what a few of its objects show."""

    name: str
    """URI or path of the tier."""
    layout: str | None
    """Name of the layout in which the tier is opened; None if it has no layout."""
    identity: TierIdentity | None
    """None if the tier has no identity object."""
    missing: str | None = None
    """The first examined finished segment without an object; None if none was examined."""
    begun: str | None = None
    """The first examined segment being copied or deleted, if the metadata has no finished segment."""
    known: bool = False
    """Whether the tier has an object of a segment in the metadata."""
    unknown_key: str | None = None
    """Key of an object of a segment that the metadata does not have, if the tier has no other objects."""
    misplaced_key: str | None = None
    """Key of an object of a segment in the metadata, which this tier would have under another key."""
    is_foreign: bool = False
    """Whether the metadata has none of the topics of the tier's objects, and lost no events of them."""
    is_empty: bool = False
    """Whether the tier has no object at all, although it is not to be created now."""


def check_tier(
    contents: TierContents,
    own: ClusterIdentity,
    *,
    is_reading: bool = False,
    allow_missing_objects: bool = False,
    adopt: bool = False,
) -> str | None:
    """Return a note for the operator, or None; raise an error if the tier is not that of the metadata.

    `own` is the identity of the metadata topic. An identity object decides first; a tier without one is
    recognised by its objects. With `adopt` the tier's identity and foreign objects are accepted. With
    `allow_missing_objects`, or for a command that `is_reading` and an identity that matches, the tier may
    lack the objects of finished segments.

    Raise SafetyRefusal for the tier of another metadata topic, UsageError for another layout, and
    RemoteTierMissing for a tier without any object of the finished segments that were looked for.
    """
    identity = contents.identity
    if not adopt:
        check_identity(contents, own)
    same = None if identity is None else identity.cluster.is_same_as(own)
    if not allow_missing_objects and not (is_reading and same):
        require_objects(contents)
    if same is None and not adopt and not contents.known and contents.missing is None:
        _require_not_foreign(contents, own)
    if contents.is_empty:
        return f"{contents.name} has no object: is --remote (bucket, prefix) right?"
    if identity is None or same is not None or adopt:
        return None
    return (
        f"{contents.name} belongs to {identity.cluster}; --metadata is {own}. No id is known of both: "
        "the tier is recognised by its objects alone"
    )


def check_identity(contents: TierContents, own: ClusterIdentity) -> None:
    """Raise SafetyRefusal if the tier belongs to another metadata topic, UsageError for another layout."""
    identity = contents.identity
    if identity is None:
        return
    if identity.cluster.is_same_as(own) is False:
        raise SafetyRefusal(
            f"{contents.name} is the tier of another metadata topic: it belongs to {identity.cluster}; "
            f"--metadata is {own}",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )
    if contents.layout is not None and identity.layout != contents.layout:
        raise UsageError(
            f"{contents.name} has layout {identity.layout}, not {contents.layout}",
            hint=f"check --remote. To use this tier: --layout {identity.layout}",
        )


def require_objects(contents: TierContents) -> None:
    """Raise RemoteTierMissing if no object of the finished segments that were looked for is in the tier.

    Raise it also for a tier whose only objects of known segments are those of a tier in another place.
    """
    if contents.misplaced_key is not None:
        raise RemoteTierMissing(
            f"{contents.name} is not where the objects are: it has {contents.misplaced_key}, an object "
            "of a tier in another folder or of another layout",
            hint=WRONG_TIER,
        )
    if contents.missing is None:
        return
    others = f"; it has objects of other segments, as {contents.unknown_key}" if contents.unknown_key else ""
    raise RemoteTierMissing(
        f"{contents.name} has no object of the finished segments in the metadata; looked for "
        f"{contents.missing}{others}",
        hint=f"{WRONG_TIER} If the objects are known to be lost: {GO_ON_WITHOUT}",
    )


def require_recognised(contents: TierContents) -> None:
    """Raise RemoteTierMissing if nothing shows that deletions of segments belong in this tier.

    Segments being copied or deleted may rightly have no object. Without a finished segment in the metadata,
    only the identity object distinguishes the tier that such a deletion emptied from a mistyped name. A tier
    without a layout has no identity object and is accepted.
    """
    if contents.begun is None or contents.known or contents.identity is not None or contents.layout is None:
        return
    raise RemoteTierMissing(
        f"{contents.name} has neither an identity object nor an object of a segment in the metadata; looked "
        f"for {contents.begun}. If this is another tier, deleting there would leave the objects in the right "
        "one for ever",
        hint=f"{WRONG_TIER} If the objects are known to be deleted: {GO_ON_WITHOUT}",
    )


def _require_not_foreign(contents: TierContents, own: ClusterIdentity) -> None:
    """Raise SafetyRefusal for a tier whose identity can't be compared and that has no object of `own`."""
    identity = contents.identity
    if identity is not None and identity.cluster != ClusterIdentity(cluster_id=None, metadata_topic_id=None):
        raise SafetyRefusal(
            f"{contents.name} belongs to {identity.cluster}, and it is unknown whether --metadata ({own}) is "
            "that topic",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )
    if contents.is_foreign:
        raise SafetyRefusal(
            f"{contents.name} is the tier of another metadata topic: --metadata ({own}) knows neither the "
            f"segment nor the topic of {contents.unknown_key}, nor those of the other examined objects",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )
