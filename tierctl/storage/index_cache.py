"""Local copies of what a tier has: the bounded cache of indexes (Kafka's RemoteIndexCache), and whole
segments.
"""

import os
import re
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from tierctl.errors import (
    CorruptInputError,
    LockedError,
    RemoteResourceNotFound,
    SafetyRefusal,
    SpoolError,
)
from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, exclusive, exists, read_regular, write_durably
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.model.checked_values import read_trusted
from tierctl.model.local import LARGEST_OFFSET, SegmentFiles
from tierctl.model.settings import broker
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES
from tierctl.storage.remote_storage_manager import RemoteStorageManager, SegmentReader, index_bytes
from tierctl.wire.files.checkpoints import decode_producer_snapshot, read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import INDEX_BYTES_MAX, OffsetIndex, TimeIndex, TransactionIndex, trimmed

# The bounded cache of remote indexes on local disk (KIP-405; Kafka's RemoteIndexCache).
#
# Files are `remote-log-index-cache/<startOffset>_<segmentId><suffix>`; their modification times record the
# last use, and the least recently used file is evicted first. A file that a crash or a bad disk damaged is
# detected when it is read, and fetched again.

FOLDER = "remote-log-index-cache"

_CHECKS: dict[IndexType, Callable[[bytes, int], object]] = {
    IndexType.OFFSET: OffsetIndex.decode,
    IndexType.TIMESTAMP: TimeIndex.decode,
    IndexType.TRANSACTION: TransactionIndex.decode,
    IndexType.LEADER_EPOCH: lambda data, _: read_leader_epoch_checkpoint(data),
    IndexType.PRODUCER_SNAPSHOT: lambda data, _: decode_producer_snapshot(data),
}
_TYPES = {suffix: index_type for index_type, suffix in INDEX_SUFFIXES.items()}


def _size_bytes_max(settings: Mapping[str, str]) -> int:
    """Return the limit of the cache that a broker's settings state, also by KIP-405's name in MiB."""
    mebibytes = broker.INDEX_CACHE_SIZE_MB.given(settings)
    if mebibytes is None or broker.INDEX_CACHE_SIZE_BYTES.given(settings) is not None:
        return broker.INDEX_CACHE_SIZE_BYTES.value(settings)
    return mebibytes << 20


