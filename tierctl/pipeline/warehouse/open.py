"""Open a warehouse from `--warehouse`, in this process and on executors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.pipeline.warehouse.base import Warehouse
from tierctl.pipeline.warehouse.bucket import BucketWarehouse
from tierctl.pipeline.warehouse.folder import FolderWarehouse
from tierctl.storage.stores import CopyingStore, Endpoint, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSpec:
    """The address of a warehouse; picklable, so that executors open the same one, and without secrets."""

    uri: str
    endpoint: Endpoint | None = None

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the address of file:///dir or s3://bucket/folder; raise UsageError for another URI."""
        parts = urlsplit(uri)
        if parts.scheme != "s3":
            return cls(uri=uri)
        if parts.password is not None:
            raise UsageError(
                f"the warehouse's URI contains a password: s3://{parts.hostname}{parts.path}",
                hint="give credentials in the environment; expected s3://bucket/folder",
            )
        return cls(uri=uri, endpoint=open_store(uri, named_by="--warehouse").endpoint)

    def open(self) -> Warehouse:
        """Open the warehouse; nothing is created yet."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
            return FolderWarehouse(Path(unquote(parts.path)))
        if parts.scheme == "s3":
            store = open_store(self.uri, endpoint=self.endpoint, named_by="--warehouse")
            if isinstance(store, CopyingStore):
                return BucketWarehouse(store)
        raise UsageError(f"not a warehouse: {self.uri!r}", hint="expected file:///dir or s3://bucket/folder")
