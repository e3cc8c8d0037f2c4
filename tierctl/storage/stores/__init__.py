"""Stores: bytes by key on local disk, S3, HDFS and all file systems that pyarrow.fs supports.

Other packages use `open_store`, the contract `ObjectStore`, and `Endpoint`.
"""

from tierctl.storage.stores.base import Endpoint, ObjectStore
from tierctl.storage.stores.registry import open_store
from tierctl.storage.stores.schemes import SCHEMES, store_uri

__all__ = ["SCHEMES", "Endpoint", "ObjectStore", "open_store", "store_uri"]
