"""The contract of a layout (names and contents of a segment's objects), facts that a log itself has, and the
layout `kafka`, which LocalTieredStorage writes: one unchanged object per file of a segment.

`kafka-tiered-storage/<topic>-<partition>-<topicId>/<startOffset %020d>-<segmentId><suffix>`.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO, ClassVar, NamedTuple, Protocol

import numpy as np

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteStorageError,
    SafetyRefusal,
    TierctlError,
    TruncatedInputError,
)
from tierctl.files import TEMP_SUFFIX
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.events import PARTITION_MAX
from tierctl.model.local import LARGEST_OFFSET, unknown_segment
from tierctl.model.location import Layout
from tierctl.state.lineage import Lineage, OtherEpoch
from tierctl.storage.stores.base import ObjectStore, Source
from tierctl.wire.batches.scan import HeadColumns
from tierctl.wire.batches.segment_file import Window, highest_offset_of, scan_windows
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import (
    IndexStream,
    OffsetIndex,
    SegmentWriters,
    TimeIndex,
    TransactionIndex,
    trimmed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A segment's objects by key, in the order of storing; None for an object that must not exist.

    `custom_metadata` is KIP-917's.
    """

    objects: Mapping[str, Source | None]
    custom_metadata: bytes | None = None


class SegmentLayout(Protocol):
    """Names and encodes the objects of segments, independently of the store.

    Keys are made from metadata records, which may be hostile: every method raises SafetyRefusal for a record
    whose keys would lead out of the tier.
    """

    @property
    def name(self) -> str:
        """The value of `--layout` for this layout."""
        ...

    @property
    def base(self) -> str:
        """The prefix of every key of the tier: "" or a folder's name, which usually ends with `/`."""
        ...

    @property
    def keys_per_segment(self) -> int:
        """The number of keys that `keys_of` returns."""
        ...

    @property
    def required_objects(self) -> Mapping[ObjectPart, str]:
        """The suffixes of the objects of every complete segment, in the order in which they are written."""
        ...

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return every key that an object of the segment can have."""
        ...

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Return the metadata of the same segment with its objects under the keys of another partition."""
        ...

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return `keys_of`; raise SafetyRefusal if the metadata name the objects of another segment."""
        ...

    def require_writable(self) -> None:
        """Raise UsageError if the settings ask for segments that tierctl can't write."""
        ...

    def encoded(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> AbstractContextManager[Encoded]:
        """Return the segment's encoded objects; temporary files are deleted when the block ends."""
        ...

    def index_objects(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]
    ) -> Mapping[str, Source]:
        """Return the objects to store, by key, so that the segment has these indexes and its others as now.

        Raise SafetyRefusal if other objects would have to change, too.
        """
        ...

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """Return the log's bytes from `start` to `end`, exclusive, or to the log's end if `end` is None.

        Raise RemoteResourceNotFound if the log does not exist.
        """
        ...

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """Return one complete index; raise RemoteResourceNotFound if the segment has none of that type.

        Raise CorruptInputError, here or while it is read, if it has more than INDEX_BYTES_MAX bytes.
        """
        ...

    def log_end_offset(self, store: ObjectStore, listed: ListedSet) -> int:
        """Return the last offset of the log of a set that lacks other objects.

        Return LARGEST_OFFSET if it is unknown. Raise TruncatedInputError if the log was not written to its
        end, another CorruptInputError if it can't be interpreted, and RemoteResourceNotFound if it was
        deleted after the listing.
        """
        ...

    def derived(self, store: ObjectStore, listed: ListedSet) -> ObjectSet:
        """Return the listed objects with the metadata that a broker published for them.

        `listed` has all of `required_objects`. Broker id and event timestamp, which brokers do not use, may
        differ from the published ones. If indexes go on after the log, its end has them (`LogEnd.beyond`). If
        the objects are not those of one segment, the set has no metadata, but the reason. Raise
        TruncatedInputError for an object that was not written to its end, another CorruptInputError for one
        that can't be interpreted, and RemoteResourceNotFound for one that was deleted after the listing.
        """
        ...


def incomplete(listed: ListedSet, reason: str) -> ObjectSet:
    """Return the set as incomplete for `reason`."""
    return ObjectSet(listed=listed, why_incomplete=reason)


