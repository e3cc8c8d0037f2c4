"""Layout `aiven`: the objects that Aiven's tiered storage plugin writes.

`{prefix}{topic}-{topicId}/{partition}/{start %020d}-{segmentId}.{log|indexes|rsm-manifest}`, the prefix
prepended without a `/`. Source: io.aiven.kafka.tieredstorage.{ObjectKeyFactory, KafkaRemoteStorageManager}.
"""

import io
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self

from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    SafetyRefusal,
    StoreWriteFailed,
    TruncatedInputError,
    UsageError,
)
from tierctl.model import (
    EpochEntry,
    HashedFile,
    IndexType,
    ListedSet,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.local import LARGEST_OFFSET, unknown_segment
from tierctl.model.location import Layout
from tierctl.model.settings import clients
from tierctl.model.settings.broker import STORAGE_MANAGER_PREFIX
from tierctl.model.settings.known import require_no_references
from tierctl.model.settings.scopes import StatedSettings
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map
from tierctl.storage.layouts.aiven.segment import ENCRYPTION_BYTES, AivenSegment, ChunkCache
from tierctl.storage.layouts.kafka import (
    AIVEN_PATTERN,
    Encoded,
    incomplete,
    moved,
    require_legal,
)
from tierctl.storage.stores.base import ObjectStore, Source, chunks, hashed_file
from tierctl.wire.aiven import (
    FIELDS,
    INDEX_NAMES,
    MANIFEST_MAX_BYTES,
    AivenCustomMetadata,
    ChunkIndex,
    IndexRange,
    Manifest,
    compress_chunk,
    iceberg,
    read_custom_metadata,
    read_manifest,
    read_segment_metadata,
    write_custom_metadata,
    write_manifest,
)
from tierctl.wire.batches.batch_head import COMPRESSION_MASK, MAGIC, MAGIC_AT
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import TimeIndex, TimestampOffset, TransactionIndex, trimmed

if TYPE_CHECKING:
    from tierctl.storage.layouts.aiven.crypto import Keyring


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenSettings:
    """The plugin's settings, under the plugin's names.

    `key_prefix` is None if it is not set. `private_keys` are PEM files by key id; the file of "" is for every
    id that has no file.
    """

    key_prefix: str | None = None
    chunk_size: int = clients.CHUNK_SIZE.value({})
    compression: bool = False
    compression_heuristic: bool = False
    encryption: bool = False
    custom_metadata_fields: frozenset[str] = frozenset()
    private_keys: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, broker: Mapping[str, str]) -> Self:
        """Return the plugin's settings in a broker's settings.

        Raise UsageError for invalid values and for references to a config provider, and
        UnsupportedFormatError for segment.format=iceberg.
        """
        prefix = STORAGE_MANAGER_PREFIX.value(broker)
        acted_on = [f"{prefix}{row.name}" for row in clients.PLUGINS if row.acted_on]
        keys = [name for name in broker if name.startswith(f"{prefix}{clients.KEY_PAIR_PREFIX}")]
        require_no_references(broker, [*acted_on, *keys], "--broker-config")
        own = StatedSettings.of(broker).below(prefix)
        if clients.SEGMENT_FORMAT.value(own).strip().lower() == "iceberg":
            raise iceberg(f"{prefix}{clients.SEGMENT_FORMAT.name}")
        return cls(
            key_prefix=clients.KEY_PREFIX.given(own),
            chunk_size=clients.CHUNK_SIZE.value(own),
            compression=clients.COMPRESSION.value(own),
            compression_heuristic=clients.COMPRESSION_HEURISTIC.value(own),
            encryption=clients.ENCRYPTION.value(own),
            custom_metadata_fields=_fields(clients.CUSTOM_METADATA_FIELDS.value(own)),
            private_keys={
                name.removeprefix(clients.KEY_PAIR_PREFIX).removesuffix(clients.PRIVATE_KEY_SUFFIX): Path(
                    file
                )
                for name, file in own.items()
                if name.startswith(clients.KEY_PAIR_PREFIX) and name.endswith(clients.PRIVATE_KEY_SUFFIX)
            },
        )


def _fields(given: tuple[str, ...]) -> frozenset[str]:
    names = frozenset(name.upper() for name in given)
    if not names <= set(FIELDS):
        unknown = ", ".join(sorted(names - set(FIELDS)))
        raise UsageError(
            f"{clients.CUSTOM_METADATA_FIELDS.name} names unknown fields: {unknown}",
            hint=f"expected some of {', '.join(FIELDS)}",
        )
    return names


