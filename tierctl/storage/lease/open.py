"""Choose the kind of lease that a tier's store supports."""

from tierctl.errors import SafetyRefusal
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.object import ObjectLease
from tierctl.storage.lease.owner import Owner
from tierctl.storage.retry import RetryingStorage
from tierctl.storage.stores.base import ConditionalStore
from tierctl.storage.stores.local import LocalStore
from tierctl.storage.tier import ObjectTier

Lease = FolderLease | ObjectLease


def open_lease(remote: RemoteStorageManager, *, is_optional: bool = False) -> Lease | None:
    """Return the lease of a tier for one run, not yet acquired.

    If its store supports no lease, return None if the lease `is_optional`; otherwise raise SafetyRefusal.
    """
    tier = remote.inner if isinstance(remote, RetryingStorage) else remote
    if isinstance(tier, ObjectTier) and isinstance(tier.store, LocalStore):
        return FolderLease(tier.store.root, is_optional=is_optional)
    if isinstance(tier, ObjectTier) and isinstance(tier.store, ConditionalStore):
        return ObjectLease(tier.store, tier.lease_key, owner=Owner.of_this_run())
    if is_optional:
        return None
    where = tier.store.name_of("") if isinstance(tier, ObjectTier) else "this tier"
    raise SafetyRefusal(
        f"{where}: tierctl has no lease for this kind of store (file, s3 and hdfs have one), so nothing "
        "keeps another tierctl from changing the tier at the same time",
        hint="make sure that no other tierctl changes this tier, then add --no-lease",
    )