def not_understood(listed: ListedSet, error: TierctlError) -> ObjectSet:
    """Return the set as not understood: `error` says why its objects can't be interpreted or read."""
    reason = error.message if error.hint is None else f"{error.message}; {error.hint}"
    refused = isinstance(error, AuthenticationError) or isinstance(error.__cause__, PermissionError)
    return ObjectSet(listed=listed, why_not_understood=reason, lacks_rights=refused)


_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The last offset (inclusive) and largest timestamp of a complete log; -1 without a timestamp.

    `last_base_offset` and `last_producer_id` are those of the last batch. `has_gaps` states that offsets
    between the segment's start and the last one have no record.
    """

    end_offset: int
    last_base_offset: int
    last_producer_id: int
    max_timestamp_ms: int
    has_gaps: bool


OpenRange = Callable[[int, int], BinaryIO]
"""Opens the bytes of a log from a position to another one, exclusive."""


class StoredLog:
    """The log `name` in a store as LogBytes: one request for each range; `size_bytes` is its listed size."""

    def __init__(self, open_range: OpenRange, name: str, size_bytes: int) -> None:
        self._open_range = open_range
        self._name = name
        self.size_bytes = size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        with self._open_range(position, end) as stream:
            found = stream.read(end - position)
        # It says nothing about the log: the store returned less of it than it listed.
        if len(found) < end - position:
            raise RemoteStorageError(
                f"reading {self._name}: expected bytes {position} to {end - 1} of {self.size_bytes}, as it "
                f"was listed, found {len(found)} bytes",
                hint="run again; if the error stays, compare the size of the object with the store's listing",
            )
        return found

    def close(self) -> None:
        """Implement `LogBytes.close`; no file or stream is open between reads."""


def read_log_facts(
    open_range: OpenRange,
    key: str,
    size_bytes: int,
    start_offset: int,
    follow: Callable[[Window], None] | None = None,
) -> LogFacts:
    """Read a whole log, the object `key`, and check every batch with its CRC.

    The last offset is the last batch's, control batches included; the largest timestamp is that of all
    batches. The first batch may begin above `start_offset`: compaction removes records, also at the head of a
    segment. `follow`, if given, receives each window of the log. Raise TruncatedInputError if the log is
    empty or ends within a batch, and CorruptInputError if it begins below `start_offset`, or has bytes that
    are no good batch.
    """
    end_offset, last_base, producer_id, latest_ms, has_gaps = -1, -1, -1, -1, False
    for window in _windows(open_range, key, size_bytes, start_offset):
        heads = window.heads
        if follow is not None:
            follow(window)
        bases, following = heads.base_offsets, heads.next_offsets
        if end_offset < 0 and bases[0] < start_offset:
            raise CorruptInputError(
                "log",
                expected=f"a first batch at offset {start_offset} or above",
                found=f"{bases[0]}",
                source=key,
            )
        previous = np.concatenate([[start_offset if end_offset < 0 else end_offset + 1], following[:-1]])
        has_gaps |= bool((bases != previous).any()) or _lacks_records(heads)
        end_offset, last_base = int(following[-1]) - 1, int(bases[-1])
        producer_id = int(heads.fields["producer_id"][-1])
        latest_ms = max(latest_ms, int(heads.fields["max_timestamp_ms"].max()))
    if end_offset < 0:
        raise TruncatedInputError("log", expected="at least one batch", found="none", source=key)
    return LogFacts(end_offset, last_base, producer_id, latest_ms, has_gaps)


def _windows(open_range: OpenRange, key: str, size_bytes: int, start_offset: int) -> Iterator[Window]:
    log = StoredLog(open_range, key, size_bytes)
    highest = highest_offset_of(start_offset)
    for window in scan_windows(log, 0, start_offset, window_bytes=_WINDOW_BYTES, highest_offset=highest):
        heads = window.heads
        if heads.bad:
            raise heads.bad[0].error.within(key, base=window.position)
        if heads.torn is not None:
            raise TruncatedInputError(
                "log",
                expected="a whole batch",
                found=f"{heads.torn.size_bytes} bytes of one that was cut",
                at=window.position + heads.torn.position,
                source=key,
            )
        if len(heads):
            yield window


def _lacks_records(heads: HeadColumns) -> bool:
    """Return whether a batch has fewer records than offsets: compaction keeps a batch's offsets."""
    return bool((heads.fields["record_count"] != heads.fields["last_offset_delta"] + 1).any())


