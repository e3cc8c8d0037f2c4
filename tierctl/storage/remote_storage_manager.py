"""A remote tier (KIP-405 RemoteStorageManager, KIP-917): a layout of segments on a store of objects."""

import io
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import BinaryIO, Concatenate, ParamSpec, Protocol, Self, TypeVar

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    StoreRefused,
    StoreWriteUnknown,
    TierctlError,
    TransferStopped,
    TruncatedInputError,
    UsageError,
)
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.model.choices import ATTEMPTS
from tierctl.model.progress import WAITS
from tierctl.model.selection import counted
from tierctl.model.settings import broker
from tierctl.storage.layouts.kafka import ROOT_FOLDER, SegmentLayout, incomplete, not_understood
from tierctl.storage.stores.base import FolderListing, ObjectStore, RemoteObject, by_folder
from tierctl.storage.throttle import FetchCounts, Fetches

OWN_PREFIX = ".tierctl-"
"""Begin of the names of tierctl's own objects, which are not listed among the tier's objects."""

_THREADS = 8

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How often and when to repeat a call (RemoteLogManagerConfig's defaults; ExponentialBackoff's formula).

    The wait after the nth failure is backoff_ms·2ⁿ⁻¹, at most `backoff_max_ms`, times a random factor
    from 1 − jitter to 1 + jitter. Kafka repeats for ever; tierctl makes at most `attempts` calls.
    """

    backoff_ms: int = broker.TASK_RETRY_BACKOFF_MS.value({})
    backoff_max_ms: int = broker.TASK_RETRY_BACKOFF_MAX_MS.value({})
    jitter: float = broker.TASK_RETRY_JITTER.value({})
    attempts: int = ATTEMPTS

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 0.5:
            raise UsageError(f"{broker.TASK_RETRY_JITTER.name}={self.jitter} is not between 0 and 0.5")
        if self.backoff_ms < 0 or self.backoff_max_ms < 0 or self.attempts < 1:
            names = f"{broker.TASK_RETRY_BACKOFF_MS.name} and {broker.TASK_RETRY_BACKOFF_MAX_MS.name}"
            raise UsageError(f"{names} can't be negative, nor attempts below 1")

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, attempts: int = ATTEMPTS) -> Self:
        """Return the retry settings in a broker's `settings`; raise UsageError for an invalid value."""
        return cls(
            backoff_ms=broker.TASK_RETRY_BACKOFF_MS.value(settings),
            backoff_max_ms=broker.TASK_RETRY_BACKOFF_MAX_MS.value(settings),
            jitter=broker.TASK_RETRY_JITTER.value(settings),
            attempts=attempts,
        )

    def wait_ms(self, failures: int, chance: float) -> float:
        """Return the wait after failure number `failures`, from 1; `chance` is random, from 0 to 1."""
        term = min(self.backoff_ms * 2.0 ** min(failures - 1, 62), self.backoff_max_ms)
        return min(term * (1 - self.jitter + 2 * self.jitter * chance), self.backoff_max_ms)


def is_retryable(error: RemoteStorageError) -> bool:
    """Return whether the same call may succeed later: a missing or different object stays so.

    So does the refusal of a store. A transfer that the run's end stopped is not repeated, either.
    """
    return not isinstance(
        error,
        (RemoteResourceNotFound, RemoteObjectDiffers, RemoteTierMissing, StoreRefused, TransferStopped),
    )


def _is_to_repeat(result: object) -> bool:
    return isinstance(result, RemoteStorageError) and is_retryable(result)