class RemoteIndexCache:
    """Fetches each index of a remote segment once; safe to use from several threads and processes.

    The broker's `settings` state how many bytes the cache may have. If the cache's own disk fails, `get`
    fetches the index without caching it. A file that others may change is fetched again.
    """

    def __init__(
        self,
        folder: Path,
        remote: RemoteStorageManager,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        fs: FileSystem = PLAIN,
    ) -> None:
        self._folder = folder / FOLDER
        self._remote = remote
        self._size_bytes_max = _size_bytes_max(settings)
        self._fs = fs
        self._lock = threading.Lock()
        self._fetching: dict[str, tuple[threading.Lock, int]] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._size_bytes = 0
        self.fetches = 0
        self._load_existing()

    @property
    def size_bytes(self) -> int:
        """Bytes of the cached files; never above the limit between calls."""
        return self._size_bytes

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one whole index after checking it; a missing transaction index is empty, as in Kafka.

        Raise RemoteResourceNotFound or RemoteStorageError as the store does, and CorruptInputError if the
        index is damaged in the tier itself.
        """
        name = _name_of(metadata, index_type)
        with self._one_fetch_of(name):
            cached = self._read_cached(name, metadata.start_offset, index_type)
            if cached is not None:
                return cached
            data = self._fetch(metadata, index_type)
            _check(data, index_type, metadata.start_offset, source=name)
            self._write(name, data)
            return data

    def _load_existing(self) -> None:
        """Account for the files of earlier runs; delete truncated and damaged files.

        Files that can't be read are left out, and so are all of them if the folder can't be read.
        """
        found = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                path = Path(entry.path)
                # Another process may delete the file meanwhile.
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False) and self._is_whole(path):
                        found.append((entry.stat().st_mtime_ns, path.name, entry.stat().st_size))
        for _, name, size_bytes in sorted(found):
            self._sizes[name] = size_bytes
            self._size_bytes += size_bytes
        self._evict()

    def _is_whole(self, path: Path) -> bool:
        """Return whether a file found at start is a valid index; delete temporary and damaged files."""
        if path.name.endswith(TEMP_SUFFIX):
            self._unlink(path)
            return False
        offset, _, id_and_suffix = path.name.partition("_")
        index_type = _TYPES.get(path.suffix)
        if index_type is None or len(id_and_suffix) < 22 or not (offset.isascii() and offset.isdigit()):
            return False
        try:
            _check(read_regular(path), index_type, int(offset), source=path.name)
        except OSError:
            return False
        except CorruptInputError:
            self._unlink(path)
            return False
        return True

    @contextmanager
    def _one_fetch_of(self, name: str) -> Iterator[None]:
        """Let one thread at a time work on the file `name`; threads with other files do not wait."""
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

    def _read_cached(self, name: str, start_offset: int, index_type: IndexType) -> bytes | None:
        path = self._folder / name
        try:
            data = read_trusted(path, hint="it is fetched again")
            os.utime(path)
            _check(data, index_type, start_offset, source=name)
        except FileNotFoundError:
            with self._lock:
                self._size_bytes -= self._sizes.pop(name, 0)
            return None
        except (OSError, CorruptInputError, SafetyRefusal):
            with self._lock:
                self._evict_file(name)
            return None
        with self._lock:
            self._account(name, len(data))
            self._evict()
        return data

    def _fetch(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        with self._lock:
            self.fetches += 1
        return index_bytes(self._remote, metadata, index_type)

    def _write(self, name: str, data: bytes) -> None:
        if len(data) > self._size_bytes_max:
            return
        try:
            self._fs.make_folder(self._folder, mode=0o755)
            # By a temporary file of its own: other processes may write the same index now.
            write_durably(self._folder / name, [data], mode=0o644, fs=self._fs)
        except OSError:
            with self._lock:
                self._evict_file(name)
            return
        with self._lock:
            self._account(name, len(data))
            self._evict()

    def _account(self, name: str, size_bytes: int) -> None:
        self._size_bytes += size_bytes - self._sizes.get(name, 0)
        self._sizes[name] = size_bytes
        self._sizes.move_to_end(name)

    def _evict(self) -> None:
        while self._size_bytes > self._size_bytes_max:
            self._evict_file(next(iter(self._sizes)))

    def _evict_file(self, name: str) -> None:
        self._size_bytes -= self._sizes.pop(name, 0)
        self._unlink(self._folder / name)

    def _unlink(self, path: Path) -> None:
        # The next start checks a file that can't be deleted now.
        with suppress(OSError):
            self._fs.unlink(path)


_OF_BROKERS = (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION)
_NAME = re.compile(r"(?P<stem>(?P<start>[0-9]+)_[A-Za-z0-9_-]{22})\.[^/]*")


def cached_by_broker(log_dir: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the files that a broker loads from its cache in `log_dir` when it starts, with what is wrong.

    The folder is yielded if it can't be listed. Source: RemoteIndexCache.init, which deletes the indexes of a
    segment that lacks one of three, and ends with an error at a file that it can't open, that Kafka's
    sanityCheck refuses, or whose name has no offset.
    """
    folder = log_dir / FOLDER
    try:
        paths = sorted(folder.iterdir())
    except OSError as e:
        if not isinstance(e, FileNotFoundError) or exists(folder, follow_symlinks=False):
            yield folder, f"it can't be listed: {e.strerror}"
        return
    for path in paths:
        if path.name.endswith((".deleted", ".tmp")):
            continue
        named = _NAME.fullmatch(path.name)
        if named is None:
            yield path, "its name is not that of an index"
            continue
        files = {path.with_name(named["stem"] + INDEX_SUFFIXES[kind]): kind for kind in _OF_BROKERS}
        # A running broker deletes indexes.
        with suppress(FileNotFoundError):
            if path in files and all(exists(each) for each in files):
                yield path, _why_damaged(path, files[path], int(named["start"]))


def _why_damaged(path: Path, kind: IndexType, start_offset: int) -> str | None:
    if start_offset > LARGEST_OFFSET:
        return f"its name has the offset {start_offset}, above Kafka's largest one"
    try:
        data = read_regular(path)
        # Kafka takes zeros after the entries of an offset index: each lookup finds the segment's beginning.
        _check(
            trimmed(data, kind) if kind is IndexType.OFFSET else data, kind, start_offset, source=path.name
        )
    except CorruptInputError as e:
        return e.message
    except FileNotFoundError:
        raise
    except OSError as e:
        return f"it can't be read: {e.strerror}"
    return None


