"""The identity object of a tier: which cluster and metadata topic its segments belong to.

It lies beside LocalTieredStorage's folder, where neither LocalTieredStorage nor Aiven's plugin looks, and is
written at tierctl's first copy. Tiers that only brokers wrote have none.
"""

import json
from contextlib import suppress
from typing import Any

from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.model import ClusterIdentity, TierIdentity, Uuid
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.object_tier import object_tier

IDENTITY_MAX_BYTES = 4096
VERSION = 1


def read_identity(remote: RemoteStorageManager) -> TierIdentity | None:
    """Return the identity of the tier; None if it has none.

    Raise CorruptInputError if the object is no identity, and RemoteTierMissing if there is no tier.
    """
    tier = object_tier(remote)
    if tier is None:
        return None
    try:
        with tier.store.open(tier.identity_key) as stream:
            body = stream.read(IDENTITY_MAX_BYTES + 1)
    except RemoteResourceNotFound:
        return None
    return _decoded(body, tier.store.name_of(tier.identity_key))


def create_identity(remote: RemoteStorageManager, identity: TierIdentity) -> bool:
    """Write the identity of the tier unless it has one; return whether it was written."""
    tier = object_tier(remote)
    return tier is None or tier.store.create(tier.identity_key, _encoded(identity))


def replace_identity(remote: RemoteStorageManager, identity: TierIdentity) -> None:
    """Replace the identity of the tier; the caller holds the lease."""
    tier = object_tier(remote)
    if tier is not None:
        tier.store.put_all({tier.identity_key: _encoded(identity)})


def tier_layout(remote: RemoteStorageManager) -> str | None:
    """Return the name of the tier's layout; None if `remote` has no layout."""
    tier = object_tier(remote)
    return None if tier is None else tier.layout.name


def tier_name(remote: RemoteStorageManager) -> str:
    """Return the URI or path of the tier, for messages."""
    tier = object_tier(remote)
    return "the tier" if tier is None else tier.store.name_of(tier.layout.base)


def _encoded(identity: TierIdentity) -> bytes:
    facts = {
        "tier_identity": VERSION,
        "cluster_id": identity.cluster.cluster_id,
        "metadata_topic_id": identity.cluster.metadata_topic_id,
        "layout": identity.layout,
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _decoded(body: bytes, source: str) -> TierIdentity:
    facts: Any = None
    with suppress(ValueError):
        facts = json.loads(body) if len(body) <= IDENTITY_MAX_BYTES else None
    if isinstance(facts, dict) and facts.get("tier_identity") == VERSION:
        cluster_id, topic_id = facts.get("cluster_id"), facts.get("metadata_topic_id")
        if isinstance(cluster_id, str | None) and isinstance(topic_id, str | None):
            cluster = ClusterIdentity(
                cluster_id=cluster_id,
                metadata_topic_id=None if topic_id is None else Uuid.parse(topic_id),
            )
            return TierIdentity(cluster=cluster, layout=str(facts.get("layout")))
    raise CorruptInputError(
        "the tier's identity",
        expected=f"JSON with tier_identity {VERSION}, cluster_id and metadata_topic_id",
        found=ascii(body[:40]),
        source=source,
        hint="if --remote and --metadata are right, copy, sweep, delete or apply, with --adopt-tier and "
        "--apply, writes it again",
    )