def _why_of_longer_prefix(named: str, stored: str) -> str | None:
    """Return why the objects are those of another tier; None if not.

    They begin with this tier's prefix, too, and the rest of their own seems to begin the topic `named`, which
    counts as deleted in this tier. `stored` is the topic in their manifest.
    """
    rest = named.removesuffix(stored)
    if named in {stored, rest}:
        return None
    return f"its manifest is of topic {stored}: it is of a tier whose key.prefix goes on with {rest!r}"


def why_other(listed: ListedSet, manifest: Manifest, stored: RemoteLogSegmentMetadata) -> str | None:
    """Return why the manifest can't be the one of these objects; None if it can."""
    if stored.start_offset != listed.start_offset:
        return f"its manifest is of a segment from offset {stored.start_offset}"
    if stored.end_offset < stored.start_offset or not stored.segment_leader_epochs:
        return "its manifest has no offsets or no leader epochs"
    starts = [start for _, start in stored.segment_leader_epochs]
    if starts[0] < stored.start_offset or starts != sorted(starts) or starts[-1] > stored.end_offset:
        return f"its manifest has leader epochs from the offsets {starts}, which are not those of its records"
    chunks, encrypted = manifest.chunk_index, manifest.encryption is not None
    added = len(chunks.stored_sizes) * ENCRYPTION_BYTES if encrypted else 0
    if not manifest.compression and chunks.stored_size != chunks.original_file_size + added:
        return f"its manifest has {chunks.original_file_size} bytes in chunks of {chunks.stored_size} bytes"
    log_bytes = listed.sizes_bytes[ObjectPart.LOG]
    if log_bytes > manifest.chunk_index.stored_size:
        return f"its .log has {log_bytes} bytes, its manifest says only {manifest.chunk_index.stored_size}"
    return None


def _why_not_empty(manifest: Manifest, stored: RemoteLogSegmentMetadata) -> str | None:
    """Return how the manifest contradicts that there is no transaction index, as it says; None if not.

    Brokers do not open the transaction index of such a segment.
    """
    span = manifest.indexes[IndexType.TRANSACTION]
    added = ENCRYPTION_BYTES if manifest.encryption is not None else 0
    if not stored.txn_index_empty or span is None or span.size <= added:
        return None
    return f"its manifest has a transaction index of {span.size} bytes that it says is empty"


def compared_indexes(
    segment: RemoteLogSegmentMetadata, objects: AivenSegment
) -> tuple[tuple[EpochEntry, ...] | None, str | None]:
    """Return the leader-epoch index, and how the indexes contradict the manifest's metadata; None if not.

    Raise CorruptInputError for an index that can't be decoded.
    """
    last = () if objects.manifest.indexes[IndexType.TRANSACTION] is None else (IndexType.TRANSACTION,)
    times, snapshot, epochs, *transactions = objects.indexes(
        IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH, *last
    )
    try:
        producers = decode_producer_snapshot(snapshot)
        lineage = read_leader_epoch_checkpoint(epochs)
        # The manifest states the rest: zeros after the entries, which verify reports, do not contradict it.
        latest = TimeIndex.decode(trimmed(times, IndexType.TIMESTAMP), segment.start_offset).last
        aborted = TransactionIndex.decode(b"".join(transactions), segment.start_offset)
    except TruncatedInputError as e:
        # The object has all its bytes: the manifest's ranges are wrong.
        return None, e.message
    reason = _why_other_epochs(segment, lineage) or _why_other_time(segment, latest)
    return lineage, reason or _why_other_offsets(segment, producers, aborted)


def _why_other_offsets(
    segment: RemoteLogSegmentMetadata, producers: Sequence[ProducerEntry], aborted: TransactionIndex
) -> str | None:
    """Return which producer or aborted transaction has an offset that the segment can't have; None if none.

    The log itself, which is not read, may contradict them more.
    """
    first, last = segment.start_offset, segment.end_offset
    for producer in producers:
        if producer.last_offset > last:
            at = producer.last_offset
            return f"its producer snapshot has producer {producer.producer_id} at {at}, it ends at {last}"
    for entry in aborted.entries:
        if not first <= entry.last_offset <= last:
            return f"its transaction index has the entry {tuple(entry)}, its offsets are {first} to {last}"
    return None