def forget_indexes(
    folder: Path, metadata: RemoteLogSegmentMetadata, kinds: Iterable[IndexType], *, fs: FileSystem = PLAIN
) -> None:
    """Remove the cached indexes `kinds` of a segment, which the tier has anew, from the cache in `folder`.

    A disk that fails is ignored, as by the cache itself.
    """
    for kind in kinds:
        with suppress(OSError):
            fs.unlink(folder / FOLDER / _name_of(metadata, kind))


def _name_of(metadata: RemoteLogSegmentMetadata, kind: IndexType) -> str:
    return f"{metadata.start_offset}_{metadata.segment_id}{INDEX_SUFFIXES[kind]}"


def _check(data: bytes, index_type: IndexType, start_offset: int, *, source: str) -> None:
    """Raise CorruptInputError unless the index passes Kafka's sanityCheck and its entries ascend."""
    try:
        _CHECKS[index_type](data, start_offset)
    except CorruptInputError as e:
        raise e.within(source) from None


# Fetch whole remote segments to local files, for work that needs all bytes of a segment.
#
# A spooled segment takes at most its size, and at most INDEX_BYTES_MAX per index, on the local disk; its
# files are deleted when its `with` block ends.

CHUNK_BYTES = 1 << 20
_PREFIX = "tierctl-spool-"
_LOCK = "lock"
_ATTEMPTS = 100


@contextmanager
def spool_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for spooled segments, and delete it at the end; delete folders of killed runs, too.

    `parent` defaults to the folder for temporary files (TMPDIR).
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    for left in base.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    with ExitStack() as held:
        yield _locked_folder(base, held)


def _locked_folder(base: Path, held: ExitStack) -> Path:
    """Return a new folder that is locked until `held` closes.

    If another run deletes the folder as abandoned before it is locked, create another one.
    """
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with ExitStack() as own, suppress(LockedError, FileNotFoundError):
            own.callback(shutil.rmtree, folder, ignore_errors=True)
            own.enter_context(exclusive(folder, _LOCK))
            if exists(folder / _LOCK):
                held.push(own.pop_all())
                return folder
    raise LockedError(f"other runs deleted {_ATTEMPTS} new folders in {base}", hint="run again")


def _remove_abandoned(folder: Path) -> None:
    """Remove a spool folder of this user that no process has locked."""
    with suppress(OSError, LockedError):
        if folder.lstat().st_uid != os.geteuid() or not exists(folder / _LOCK):
            return
        with exclusive(folder, _LOCK):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spooled(
    remote: SegmentReader, metadata: RemoteLogSegmentMetadata, folder: Path
) -> Iterator[SegmentFiles]:
    """Fetch a segment and its indexes into `folder`, and delete the files at the end.

    Raise RemoteResourceNotFound if the store has no log of the segment, RemoteStorageError if the store
    fails, CorruptInputError for an index of more than INDEX_BYTES_MAX bytes, and SpoolError if the local disk
    fails.
    """
    # Not named by the id alone: two user partitions may have a segment of the same id, as in a copied bucket.
    own = Path(tempfile.mkdtemp(prefix=f"{metadata.segment_id}-", dir=folder))
    try:
        log = own / "log"
        with remote.fetch_log_segment(metadata, 0) as stream:
            _write(stream, log, metadata.segment_size_in_bytes + 1)
        indexes = {}
        for kind in IndexType:
            path = own / kind.value
            with suppress(RemoteResourceNotFound), remote.fetch_index(metadata, kind) as stream:
                _write(stream, path, INDEX_BYTES_MAX + 1)
                indexes[kind] = path
        yield SegmentFiles(log=log, indexes=indexes)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _write(stream: BinaryIO, path: Path, size_bytes_max: int) -> None:
    """Write at most `size_bytes_max` bytes of `stream` to `path`."""
    written = 0
    try:
        with path.open("wb") as file:
            while chunk := stream.read(min(CHUNK_BYTES, size_bytes_max - written)):
                file.write(chunk)
                written += len(chunk)
    except OSError as e:
        raise SpoolError(
            f"spooling to {path}: {e.strerror or e}", hint="set TMPDIR to a folder with more room"
        ) from e
