"""A warehouse in an S3 bucket.

A bucket cannot replace several files in one step. Each metadata partition's file is replaced whole, under the
same name, so that readers never see a file twice or in part, but for a moment some files are of the previous
commit. The files in `_published.json` are never replaced.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

from tierctl.errors import LockedError
from tierctl.pipeline.warehouse.base import EMPTY, EVENTS, Files
from tierctl.storage.lease import ObjectLease, Owner
from tierctl.storage.stores.base import CopyingStore, Source, delete_all

_LEASE: Final = "_lease.json"


class BucketWarehouse:
    """Tables below a prefix in an S3 bucket."""

    def __init__(self, store: CopyingStore) -> None:
        self._store = store
        self._lease: ObjectLease | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Implement `Warehouse.held` by a lease, which is renewed during the block."""
        with ObjectLease(self._store, _LEASE, owner=Owner.of_this_run()) as self._lease:
            yield

    def put(self, key: str, source: Source) -> None:
        """Implement `Warehouse.put`."""
        self._store.put_all({key: source})

    def open(self, key: str) -> BinaryIO:
        """Implement `Warehouse.open`."""
        return self._store.open(key)

    def create(self, key: str, body: bytes) -> bool:
        """Implement `Warehouse.create`."""
        self._require_lease()
        if self._store.put_if(key, body, None) is not None:
            return True
        # The object may be ours, if only the response to the first attempt was lost.
        return self._store.open(key).read() == body

    def keys(self, prefix: str) -> Iterator[str]:
        """Implement `Warehouse.keys`, without the lease."""
        return (found.key for found in self._store.list_objects(prefix) if found.key != _LEASE)

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `Warehouse.sizes_bytes`."""
        return self._store.sizes_bytes(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Implement `Warehouse.delete`."""
        delete_all(self._store, keys)

    def show_batch(self, batch: int, files: Files) -> None:
        """Implement `Warehouse.show_batch` file by file; after a crash the next run shows the batch again."""
        self._copy({f"{EVENTS}/batch={batch}/{_bucket_name(part)}": key for part, key in files.items()})

    def show_table(self, table: str, files: Files, shown: Files) -> None:
        """Implement `Warehouse.show_table`: each file is replaced whole, under the same name."""
        changed = {part: key for part, key in files.items() if shown.get(part) != key}
        self._copy({f"{table}/{_bucket_name(part)}": key for part, key in changed.items()})
        wanted = {f"{table}/{_bucket_name(part)}" for part in files}
        gone = [key for key in self.keys(f"{table}/") if key not in wanted]
        if gone:
            self._require_lease()
            delete_all(self._store, gone)

    def _copy(self, sources: Mapping[str, str]) -> None:
        for target, source in sources.items():
            self._require_lease()
            self._store.copy(source, target)

    def _require_lease(self) -> None:
        if self._lease is None or self._lease.is_lost():
            raise LockedError(
                "the lease on this warehouse is lost: nothing more is written",
                hint="another pipeline may have it now; run again once it has ended",
            )


def _bucket_name(metadata_partition: int) -> str:
    """Return the name of a metadata partition's file, the same in every table."""
    return "part-empty.parquet" if metadata_partition == EMPTY else f"part-{metadata_partition:05d}.parquet"
