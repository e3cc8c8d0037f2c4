"""Stores: bytes by key on local disk, S3, HDFS and all file systems that pyarrow.fs supports.

Other packages use `open_store`, the contract `ObjectStore`, and `Endpoint`.
"""

from tierctl.storage.stores.base import SCHEMES, Endpoint, ObjectStore, open_store, store_uri
