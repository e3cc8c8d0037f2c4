"""Remote tiers, which are layouts of segments on stores of objects: see `remote_storage_manager`.

Other packages open tiers with `open_tier.open_tier(TierSpec(…))` and stores with `open_store(uri)`.
"""

from tierctl.storage.stores import open_store, store_uri
from tierctl.storage.stores.base import FolderListing, RemoteObject
