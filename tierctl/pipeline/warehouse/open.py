"""Open a warehouse from `--warehouse`, in this process and on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.files import PLAIN, exclusive
from tierctl.metadata.topic.base import translated
from tierctl.model.location import require_no_credentials
from tierctl.storage.lease import ObjectLease, Owner
from tierctl.storage.stores import Endpoint, ObjectStore, open_store
from tierctl.storage.stores.base import ConditionalStore, delete_all

if TYPE_CHECKING:
    from tierctl.storage.stores.s3.client import OtherClient

LOCK: Final = ".tierctl-pipeline.lock"
LEASE: Final = "_lease.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSpec:
    """The address of a warehouse; picklable, so that executors open the same one, and without secrets."""

    uri: str
    endpoint: Endpoint | None = None

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the address of file:///dir or s3://bucket/folder; raise UsageError for another URI."""
        require_no_credentials("--warehouse", uri)
        parts = urlsplit(uri)
        if parts.scheme != "s3":
            return cls(uri=uri)
        return cls(uri=uri, endpoint=open_store(uri, named_by="--warehouse").endpoint)

    def open_store(self) -> ObjectStore:
        """Open the store of the warehouse's files; nothing is created yet."""
        parts = urlsplit(self.uri)
        is_folder = parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path
        if not is_folder and parts.scheme != "s3":
            raise UsageError(
                f"not a warehouse: {self.uri!r}", hint="expected file:///dir or s3://bucket/folder"
            )
        return open_store(self.uri, endpoint=self.endpoint, named_by="--warehouse")

    def open(self) -> Warehouse:
        """Open the warehouse; nothing is created yet."""
        return Warehouse(self, self.open_store())


class Warehouse:
    """The location of the tables; one run at a time has its lock or, in a bucket, its lease."""

    def __init__(self, spec: WarehouseSpec, store: ObjectStore) -> None:
        self._spec = spec
        self._store = store
        self._lease: ObjectLease | None = None

    @property
    def _root(self) -> Path | None:
        parts = urlsplit(self._spec.uri)
        return Path(unquote(parts.path)).absolute() if parts.scheme == "file" else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exclude other runs during the block; raise LockedError if another run holds the warehouse."""
        root = self._root
        if root is not None:
            with translated(f"opening {root}"):
                PLAIN.make_folder(root)
            with exclusive(root, LOCK):
                yield
            return
        assert isinstance(self._store, ConditionalStore)
        with ObjectLease(self._store, LEASE, owner=Owner.of_this_run()) as self._lease:
            yield

    def is_lost(self) -> bool:
        """Return whether another run may have the lock now, so that this run must not write."""
        return self._lease is not None and self._lease.is_lost()

    @property
    def tables_uri(self) -> str:
        """Return the location of the tables for deltalake: a path, or the URI of a bucket's folder."""
        return str(self._root) if self._root is not None else self._spec.uri.rstrip("/")

    def table_options(self) -> dict[str, str]:
        """Return the settings with which deltalake reaches the store; in a bucket they have credentials."""
        return {} if self._bucket_options is None else self._bucket_options()

    @cached_property
    def _bucket_options(self) -> OtherClient | None:
        if self._root is not None:
            return None
        # Imported here, because boto3 is slow to import and only buckets need it.
        from tierctl.storage.stores.s3.client import OtherClient

        return OtherClient(self._spec.endpoint)

    def synced(self, keys: Sequence[str]) -> None:
        """Make files durable that deltalake wrote to a folder, which it does not do itself."""
        if self._root is None:
            return
        for path in (self._root / key for key in keys):
            with translated(f"writing {path}"):
                with path.open("rb") as stream:
                    PLAIN.sync(stream.fileno(), path)
                PLAIN.sync_folder(path.parent)

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that begins with `prefix`, without those of the lock and the lease."""
        root = self._root
        if root is not None and not root.is_dir():
            return
        for found in self._store.list_objects(prefix):
            if found.key not in {LOCK, LEASE}:
                yield found.key

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the existing files among `keys`."""
        return self._store.sizes_bytes(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete exactly `keys`."""
        delete_all(self._store, keys)


def require_deltalake() -> None:
    """Raise UsageError if deltalake is not installed."""
    if find_spec("deltalake") is None:
        raise UsageError(
            "the tables of a warehouse need deltalake, which is not installed",
            hint="pip install tierctl[pipeline]",
        )
