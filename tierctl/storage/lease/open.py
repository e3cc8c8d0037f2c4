"""Choose the kind of lease that a tier's store supports."""

from tierctl.errors import SafetyRefusal
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.object import ObjectLease
from tierctl.storage.lease.owner import WITHOUT_LEASE, Owner
from tierctl.storage.retry import object_tier
from tierctl.storage.stores.base import ConditionalStore
from tierctl.storage.stores.local import LocalStore

Lease = FolderLease | ObjectLease


def open_lease(remote: RemoteStorageManager, *, is_optional: bool = False) -> Lease | None:
    """Return the lease of a tier for one run, not yet acquired.

    If its store supports no lease, return None if the lease `is_optional`; otherwise raise SafetyRefusal.
    """
    tier = object_tier(remote)
    if tier is not None and isinstance(tier.store, LocalStore):
        return FolderLease(tier.store.root, is_optional=is_optional)
    if tier is not None and isinstance(tier.store, ConditionalStore):
        return ObjectLease(tier.store, tier.lease_key, owner=Owner.of_this_run(), is_optional=is_optional)
    if is_optional:
        return None
    where = "this tier" if tier is None else tier.store.name_of("")
    raise SafetyRefusal(
        f"{where}: tierctl has no lease for this kind of store (file, s3 and hdfs have one), so another "
        "tierctl could change the tier at the same time",
        hint=WITHOUT_LEASE,
    )