_ABORTED = "brokers would serve records of aborted transactions as committed"
_DERIVES = (
    "tierctl verify --deep --plan-out derives it from the log, if a metadata topic or a copy of it has this "
    "segment"
)

ROOT_FOLDER = "kafka-tiered-storage"

LOG_SUFFIX = ".log"
INDEX_SUFFIXES: dict[IndexType, str] = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES.values())

_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")


def require_legal(metadata: RemoteLogSegmentMetadata) -> None:
    """Raise SafetyRefusal if a name in the segment's keys is illegal: the record may be hostile."""
    partition = metadata.topic_id_partition
    hint = "the metadata record of the segment is wrong or hostile; show it with tierctl format"
    if not (
        is_legal_topic_name(partition.topic) and _ID.match(partition.topic_id) and partition.partition >= 0
    ):
        raise SafetyRefusal(f"not a legal topic partition for a path: {str(partition)!r}", hint=hint)
    if metadata.start_offset < 0 or not _ID.match(metadata.segment_id):
        raise SafetyRefusal(
            f"not a legal segment for a path: {str(metadata.segment_id)!r} at offset {metadata.start_offset}",
            hint=hint,
        )


def key_stem(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the key of the segment's objects without suffix; raise SafetyRefusal as `require_legal` does."""
    require_legal(metadata)
    folder = f"{metadata.topic}-{metadata.partition}-{metadata.topic_id}"
    return f"{ROOT_FOLDER}/{folder}/{metadata.start_offset:020d}-{metadata.segment_id}"


@dataclass(slots=True)
class _Written:
    """What the batches of a log show about its indexes; `lineage` is that of its leader-epoch index."""

    lineage: Lineage
    writers: SegmentWriters = field(default_factory=SegmentWriters)
    _other: OtherEpoch | None = None

    def follow(self, window: Window) -> None:
        """Apply the batches of the next window."""
        self.writers.follow(window)
        self._other = self._other or self.lineage.other_epoch(window.heads)

    @property
    def why_other_epoch(self) -> str | None:
        """How the leader-epoch index contradicts the batches; None if it does not."""
        if self._other is None:
            return None
        offset, epoch, expected = self._other
        return (
            f"its leader-epoch index is wrong: the batch at offset {offset} was written in epoch {epoch}, it "
            f"says {expected}; consumers would see a truncation at the next election; {_DERIVES}"
        )


class KafkaLayout:
    """SegmentLayout of LocalTieredStorage, which has no custom metadata."""

    name = Layout.KAFKA
    base = f"{ROOT_FOLDER}/"
    keys_per_segment = len(SUFFIXES)
    required_objects: ClassVar[Mapping[ObjectPart, str]] = {
        ObjectPart.LOG: LOG_SUFFIX,
        ObjectPart.OFFSET: INDEX_SUFFIXES[IndexType.OFFSET],
        ObjectPart.TIMESTAMP: INDEX_SUFFIXES[IndexType.TIMESTAMP],
        ObjectPart.LEADER_EPOCH: INDEX_SUFFIXES[IndexType.LEADER_EPOCH],
        ObjectPart.PRODUCER_SNAPSHOT: INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT],
    }

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_of`, in the order of SUFFIXES."""
        stem = key_stem(metadata)
        return tuple(stem + suffix for suffix in SUFFIXES)

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Implement `SegmentLayout.renamed`."""
        return moved(metadata, partition)

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_to_delete`; all keys contain the segment's own id."""
        return self.keys_of(metadata)

    def require_writable(self) -> None:
        """Implement `SegmentLayout.require_writable`: the layout has no settings."""

    @contextmanager
    def encoded(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Iterator[Encoded]:
        """Implement `SegmentLayout.encoded` by the unchanged files."""
        stem = key_stem(metadata)
        objects: dict[str, Source | None] = {stem + LOG_SUFFIX: data.log_segment}
        objects |= {stem + suffix: data.indexes[kind] for kind, suffix in INDEX_SUFFIXES.items()}
        yield Encoded(objects=objects)

    def index_objects(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]
    ) -> Mapping[str, Source]:
        """Implement `SegmentLayout.index_objects`: each index is an object."""
        del store
        stem = key_stem(metadata)
        return {stem + INDEX_SUFFIXES[kind]: data for kind, data in indexes.items()}

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_log`."""
        return store.open(key_stem(metadata) + LOG_SUFFIX, start, end)

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_index`."""
        stream = store.open(key_stem(metadata) + INDEX_SUFFIXES[index_type])
        return io.BufferedReader(IndexStream(stream, index_type, f"segment {metadata.segment_id}"))

    def derived(self, store: ObjectStore, listed: ListedSet) -> ObjectSet:
        """Implement `SegmentLayout.derived`: read the whole log, its leader epochs and producer snapshot.

        LocalTieredStorage copies the objects one after another, so each may be missing or cut.
        """
        named = unknown_segment(listed)
        with self.open_index(store, named, IndexType.PRODUCER_SNAPSHOT) as stream:
            producers = decode_producer_snapshot(stream.read())
        with self.open_index(store, named, IndexType.LEADER_EPOCH) as stream:
            lineage = read_leader_epoch_checkpoint(stream.read())
        size_bytes = listed.sizes_bytes[ObjectPart.LOG]
        key = key_stem(named) + LOG_SUFFIX
        written = _Written(Lineage(lineage))
        log = read_log_facts(partial(store.open, key), key, size_bytes, listed.start_offset, written.follow)
        why = written.why_other_epoch or self._why_wrong_index(
            store, listed, producers, written.writers, log.end_offset
        )
        if why is not None:
            return ObjectSet(listed=listed, why_not_understood=why, log_end=LogEnd(offset=log.end_offset))
        epochs = written.lineage.entries_in_range(listed.start_offset, log.end_offset + 1)
        if not epochs:
            why = "its leader-epoch index has no entry for its offsets"
            return ObjectSet(listed=listed, why_not_understood=why, stated_end_offset=log.end_offset)
        # Without timestamps a broker uses the modification time of the file (LogSegment.largestTimestamp).
        timestamp_ms = log.max_timestamp_ms if log.max_timestamp_ms >= 0 else named.event_timestamp_ms
        segment = replace(
            named,
            end_offset=log.end_offset,
            max_timestamp_ms=timestamp_ms,
            segment_leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in epochs),
            segment_size_in_bytes=size_bytes,
            txn_index_empty=not listed.sizes_bytes.get(ObjectPart.TRANSACTION),
        )
        indexed, timed, damaged = self._last_entries(store, named, log, size_bytes)
        beyond = {"offset index": indexed, "time index": timed}
        end = LogEnd(
            offset=log.end_offset,
            is_closed=log.last_base_offset <= timed <= log.end_offset,
            reached_offset=max(lineage[-1].start_offset, *(-1, *(p.last_offset for p in producers))),
            is_idempotent=log.last_producer_id in {p.producer_id for p in producers},
            beyond=tuple((name, offset) for name, offset in beyond.items() if offset > log.end_offset),
        )
        return ObjectSet(
            listed=listed,
            segment=segment,
            lineage=lineage,
            has_gaps=log.has_gaps,
            log_end=end,
            damaged_indexes=damaged,
        )

    def log_end_offset(self, store: ObjectStore, listed: ListedSet) -> int:
        """Implement `SegmentLayout.log_end_offset`: read the whole log."""
        key = key_stem(unknown_segment(listed)) + LOG_SUFFIX
        size_bytes = listed.sizes_bytes[ObjectPart.LOG]
        return read_log_facts(partial(store.open, key), key, size_bytes, listed.start_offset).end_offset

    def _why_wrong_index(
        self,
        store: ObjectStore,
        listed: ListedSet,
        producers: Sequence[ProducerEntry],
        writers: SegmentWriters,
        end_offset: int,
    ) -> str | None:
        """Return how the transaction index or the producer snapshot contradicts the log; None if not."""
        reason = self._why_wrong_transactions(store, listed, writers, end_offset)
        older = next(writers.older_entries(producers), None)
        if reason is not None or older is None:
            return reason
        return f"its producer snapshot is wrong: {older}; {_DERIVES}"

    def _why_wrong_transactions(
        self, store: ObjectStore, listed: ListedSet, writers: SegmentWriters, end_offset: int
    ) -> str | None:
        """Return how the transaction index contradicts the transactions of the log; None if it does not.

        Entries above `end_offset` are left out: whether the log was cut or compacted there is decided by the
        other sets (`with_ends`).
        """
        reason = None
        if not listed.sizes_bytes.get(ObjectPart.TRANSACTION):
            reason = writers.why_index_is_missing()
        else:
            try:
                with self.open_index(store, unknown_segment(listed), IndexType.TRANSACTION) as stream:
                    index = TransactionIndex.decode(stream.read(), listed.start_offset)
                within = TransactionIndex(tuple(e for e in index.entries if e.last_offset <= end_offset))
                difference = next(writers.differences(within), None)
            except CorruptInputError as e:
                difference = e.message
            reason = difference and f"its transaction index is wrong: {difference}"
        return None if reason is None else f"{reason}; {_ABORTED}; {_DERIVES}"

    def _last_entries(
        self, store: ObjectStore, named: RemoteLogSegmentMetadata, log: LogFacts, size_bytes: int
    ) -> tuple[int, int, tuple[str, ...]]:
        """Return the last offset in the offset and the time index, -1 if unknown, and the damaged ones.

        The entry of a batch that was cut off the `log` has an offset above its end, and also a position
        beyond its bytes, or a timestamp above those of its batches: LogSegment.append adds an entry to the
        time index only for a larger one. An entry of which one is beyond the log, and the other is not, is
        damaged. So are zeros after the last entry, but the entries before them are evidence.
        """
        indexed, timed = -1, -1
        damaged = ["offset index", "time index"]
        with suppress(CorruptInputError), self.open_index(store, named, IndexType.OFFSET) as stream:
            data = stream.read()
            used = trimmed(data, IndexType.OFFSET)
            place = OffsetIndex.decode(used, named.start_offset).lookup(LARGEST_OFFSET)
            if (place.offset > log.end_offset) == (place.position >= size_bytes):
                indexed = place.offset
                if len(used) in {0, len(data)}:
                    damaged.remove("offset index")
        with suppress(CorruptInputError), self.open_index(store, named, IndexType.TIMESTAMP) as stream:
            data = stream.read()
            used = trimmed(data, IndexType.TIMESTAMP)
            time = TimeIndex.decode(used, named.start_offset).last
            if time.offset <= log.end_offset or time.timestamp_ms > log.max_timestamp_ms:
                timed = time.offset
                if len(used) in {0, len(data)}:
                    damaged.remove("time index")
        return indexed, timed, tuple(damaged)


def moved(metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    """Return the metadata with the names of another partition."""
    return replace(
        metadata, topic=partition.topic, topic_id=partition.topic_id, partition=partition.partition
    )


# Parse the keys of listed objects and folders, in every layout. No layout gives names with a number that
# Kafka can't have, or with an id that is not in Kafka's form.
#
# `kafka`: `…/<topic>-<partition>-<topicId>/<start %020d>-<segmentId><suffix>`;
# `aiven`: `{prefix}<topic>-<topicId>/<partition>/<start %020d>-<segmentId>.{log|indexes|rsm-manifest}`.

UUID_PATTERN = r"([A-Za-z0-9_-]{21}[AQgw])"
"""22 characters of base64url have four bits more than 16 bytes; in Kafka's form these are 0."""
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_START = r"/([0-9]{20})-" + UUID_PATTERN
_FILE = _START + r"\Z"
AIVEN_PATTERN = r"[a-zA-Z0-9._-]{1,249}-" + UUID_PATTERN + "/" + _NUMBER + _START
"""The stem of a key in layout `aiven`, without the prefix."""
_KAFKA = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-" + _NUMBER + "-" + UUID_PATTERN + _FILE)
_AIVEN = re.compile(r".*[a-zA-Z0-9._-]-" + UUID_PATTERN + "/" + _NUMBER + _FILE)

