"""Choose the kind of lease that a tier's store supports."""

from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.object import ObjectLease
from tierctl.storage.lease.owner import Owner
from tierctl.storage.retry import RetryingStorage
from tierctl.storage.stores.base import ConditionalStore
from tierctl.storage.stores.local import LocalStore
from tierctl.storage.tier import ObjectTier

Lease = FolderLease | ObjectLease


def open_lease(remote: RemoteStorageManager) -> Lease | None:
    """Return the lease of a tier for one run, not yet acquired; None if the store supports no lease."""
    tier = remote.inner if isinstance(remote, RetryingStorage) else remote
    if not isinstance(tier, ObjectTier):
        return None
    if isinstance(tier.store, LocalStore):
        return FolderLease(tier.store.root)
    if isinstance(tier.store, ConditionalStore):
        return ObjectLease(tier.store, tier.lease_key, owner=Owner.of_this_run())
    return None
