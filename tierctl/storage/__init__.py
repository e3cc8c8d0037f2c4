"""RemoteStorageManager: remote tiers, which are layouts of segments on stores of objects.

Other packages open tiers with `open_tier(TierSpec(…))` and stores with `open_store(uri)`.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.storage.base import FolderListing, RemoteObject, RemoteStorageManager
    from tierctl.storage.open import LAYOUTS, TierSpec, open_tier
    from tierctl.storage.stores import open_store, store_uri
else:
    __getattr__ = exports(
        __name__,
        base=("FolderListing", "RemoteObject", "RemoteStorageManager"),
        open=("LAYOUTS", "TierSpec", "open_tier"),
        stores=("open_store", "store_uri"),
    )

__all__ = [
    "LAYOUTS",
    "FolderListing",
    "RemoteObject",
    "RemoteStorageManager",
    "TierSpec",
    "open_store",
    "open_tier",
    "store_uri",
]