_KAFKA_FOLDER = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-" + _NUMBER + "-" + UUID_PATTERN + r"/\Z")
_AIVEN_FOLDER = re.compile(r".*[a-zA-Z0-9._-]-" + UUID_PATTERN + "/(?:" + _NUMBER + r"/)?\Z")

_KAFKA_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    INDEX_SUFFIXES[IndexType.OFFSET]: int(ObjectPart.OFFSET),
    INDEX_SUFFIXES[IndexType.TIMESTAMP]: int(ObjectPart.TIMESTAMP),
    INDEX_SUFFIXES[IndexType.LEADER_EPOCH]: int(ObjectPart.LEADER_EPOCH),
    INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT]: int(ObjectPart.PRODUCER_SNAPSHOT),
    INDEX_SUFFIXES[IndexType.TRANSACTION]: int(ObjectPart.TRANSACTION),
}
_AIVEN_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    ".indexes": int(ObjectPart.INDEXES),
    ".rsm-manifest": int(ObjectPart.MANIFEST),
}


class SegmentStem(NamedTuple):
    """The facts in the stem that the keys of a segment's objects share.

    `parts` has the bit of each `ObjectPart` of the layout by the suffix of its keys: listings are long, and
    operations on members of an enumeration take ten times as long as those on their numbers.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    parts: Mapping[str, int]


def split_key(key: str) -> tuple[str, str]:
    """Return the stem and the suffix of a key, which begins with the first dot of its last name."""
    dot = key.find(".", key.rfind("/") + 1)
    return (key, "") if dot < 0 else (key[:dot], key[dot:])


def segment_stem(stem: str) -> SegmentStem | None:
    """Parse the stem of a key; return None if no layout gives such keys to the objects of a segment."""
    found, parts = _KAFKA.match(stem), _KAFKA_PARTS
    if found is not None:
        number, topic_id, start, segment_id = found.groups()
    else:
        found, parts = _AIVEN.match(stem), _AIVEN_PARTS
        if found is None:
            return None
        topic_id, number, start, segment_id = found.groups()
    partition, start_offset = int(number), int(start)
    if partition > PARTITION_MAX or start_offset > LARGEST_OFFSET:
        return None
    return SegmentStem(Uuid(topic_id), partition, start_offset, Uuid(segment_id), parts)


def named_segment(stem: str, suffix: str) -> SegmentStem | None:
    """Return the segment that a key names, also with a suffix that no layout has, as `.log.zst`.

    The object may be a part of the segment that was renamed or compressed. Return None for a temporary name.
    """
    return None if suffix.endswith(TEMP_SUFFIX) else segment_stem(stem)


def segment_object_name(key: str) -> SegmentObjectName | None:
    """Parse the key of an object; return None if no layout gives such a key to a segment's object."""
    stem, suffix = split_key(key)
    found = segment_stem(stem)
    part = None if found is None else found.parts.get(suffix)
    if found is None or part is None:
        return None
    return SegmentObjectName(
        topic_id=found.topic_id,
        partition=found.partition,
        start_offset=found.start_offset,
        segment_id=found.segment_id,
        part=ObjectPart(part),
        stem=stem,
    )


def owner_of_folder(folder: str) -> tuple[Uuid, int | None] | None:
    """Return the topic id, and the partition if one, whose segments belong in `folder`.

    Return None if `folder` is not the folder of a topic or partition in any layout. Objects below
    `folder` may still have the ids of other topics in their names.
    """
    found = _KAFKA_FOLDER.match(folder)
    if found is not None and int(found[1]) <= PARTITION_MAX:
        return Uuid(found[2]), int(found[1])
    # The name of a topic may end with a larger number.
    found = _AIVEN_FOLDER.match(folder)
    if found is None or (found[2] is not None and int(found[2]) > PARTITION_MAX):
        return None
    return Uuid(found[1]), None if found[2] is None else int(found[2])


def is_temporary(key: str) -> bool:
    """Return whether the key is a temporary name of a segment's object, used while the object is written."""
    return key.endswith(TEMP_SUFFIX) and segment_object_name(key.removesuffix(TEMP_SUFFIX)) is not None
