"""Stores: bytes by key on local disk, S3, HDFS and all file systems that pyarrow.fs supports.

Other packages use `open_store`, the contracts `ObjectStore` and `CopyingStore`, and `Endpoint`.
"""

from tierctl.storage.stores.base import CopyingStore, Endpoint, ObjectStore
from tierctl.storage.stores.registry import SCHEMES, open_store, store_uri

__all__ = ["SCHEMES", "CopyingStore", "Endpoint", "ObjectStore", "open_store", "store_uri"]