def _why_other_time(segment: RemoteLogSegmentMetadata, latest: TimestampOffset) -> str | None:
    """Return how the last entry of the time index contradicts the manifest; None if it does not.

    A broker appends the largest timestamp when it rolls the segment (LogSegment.onBecomeInactiveSegment).
    """
    if latest.offset > segment.end_offset:
        return f"its manifest ends at offset {segment.end_offset}, its time index has {latest.offset}"
    if latest.timestamp_ms in {-1, segment.max_timestamp_ms}:
        return None
    said = segment.max_timestamp_ms
    return f"its manifest has the largest timestamp {said}, its time index {latest.timestamp_ms}"


def _why_other_epochs(segment: RemoteLogSegmentMetadata, lineage: Sequence[EpochEntry]) -> str | None:
    """Return how the manifest's leader epochs contradict the leader-epoch index; None if they agree."""
    within = dict(Lineage(lineage).entries_in_range(segment.start_offset, segment.end_offset + 1))
    own = dict(segment.segment_leader_epochs)
    if build_filtered_leader_epoch_map(own) == build_filtered_leader_epoch_map(within):
        return None
    return f"its manifest has the leader epochs {own}, its leader-epoch index {within} at these offsets"


def _why_cut(listed: ListedSet, manifest: Manifest) -> str | None:
    """Return how the log is shorter than the manifest states; None if it is not."""
    log_bytes, said = listed.sizes_bytes[ObjectPart.LOG], manifest.chunk_index.stored_size
    return None if log_bytes >= said else f"its .log has {log_bytes} bytes, its manifest says {said}"


def _why_short_indexes(listed: ListedSet, manifest: Manifest) -> str | None:
    """Return how the indexes are shorter than the manifest states; None if they are not.

    It shows that the object was cut, or that the manifest is damaged, and nothing about the log.
    """
    index_bytes = listed.sizes_bytes[ObjectPart.INDEXES]
    last = max(each.position + each.size for each in manifest.indexes.values() if each is not None)
    return f"its .indexes has {index_bytes} of {last} bytes" if index_bytes < last else None


LOG, INDEXES, MANIFEST = SUFFIXES = (".log", ".indexes", ".rsm-manifest")

MANIFEST_CACHE_SIZE = 64
"""Number of manifests in the cache: a reader of records reads many ranges of the same segment."""

_MAIN = re.compile(AIVEN_PATTERN + r"\Z")
_LARGEST_ID, _LARGEST_PARTITION, _LARGEST_SEGMENT_BYTES = Uuid.from_bytes(b"\xff" * 16), 99_999, 1 << 33
_BATCH_HEAD_BYTES, _ATTRIBUTES_AT, _ATTRIBUTES_OF_MESSAGE_AT = 23, 22, 17


def main_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the plugin's OBJECT_KEY, the key between prefix and suffix; raise SafetyRefusal if illegal."""
    require_legal(metadata)
    return _main_path(metadata.topic_id_partition, metadata.start_offset, metadata.segment_id)


def _main_path(partition: TopicIdPartition, start_offset: int, segment_id: Uuid) -> str:
    folder = f"{partition.topic}-{partition.topic_id}/{partition.partition}"
    return f"{folder}/{start_offset:020d}-{segment_id}"


def custom_metadata_bytes(settings: AivenSettings, topic: str) -> int:
    """Return the size of the largest custom metadata that the plugin writes for a segment of `topic`."""
    partition = TopicIdPartition(_LARGEST_ID, topic, _LARGEST_PARTITION)
    key = _main_path(partition, 0, _LARGEST_ID)
    written = _custom_metadata(settings, settings.key_prefix or "", key, _LARGEST_SEGMENT_BYTES)
    return len(written or b"")


def _custom_metadata(settings: AivenSettings, prefix: str, key: str, remote_size: int) -> bytes | None:
    """Return the custom metadata with the fields that `settings` include; None if they include none."""
    has_size, has_prefix, has_key = (name in settings.custom_metadata_fields for name in FIELDS)
    return write_custom_metadata(
        AivenCustomMetadata(
            remote_size=remote_size if has_size else None,
            object_prefix=prefix if has_prefix else None,
            object_key=key if has_key else None,
        )
    )


