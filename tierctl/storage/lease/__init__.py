"""Leases, by which only one tierctl at a time changes a tier.

Other packages take the lease of a tier by `open_lease`, and leases on other objects by `ObjectLease`.
"""

from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.object import ObjectLease
from tierctl.storage.lease.open import Lease, open_lease
from tierctl.storage.lease.owner import Owner

__all__ = ["FolderLease", "Lease", "ObjectLease", "Owner", "open_lease"]
