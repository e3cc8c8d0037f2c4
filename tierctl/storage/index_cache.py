"""The bounded cache of remote indexes on local disk (KIP-405; Kafka's RemoteIndexCache).

`remote-log-index-cache/<startOffset>_<segmentId><suffix>`, least recently used out first, recency kept in
the files' modification times. What a crash or a bad disk left is noticed and fetched again.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tierctl.errors import CorruptInputError, RemoteResourceNotFound, UsageError
from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, write_durably
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot

FOLDER = "remote-log-index-cache"
SIZE_BYTES = "remote.log.index.file.cache.total.size.bytes"
SIZE_MB = "remote.log.index.file.cache.total.size.mb"
SIZE_BYTES_DEFAULT = 1 << 30
INDEX_BYTES_MAX = 1 << 28
"""No index is larger: Kafka's segment.index.bytes is an int, 10 MiB by default."""

_CHECKS: dict[IndexType, Callable[[bytes, int], object]] = {
    IndexType.OFFSET: OffsetIndex.decode,
    IndexType.TIMESTAMP: TimeIndex.decode,
    IndexType.TRANSACTION: lambda data, _: TransactionIndex.decode(data),
    IndexType.LEADER_EPOCH: lambda data, _: read_leader_epoch_checkpoint(data),
    IndexType.PRODUCER_SNAPSHOT: lambda data, _: decode_producer_snapshot(data),
}
_TYPES = {suffix: index_type for index_type, suffix in INDEX_SUFFIXES.items()}


def size_bytes_of(settings: Mapping[str, str]) -> int:
    """The cache's size from Kafka's setting, or from the KIP's, in MiB; UsageError for no number above 0."""
    for name, unit in ((SIZE_BYTES, 1), (SIZE_MB, 1 << 20)):
        text = settings.get(name)
        if text is not None:
            if not (text.strip().isascii() and text.strip().isdigit()) or int(text) < 1:
                raise UsageError(f"{name}={text!r} is not a whole number above 0")
            return int(text) * unit
    return SIZE_BYTES_DEFAULT