class AivenLayout:
    """SegmentLayout of the plugin; `key_prefix` is its key.prefix, relative to the store."""

    name = Layout.AIVEN
    keys_per_segment = len(SUFFIXES)
    required_objects: ClassVar[Mapping[ObjectPart, str]] = {
        ObjectPart.LOG: LOG,
        ObjectPart.INDEXES: INDEXES,
        ObjectPart.MANIFEST: MANIFEST,
    }

    def __init__(
        self, settings: AivenSettings | None = None, *, key_prefix: str = "", root: str = ""
    ) -> None:
        """`root` is the store's folder in its bucket or on its disk, which prefixes in metadata include."""
        self._settings = settings or AivenSettings()
        self._root = root
        self._keys: Keyring | None = None
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._lock = threading.Lock()
        self._chunk_cache = ChunkCache()
        self.base = _legal_prefix(key_prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments: another process reads keys and manifests itself."""
        return _layout, (self._settings, self.base, self._root)

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_of`: custom metadata take precedence.

        So the plugin reads logs and indexes. It reads manifests and deletes objects by its present settings.
        """
        stem = self._stem(metadata)
        return tuple(stem + suffix for suffix in SUFFIXES)

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Implement `SegmentLayout.renamed`; custom metadata that name the objects name the new ones."""
        segment, custom = moved(metadata, partition), self._custom(metadata)
        if custom.object_key is None:
            return segment
        custom = replace(custom, object_key=main_path(segment))
        return replace(segment, custom_metadata=write_custom_metadata(custom))

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_to_delete`: custom metadata must not name another segment."""
        named = self._custom(metadata).object_key
        if named is not None and named != main_path(metadata):
            raise SafetyRefusal(
                f"custom metadata of {metadata.segment_id} name another segment's objects: {named!r}",
                hint="show the record with tierctl format; tierctl deletes only the segment's own objects",
            )
        self._drop_cached(self._stem(metadata))
        return self.keys_of(metadata)

    def require_writable(self) -> None:
        """Implement `SegmentLayout.require_writable`: tierctl can't encrypt."""
        if self._settings.encryption:
            raise UsageError(
                "encryption.enabled=true: tierctl reads encrypted segments, but writes none",
                hint="let the plugin copy this topic, or disable encryption for tierctl's copies",
            )

    @contextmanager
    def encoded(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Iterator[Encoded]:
        """Implement `SegmentLayout.encoded`; a compressed log is a file in TMPDIR until the block ends."""
        self.require_writable()
        stem = self.base + main_path(metadata)
        self._drop_cached(stem)
        with self._encoded_log(data.log_segment) as (log, chunk_index, compressed):
            ranges, indexes = _encoded_indexes(data)
            manifest = Manifest(chunk_index=chunk_index, indexes=ranges, compression=compressed)
            document = write_manifest(manifest, metadata)
            yield Encoded(
                # The manifest is last: readers open the other two objects by it.
                objects={stem + LOG: log, stem + INDEXES: indexes, stem + MANIFEST: document},
                custom_metadata=self._custom_metadata_of(
                    metadata, chunk_index.stored_size + len(indexes) + len(document)
                ),
            )

    def index_objects(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]
    ) -> Mapping[str, Source]:
        """Implement `SegmentLayout.index_objects`: one object has all indexes, as the manifest states.

        The manifest is not changed, so each index must keep its size.
        """
        segment = self._segment(store, metadata)
        return {segment.stem + INDEXES: segment.with_indexes(indexes)}

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_log`."""
        segment = self._segment(store, metadata)
        segment.require_at_most(metadata.segment_size_in_bytes)
        return segment.log(start, end)

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_index`."""
        return io.BytesIO(self._segment(store, metadata).index(index_type))

    def log_end_offset(self, store: ObjectStore, listed: ListedSet) -> int:
        """Implement `SegmentLayout.log_end_offset` by the manifest; without it, the log can't be decoded."""
        key = self.base + main_path(unknown_segment(listed)) + MANIFEST
        with suppress(RemoteResourceNotFound):
            stored = read_segment_metadata(*self._read_manifest(store, key))
            # The manifest of another segment states nothing about this one.
            if stored.start_offset == listed.start_offset:
                return stored.end_offset
        return LARGEST_OFFSET

    def derived(self, store: ObjectStore, listed: ListedSet) -> ObjectSet:
        """Implement `SegmentLayout.derived` by the manifest, which the plugin writes last.

        The lineage is None if the set is encrypted and no private key is given.
        """
        named = unknown_segment(listed)
        key = self.base + main_path(named) + MANIFEST
        raw, manifest = self._read_manifest(store, key)
        try:
            stored = read_segment_metadata(raw, manifest)
        except CorruptInputError as e:
            raise e.within(key) from None
        reason = (
            _why_of_longer_prefix(named.topic, stored.topic)
            or why_other(listed, manifest, stored)
            or _why_not_empty(manifest, stored)
        )
        if reason is not None:
            return ObjectSet(listed=listed, why_not_understood=reason)
        cut = _why_cut(listed, manifest)
        if cut is not None:
            return incomplete(listed, cut)
        # A bucket that was copied under other ids keeps its manifests: the key has the ids that count.
        segment = replace(
            stored,
            topic=named.topic,
            topic_id=named.topic_id,
            partition=named.partition,
            segment_id=named.segment_id,
        )
        custom = self._custom_metadata_of(segment, sum(listed.sizes_bytes.values()))
        lineage, is_sealed = None, not self._has_key(manifest)
        reason = _why_short_indexes(listed, manifest)
        if reason is None and not is_sealed:
            lineage, reason = compared_indexes(segment, self._segment(store, named))
        elif reason is None and (first := segment.segment_leader_epochs[0][1]) > segment.start_offset:
            # The log start may have been raised within the segment; only its leader-epoch index can prove it.
            reason = f"its manifest has leader epochs from offset {first} on, and its key is not given"
        if reason is not None:
            end = segment.end_offset
            return ObjectSet(listed=listed, why_not_understood=reason, stated_end_offset=end)
        segment = replace(segment, custom_metadata=custom)
        return ObjectSet(listed=listed, segment=segment, lineage=lineage, is_sealed=is_sealed)

    def _has_key(self, manifest: Manifest) -> bool:
        """Return whether the segment is not encrypted, or a private key for it is given."""
        encryption = manifest.encryption
        return encryption is None or bool({encryption.key_id, ""} & self._settings.private_keys.keys())

    def _segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> AivenSegment:
        stem = self._stem(metadata)
        manifest = self._manifest(store, stem + MANIFEST)
        cipher = None if manifest.encryption is None else self._keyring().cipher(manifest.encryption)
        return AivenSegment(
            store=store, stem=stem, manifest=manifest, cipher=cipher, chunk_cache=self._chunk_cache
        )

    def _keyring(self) -> "Keyring":
        if self._keys is None:
            if find_spec("Crypto") is None:
                raise UsageError(
                    "encrypted segments need pycryptodome, which is not installed",
                    hint="pip install tierctl[aiven]",
                )
            from tierctl.storage.layouts.aiven.crypto import Keyring

            self._keys = Keyring(self._settings.private_keys)
        return self._keys

    def _manifest(self, store: ObjectStore, key: str) -> Manifest:
        with self._lock:
            if key in self._manifests:
                self._manifests.move_to_end(key)
                return self._manifests[key]
        return self._read_manifest(store, key)[1]

    def _read_manifest(self, store: ObjectStore, key: str) -> tuple[bytes, Manifest]:
        """Return the bytes of the manifest and the manifest, which is in the cache from then on."""
        raw = _manifest_bytes(store, key)
        try:
            manifest = read_manifest(raw)
        except CorruptInputError as e:
            raise e.within(key) from None
        with self._lock:
            self._manifests[key] = manifest
            while len(self._manifests) > MANIFEST_CACHE_SIZE:
                self._manifests.popitem(last=False)
        return raw, manifest

    def _drop_cached(self, stem: str) -> None:
        with self._lock:
            self._manifests.pop(stem + MANIFEST, None)
        self._chunk_cache.drop(stem)

    def _stem(self, metadata: RemoteLogSegmentMetadata) -> str:
        own = main_path(metadata)
        custom = self._custom(metadata)
        main = own if custom.object_key is None else custom.object_key
        if not _MAIN.match(main) or "/../" in f"/{main}/":
            raise SafetyRefusal(f"not a legal object key: {main!r}", hint=_PLACE_HINT)
        return self._prefix(custom.object_prefix) + main

    def _prefix(self, named: str | None) -> str:
        """Return the prefix `named` in custom metadata, from the bucket on, relative to the store.

        The store may begin in a folder that the plugin counts to its prefix, or not, as a `storage.root`.
        """
        whole = self._root + self.base
        begins_above = len(named or "") > len(self.base) and whole.endswith(f"/{named}")
        if named is None or named in (self.base, whole) or begins_above:
            return self.base
        return _legal_prefix(named.removeprefix(self._root) if named.startswith(self._root) else named)

    def _custom(self, metadata: RemoteLogSegmentMetadata) -> AivenCustomMetadata:
        try:
            return read_custom_metadata(metadata.custom_metadata)
        except CorruptInputError as e:
            raise e.within(f"segment {metadata.segment_id}") from None

    def _custom_metadata_of(self, metadata: RemoteLogSegmentMetadata, remote_size: int) -> bytes | None:
        prefix = self._settings.key_prefix or self.base
        return _custom_metadata(self._settings, prefix, main_path(metadata), remote_size)

    @contextmanager
    def _encoded_log(self, log: HashedFile) -> Iterator[tuple[HashedFile, ChunkIndex, bool]]:
        chunk_size = self._settings.chunk_size
        size = log.size_bytes
        if not self._compresses(log):
            count = -(-size // chunk_size)
            sizes = [chunk_size] * (count - 1) + [size - chunk_size * (count - 1)] * min(count, 1)
            yield log, self._chunk_index(size, sizes, fixed=True), False
            return
        with tempfile.TemporaryDirectory(prefix="tierctl-aiven-") as folder:
            packed = Path(folder, "log")
            sizes = _compress(log, packed, chunk_size)
            yield hashed_file(packed), self._chunk_index(size, sizes, fixed=False), True

    def _chunk_index(self, size: int, stored_sizes: list[int], *, fixed: bool) -> ChunkIndex:
        return ChunkIndex(
            original_chunk_size=self._settings.chunk_size,
            original_file_size=size,
            stored_sizes=stored_sizes,
            fixed=fixed,
        )

    def _compresses(self, log: HashedFile) -> bool:
        if not self._settings.compression or not self._settings.compression_heuristic:
            return self._settings.compression
        # As in the plugin's heuristic, a log whose first batch is compressed is not compressed again.
        with log.path.open("rb") as stream:
            head = stream.read(_BATCH_HEAD_BYTES)
        if len(head) < _BATCH_HEAD_BYTES:
            return False
        at = _ATTRIBUTES_AT if head[MAGIC_AT] >= MAGIC else _ATTRIBUTES_OF_MESSAGE_AT
        return not head[at] & COMPRESSION_MASK


def _manifest_bytes(store: ObjectStore, key: str) -> bytes:
    with store.open(key) as stream:
        raw = stream.read(MANIFEST_MAX_BYTES + 1)
    if len(raw) > MANIFEST_MAX_BYTES:
        raise CorruptInputError(
            "Aiven's manifest", expected=f"at most {MANIFEST_MAX_BYTES} bytes", found="more", source=key
        )
    return raw


def _compress(log: HashedFile, target: Path, chunk_size: int) -> list[int]:
    sizes = []
    try:
        with target.open("wb") as out:
            for chunk in chunks(log, chunk_size):
                packed = compress_chunk(chunk)
                out.write(packed)
                sizes.append(len(packed))
    except OSError as e:
        raise StoreWriteFailed(
            f"compressing {log.path} to {target}: {e.strerror or e}",
            hint="set TMPDIR to a folder with more room",
        ) from e
    return sizes


def _encoded_indexes(data: LogSegmentData) -> tuple[dict[IndexType, IndexRange | None], bytes]:
    """Return the range of each index in the concatenation of all indexes, and the concatenation."""
    ranges: dict[IndexType, IndexRange | None] = {}
    joined = b""
    for index_type in INDEX_NAMES:
        source = data.indexes[index_type]
        if source is None:
            ranges[index_type] = None
            continue
        ranges[index_type] = IndexRange(position=len(joined), size=len(source))
        joined += source
    return ranges, joined


def _layout(settings: AivenSettings, key_prefix: str, root: str) -> AivenLayout:
    return AivenLayout(settings, key_prefix=key_prefix, root=root)


_PLACE_HINT = "check rsm.config.key.prefix, and the metadata of the segment (tierctl format)"


def _legal_prefix(prefix: str) -> str:
    parts = prefix.split("/")
    if not prefix.isprintable() or "\\" in prefix or any(part in {".", ".."} for part in parts):
        raise SafetyRefusal(f"not a legal prefix of keys: {prefix!r}", hint=_PLACE_HINT)
    if prefix.startswith("/") or "" in parts[:-1]:
        raise SafetyRefusal(
            f"a prefix of keys with an empty folder: {prefix!r}",
            hint=f"{_PLACE_HINT}; tierctl supports no such prefix, because folders on disk have no empty "
            "name: copy the tier to another prefix",
        )
    return prefix