def _repeated(
    method: Callable[Concatenate["RemoteStorageManager", P], T],
) -> Callable[Concatenate["RemoteStorageManager", P], T]:
    """Return `method` such that its failed calls are repeated by the settings of its tier."""

    @wraps(method)
    def call(self: "RemoteStorageManager", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._retried(lambda: method(self, *args, **kwargs))

    return call


class SegmentReader(Protocol):
    """The two methods of RemoteStorageManager that read a segment."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """Return the segment's bytes, see `RemoteStorageManager.fetch_log_segment`."""
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Return one complete index, see `RemoteStorageManager.fetch_index`."""
        ...


def index_bytes(reader: SegmentReader, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
    """Return one whole index; a missing transaction index is empty, as in Kafka.

    Raises as `fetch_index`.
    """
    try:
        with reader.fetch_index(metadata, index_type) as stream:
            return stream.read()
    except RemoteResourceNotFound:
        if index_type is IndexType.TRANSACTION:
            return b""
        raise


class RemoteStorageManager:
    """Stores, reads and deletes remote segments and their indexes.

    Objects are named and encoded by `layout`, and kept in `store`, whose own calls are not repeated. Every
    attempt to copy a segment has a new segment id. Several threads may use different segments. All methods
    raise RemoteStorageError if the store fails.

    With `retry`, failed calls are repeated: every operation is idempotent, so that repeating is safe. A copy
    with unknown outcome is repeated only if the store can then list the segment's objects; otherwise
    StoreWriteUnknown is raised. A broken stream is opened again at its position. A listing is repeated only
    before its first object.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: SegmentLayout,
        retry: RetrySettings | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.layout = layout
        self.retry = retry
        self._sleep = sleep
        self._chance = chance
        self.fetches: FetchCounts | None = None
        """Counts the reads of segments, if it is set."""

    def without_retry(self) -> Self:
        """Return a tier of the same objects that reports the first failure of the store."""
        return type(self)(self.store, self.layout)

    def own_key(self, name: str) -> str:
        """Return the key of an object of tierctl's own, which is not listed among the tier's objects."""
        return f"{self._own_prefix}{name}"

    @property
    def _own_prefix(self) -> str:
        # The object is beside LocalTieredStorage's folder, at the prefix of Aiven's keys.
        return self.layout.base.removesuffix(f"{ROOT_FOLDER}/") + OWN_PREFIX

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store the segment and its indexes durably; return KIP-917's custom metadata or None.

        The operation is idempotent: it overwrites the objects of an earlier call with the same segment id.
        """
        unknown: list[StoreWriteUnknown] = []

        def store() -> bytes | None:
            with self.layout.encoded(metadata, data) as encoded:
                self.store.put_all(encoded.objects)
                return encoded.custom_metadata

        def require_store(error: RemoteStorageError) -> None:
            if isinstance(error, StoreWriteUnknown):
                unknown.append(error)
                self._require_store(metadata, error)

        try:
            return self._retried(store, before_retry=require_store)
        except TierctlError as e:
            # Any error counts: a store that refuses access after the first attempt raises no
            # RemoteStorageError.
            if not unknown or isinstance(e, StoreWriteUnknown):
                raise
            # An earlier attempt may still create the object, so a clean-up must not forget its key.
            raise StoreWriteUnknown(f"{e.message}; earlier: {unknown[0].message}", hint=e.hint) from e

    @_repeated
    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Compare size and checksum of every stored object of the segment with `data`.

        Raise RemoteStorageError for the first object that is missing or differs; an object too many differs,
        too.
        """
        with self.layout.encoded(metadata, data) as encoded:
            self.store.verify_all(encoded.objects)

    @_repeated
    def check_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Raise the SafetyRefusal that `store_indexes` would raise for these indexes; store nothing."""
        self.layout.index_objects(self.store, metadata, indexes)

    @_repeated
    def store_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Store these indexes of a finished segment durably; each replaces a stored one.

        No other index, and not the log, is changed. Raise SafetyRefusal before anything is stored if the
        layout can't hold them.
        """
        self.store.put_all(self.layout.index_objects(self.store, metadata, indexes))

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Return the metadata of the copy that `copy_objects` makes of the segment for another partition."""
        return self.layout.renamed(metadata, partition)

    @_repeated
    def copy_objects(self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> None:
        """Copy the objects of the segment durably to the keys of `renamed`, and verify them.

        A server that can copy does it. The segment's own objects are not changed. Raise
        RemoteResourceNotFound if it lacks one that every segment has: the copy is published as finished. The
        last object is copied last: readers open it first.
        """
        keys, new_keys = self.layout.keys_of(metadata), self.layout.keys_of(self.renamed(metadata, partition))
        present = self.store.sizes_bytes(keys)
        required = tuple(self.layout.required_objects.values())
        missing = next((key for key in keys if key.endswith(required) and key not in present), None)
        if missing is not None:
            raise RemoteResourceNotFound(f"{self.store.name_of(missing)} does not exist")
        for key, new_key in zip(keys, new_keys, strict=True):
            if key in present:
                self.store.copy(key, new_key)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """Return the segment's bytes from `start_position` to `end_position`, both inclusive.

        The stream ends at the segment's end if `end_position` is None or beyond it; memory is bounded for
        every range. Raise RemoteResourceNotFound if the segment does not exist, and ValueError for a negative
        or reversed range.
        """
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise ValueError(f"not a range of positions: {start_position} to {end_position}")
        end = None if end_position is None else end_position + 1

        def count(more: Fetches) -> None:
            if self.fetches is not None:
                self.fetches.add(metadata.topic, more)

        def open_at(position: int) -> BinaryIO:
            start = start_position + position
            if end is not None and start >= end:
                return io.BytesIO()
            count(Fetches(requests=1))
            return self.layout.open_log(self.store, metadata, start, end)

        return self._resuming(open_at, count if self.fetches is not None else None)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Return one whole index. Raise RemoteResourceNotFound if the segment has no index of that type.

        Raise CorruptInputError, here or while it is read, if it has more than INDEX_BYTES_MAX bytes.
        """

        def open_at(position: int) -> BinaryIO:
            stream = self.layout.open_index(self.store, metadata, index_type)
            stream.read(position)
            return stream

        return self._resuming(open_at)

    @property
    def delete_batch(self) -> int:
        """The number of segments that one call of `delete_log_segments` should have.

        It follows from the number of objects that the store deletes by one request.
        """
        return max(1, self.store.delete_batch // self.layout.keys_per_segment)

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        """Delete every object of the segments by its exact key (KIP-405 deleteLogSegmentData, in bulk).

        Return, for each segment, the error of an object that was not deleted; None if the store reported
        none. Only `objects_of_each` proves that the objects are gone. Missing objects are no error. Errors
        that concern all segments are raised; only segments with an error are repeated.
        """
        return self._retried_each(self._deleted, segments, f"deleting {counted(len(segments), 'segment')}")

    def _deleted(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        """Delete the objects of the segments by one call of the store; return the error of each segment."""
        each = [_keys(self.layout.keys_to_delete, segment) for segment in segments]
        failed = self.store.delete([key for keys in each if isinstance(keys, tuple) for key in keys])
        return [
            next((failed[key] for key in keys if key in failed), None) if isinstance(keys, tuple) else keys
            for keys in each
        ]

    def objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        """Return what `objects_of` returns, or raises, for each segment; list each folder once.

        Errors that concern all segments are raised; only segments with an error are repeated.
        """
        return self._retried_each(
            self._objects_of_each, segments, f"listing the objects of {counted(len(segments), 'segment')}"
        )

    def _objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        """Return the objects, or the error, of each segment; several threads list some folders each."""
        each = [_keys(self.layout.keys_of, segment) for segment in segments]
        folders = by_folder(key for keys in each if isinstance(keys, tuple) for key in keys)
        ordered = [folders[folder] for folder in sorted(folders)]
        size = -(-len(ordered) // _THREADS) or 1
        shares = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        found: dict[str, int | TierctlError] = {}
        with ThreadPoolExecutor(len(shares) or 1) as pool:
            for share in pool.map(self._sizes_or_errors, shares):
                found |= share
        return [_objects(keys, found) if isinstance(keys, tuple) else keys for keys in each]

    def _sizes_or_errors(self, folders: Sequence[Sequence[str]]) -> Mapping[str, int | TierctlError]:
        """Return the size of each object, or the error of its folder, for the keys of some folders."""
        try:
            return self.store.sizes_bytes([key for keys in folders for key in keys])
        except RemoteTierMissing:
            raise
        except TierctlError as e:
            if len(folders) == 1:
                return dict.fromkeys(folders[0], e)
        # If one folder can't be listed, the others are still listed.
        each = [self._sizes_or_errors([keys]) for keys in folders]
        return {key: size_or_error for found in each for key, size_or_error in found.items()}

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        """Return the objects of the segment that the store has now, sorted by key."""
        return self._retried(
            lambda: self._objects_of(metadata), f"listing the objects of segment {metadata.segment_id}"
        )

    def _objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        sizes = self.store.sizes_bytes(self.layout.keys_of(metadata))
        return [RemoteObject(key, size_bytes) for key, size_bytes in sorted(sizes.items())]

    def has_keys(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether the metadata allow keys: a name in them may be illegal, or custom metadata wrong."""
        return not isinstance(_keys(self.layout.keys_of, metadata), TierctlError)

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Return the URI or path of the segment's first object, whether or not the object exists."""
        return self.store.name_of(self.layout.keys_of(metadata)[0])

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        """Yield every object below `folder`, sorted by key, also objects that belong to no segment.

        Entries that are no plain objects have a `problem`; they do not end the listing. Temporary files of a
        crashed run are included. `folder` is a prefix from `list_folder`, or "" for the whole tier.
        """

        def begin() -> tuple[RemoteObject | None, Iterator[RemoteObject]]:
            objects = self._list_objects(folder)
            return next(objects, None), objects

        first, others = self._retried(begin, "listing the objects of the tier")
        if first is not None:
            yield first
            yield from others

    def _list_objects(self, folder: str) -> Iterator[RemoteObject]:
        prefix, own = folder or self.layout.base, self._own_prefix
        listed = self.store.list_objects(prefix)
        # Most folders can't contain tierctl's own objects, and their listings are long.
        if not (own.startswith(prefix) or prefix.startswith(own)):
            return listed
        return (found for found in listed if not found.key.startswith(own))

    def list_folder(self, folder: str = "") -> FolderListing:
        """Return the contents of one folder of the tier, so that several threads can list the tier."""
        found = self._retried(
            lambda: self.store.list_folder(folder or self.layout.base),
            f"listing the folder {folder or '/'} of the tier",
        )
        return replace(
            found, objects=tuple(obj for obj in found.objects if not obj.key.startswith(self._own_prefix))
        )

    @_repeated
    def derived(self, listed: ListedSet) -> ObjectSet:
        """Return a set of objects with the metadata derived from them, see `SegmentLayout.derived`.

        A set that is incomplete, or that is not understood, has no metadata, but the reason. A set without
        its log is incomplete. One that lacks another object, maybe because it is being deleted, is not
        understood: its log may have the only copy of its records.
        """
        required = self.layout.required_objects
        missing = [suffix for part, suffix in required.items() if not listed.parts & part]
        try:
            if not missing:
                return self.layout.derived(self.store, listed)
            reason = f"it has no {', '.join(missing)}"
        except RemoteResourceNotFound as e:
            reason = e.message
        except (CorruptInputError, LimitExceeded) as e:
            return _damaged(listed, e)
        try:
            if not listed.parts & ObjectPart.LOG:
                return incomplete(listed, reason)
            end_offset = self.layout.log_end_offset(self.store, listed)
        except RemoteResourceNotFound:
            return incomplete(listed, reason)
        except (CorruptInputError, LimitExceeded) as e:
            return _damaged(listed, e)
        return ObjectSet(listed=listed, why_not_understood=reason, log_end=LogEnd(offset=end_offset))

    def close(self) -> None:
        """Release connections and files."""
        self.store.close()

    def _require_store(self, metadata: RemoteLogSegmentMetadata, error: StoreWriteUnknown) -> None:
        """Raise `error` unless the store answers which objects of the segment it has."""
        try:
            self._objects_of(metadata)
        except RemoteStorageError:
            raise error from None

    def _resuming(
        self, open_at: Callable[[int], BinaryIO], count: Callable[[Fetches], None] | None = None
    ) -> BinaryIO:
        """Return the stream that `open_at` opens at position 0, or with `retry` one that resumes.

        `count` receives the bytes that are read, and the errors.
        """
        if self.retry is None and count is None:
            return open_at(0)
        return io.BufferedReader(_ResumingStream(open_at, self._retried, count or _no_count))

    def _retried_each(
        self,
        call: Callable[[Sequence[RemoteLogSegmentMetadata]], list[T | TierctlError]],
        segments: Sequence[RemoteLogSegmentMetadata],
        what: str,
    ) -> list[T | TierctlError]:
        """Return the results of `call`, which is repeated for the segments whose result is retryable.

        `what` names the operation for the report of a long wait.
        """
        if self.retry is None:
            return call(segments)
        results: dict[int, T | TierctlError] = {}
        left = list(range(len(segments)))

        def call_for_left() -> None:
            results.update(zip(left, call([segments[at] for at in left]), strict=True))
            left[:] = [at for at in left if _is_to_repeat(results[at])]
            for at in left[:1]:
                raise results[at]  # type: ignore[misc]

        try:
            self._retried(call_for_left, what)
        except RemoteStorageError:
            if not left or len(results) < len(segments):
                raise
        return [results[at] for at in range(len(segments))]

    def _retried(
        self,
        call: Callable[[], T],
        what: str | None = None,
        *,
        before_retry: Callable[[RemoteStorageError], None] | None = None,
    ) -> T:
        """Return the result of `call`, which is repeated after a failure as `retry` says.

        The whole is a wait for `what`. `before_retry` receives the error before each repetition.
        """
        if self.retry is None:
            return call()
        failures = 0
        with nullcontext() if what is None else WAITS.waiting(what):
            while True:
                try:
                    return call()
                except RemoteStorageError as e:
                    failures += 1
                    if failures >= self.retry.attempts or not is_retryable(e):
                        raise
                    self._wait(self.retry, failures, e)
                    if before_retry is not None:
                        before_retry(e)

    def _wait(self, retry: RetrySettings, failures: int, error: RemoteStorageError) -> None:
        """Wait before the next attempt after so many failures, the last of them `error`."""
        with WAITS.waiting(f"before attempt {failures + 1}, after {error.message}"):
            self._sleep(retry.wait_ms(failures, self._chance()) / 1000)


def _damaged(listed: ListedSet, error: CorruptInputError | LimitExceeded) -> ObjectSet:
    if isinstance(error, TruncatedInputError):
        return incomplete(listed, error.message)
    return not_understood(listed, error)


def _keys(
    keys_of: Callable[[RemoteLogSegmentMetadata], tuple[str, ...]], segment: RemoteLogSegmentMetadata
) -> tuple[str, ...] | TierctlError:
    """Return the keys of `segment`, or the error for metadata whose keys would lead out of the tier."""
    try:
        return keys_of(segment)
    except TierctlError as e:
        return e


def _objects(
    keys: Sequence[str], found: Mapping[str, int | TierctlError]
) -> list[RemoteObject] | TierctlError:
    objects = []
    for key in sorted(keys):
        size_or_error = found.get(key)
        if isinstance(size_or_error, TierctlError):
            return size_or_error
        if size_or_error is not None:
            objects.append(RemoteObject(key, size_or_error))
    return objects


class _Retried(Protocol):
    def __call__(self, call: Callable[[], T]) -> T: ...


def _no_count(_more: Fetches) -> None:
    """Count nothing."""


class _ResumingStream(io.RawIOBase):
    """A stream that opens its source again, at the current position, if reading fails.

    `count` receives the bytes that are read, and each error.
    """

    def __init__(
        self, open_at: Callable[[int], BinaryIO], retried: _Retried, count: Callable[[Fetches], None]
    ) -> None:
        self._open_at = open_at
        self._retried = retried
        self._count = count
        self._position = 0
        self._stream: BinaryIO | None = None
        self._retried(self._opened)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]

        def read() -> bytes:
            stream = self._opened()
            try:
                return stream.read(len(view))
            except Exception as e:
                self._count(Fetches(errors=1))
                if isinstance(e, RemoteStorageError):
                    self._drop()
                raise

        found = self._retried(read)
        view[: len(found)] = found
        self._position += len(found)
        self._count(Fetches(size_bytes=len(found)))
        return len(found)

    def close(self) -> None:
        self._drop()
        super().close()

    def _opened(self) -> BinaryIO:
        if self._stream is None:
            try:
                self._stream = self._open_at(self._position)
            except TierctlError:
                self._count(Fetches(errors=1))
                raise
        return self._stream

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def require_store(remote: RemoteStorageManager, error: TierctlError) -> None:
    """Raise `error`, which is about one object, if the store itself does not respond any more."""
    try:
        remote.list_folder()
    except (RemoteStorageError, AuthenticationError):
        raise error from None