class RemoteIndexCache:
    """Indexes of remote segments, fetched once; safe to use from several threads and processes.

    `get` never fails because of the cache's own disk: then the index is fetched and not kept, counted in
    `unkept`. `fetches` counts what was asked of the store.
    """

    def __init__(
        self,
        folder: Path,
        remote: RemoteStorageManager,
        *,
        size_bytes_max: int = SIZE_BYTES_DEFAULT,
        fs: FileSystem = PLAIN,
    ) -> None:
        self._folder = folder / FOLDER
        self._remote = remote
        self._size_bytes_max = size_bytes_max
        self._fs = fs
        self._lock = threading.Lock()
        self._fetching: dict[str, tuple[threading.Lock, int]] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._size_bytes = 0
        self.fetches = 0
        self.unkept = 0
        self._take_over()

    @property
    def size_bytes(self) -> int:
        """Bytes of the files kept now; never above the limit between calls."""
        return self._size_bytes

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """One index, whole and checked; a transaction index that isn't there is empty, as for Kafka.

        Raises RemoteResourceNotFound, RemoteStorageError, and CorruptInputError for an index that is
        damaged in the tier itself.
        """
        name = f"{metadata.start_offset}_{metadata.segment_id}{INDEX_SUFFIXES[index_type]}"
        with self._one_fetch_of(name):
            kept = self._kept(name, metadata.start_offset, index_type)
            if kept is not None:
                return kept
            data = self._fetch(metadata, index_type)
            _check(data, index_type, metadata.start_offset, source=name)
            self._keep(name, data)
            return data

    def remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Forget a segment that is being deleted."""
        with self._lock:
            for suffix in INDEX_SUFFIXES.values():
                self._forget(f"{metadata.start_offset}_{metadata.segment_id}{suffix}")

    def _take_over(self) -> None:
        """Adopt what an earlier run kept; what is cut short or damaged goes, to be fetched again."""
        with suppress(FileNotFoundError):
            found = []
            for entry in os.scandir(self._folder):
                path = Path(entry.path)
                if entry.is_file(follow_symlinks=False) and self._is_whole(path):
                    found.append((entry.stat().st_mtime_ns, path.name, entry.stat().st_size))
            for _, name, size_bytes in sorted(found):
                self._sizes[name] = size_bytes
                self._size_bytes += size_bytes
        self._evict()

    def _is_whole(self, path: Path) -> bool:
        """Whether a file found at start is a good index; temporary and damaged ones are removed."""
        if path.name.endswith(TEMP_SUFFIX):
            self._unlink(path)
            return False
        offset, _, rest = path.name.partition("_")
        index_type = _TYPES.get(path.suffix)
        if index_type is None or len(rest) < 22 or not (offset.isascii() and offset.isdigit()):
            return False
        try:
            _check(path.read_bytes(), index_type, int(offset), source=path.name)
        except CorruptInputError:
            self._unlink(path)
            return False
        return True

    @contextmanager
    def _one_fetch_of(self, name: str) -> Iterator[None]:
        """Others who want the same index wait for the one who fetches it; nobody else does."""
        with self._lock:
            lock, users = self._fetching.get(name, (threading.Lock(), 0))
            self._fetching[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                users = self._fetching[name][1] - 1
                if users:
                    self._fetching[name] = (lock, users)
                else:
                    del self._fetching[name]

    def _kept(self, name: str, start_offset: int, index_type: IndexType) -> bytes | None:
        path = self._folder / name
        try:
            data = path.read_bytes()
            os.utime(path)
            _check(data, index_type, start_offset, source=name)
        except FileNotFoundError:
            with self._lock:
                self._size_bytes -= self._sizes.pop(name, 0)
            return None
        except (OSError, CorruptInputError):
            with self._lock:
                self._forget(name)
            return None
        with self._lock:
            self._admit(name, len(data))
            self._evict()
        return data

    def _fetch(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        with self._lock:
            self.fetches += 1
        try:
            with self._remote.fetch_index(metadata, index_type) as stream:
                return _bounded(stream, metadata)
        except RemoteResourceNotFound:
            if index_type is IndexType.TRANSACTION:
                return b""
            raise

    def _keep(self, name: str, data: bytes) -> None:
        if len(data) > self._size_bytes_max:
            return
        try:
            self._fs.make_folder(self._folder)
            write_durably(self._folder / name, [data], fs=self._fs)
        except OSError:
            with self._lock:
                self.unkept += 1
                self._forget(name)
            return
        with self._lock:
            self._admit(name, len(data))
            self._evict()

    def _admit(self, name: str, size_bytes: int) -> None:
        self._size_bytes += size_bytes - self._sizes.get(name, 0)
        self._sizes[name] = size_bytes
        self._sizes.move_to_end(name)

    def _evict(self) -> None:
        while self._size_bytes > self._size_bytes_max:
            self._forget(next(iter(self._sizes)))

    def _forget(self, name: str) -> None:
        self._size_bytes -= self._sizes.pop(name, 0)
        self._unlink(self._folder / name)

    def _unlink(self, path: Path) -> None:
        # A file that can't be removed is looked at again at the next start.
        with suppress(OSError):
            self._fs.unlink(path)


def _bounded(stream: BinaryIO, metadata: RemoteLogSegmentMetadata) -> bytes:
    data = stream.read(INDEX_BYTES_MAX + 1)
    if len(data) > INDEX_BYTES_MAX:
        raise CorruptInputError(
            "remote index",
            expected=f"at most {INDEX_BYTES_MAX} bytes",
            found="more",
            source=f"segment {metadata.segment_id}",
        )
    return data


def _check(data: bytes, index_type: IndexType, start_offset: int, *, source: str) -> None:
    """What Kafka's sanityCheck asks of an index, and that its entries rise; CorruptInputError else."""
    try:
        _CHECKS[index_type](data, start_offset)
    except CorruptInputError as e:
        raise e.within(source) from None
