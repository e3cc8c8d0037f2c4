"""From `--warehouse` to a Warehouse, here and on executors."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.pipeline.warehouse.base import Warehouse

if TYPE_CHECKING:
    from tierctl.storage.stores.s3 import S3Address


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSpec:
    """A warehouse, so that another process opens the same; nothing secret is in it."""

    uri: str
    s3: "S3Address | None" = None

    @classmethod
    def of(cls, uri: str) -> Self:
        """From file:///dir or s3://bucket/folder; UsageError for anything else."""
        if urlsplit(uri).scheme != "s3":
            return cls(uri=uri)
        from tierctl.storage.open import open_bucket

        return cls(uri=uri, s3=open_bucket(uri).address)

    def open(self) -> Warehouse:
        """The warehouse; nothing is made yet."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
            from tierctl.pipeline.warehouse.folder import FolderWarehouse

            return FolderWarehouse(Path(unquote(parts.path)))
        if parts.scheme == "s3":
            from tierctl.pipeline.warehouse.bucket import BucketWarehouse
            from tierctl.storage.open import open_bucket

            return BucketWarehouse(open_bucket(self.uri, self.s3))
        raise UsageError(f"not a warehouse: {self.uri!r}", hint="expected file:///dir or s3://bucket/folder")
