"""Layout `aiven`, compared with objects that Aiven's plugin wrote, and with invalid ones."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    SafetyRefusal,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.storage.layouts.aiven import layout as layout_module
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings, main_path
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.aiven import (
    AivenCustomMetadata,
    read_custom_metadata,
    read_manifest,
    sizes_from_text,
    write_custom_metadata,
)
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.metadata.topics import manager_at
from tests.storage.memory import MemoryStore
from tests.storage.segments import data_in, delete_segment, files_of, metadata_of
from tests.storage.tiers import local_tier
from tests.wire.batches.messages import message

Capture = Callable[[str], Path]
CAPTURES = ("aiven-plain", "aiven-encrypted")
OVERHEAD_BYTES = 28
"""IV and tag of each encrypted chunk."""


def segments_of(root: Path) -> Iterator[RemoteLogSegmentMetadata]:
    manager = manager_at(root / "broker-logs")
    for part in manager.refresh():
        yield from part.cache.list_remote_log_segments()
    manager.close()


def bucket_of(root: Path, keys: Mapping[str, Path] | None = None) -> RemoteStorageManager:
    """Open the tier of a capture with `keys`, or with its own key if it has one."""
    if keys is None:
        keys = {"key1": root / "keys" / "private.pem"} if (root / "keys").is_dir() else {}
    return open_tier(TierSpec((root / "bucket").as_uri(), aiven=AivenSettings(private_keys=dict(keys))))


def manifest_of(raw: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(raw)
    # The metadata of the event that finished the copy; the plugin received that of the event before.
    del document["remoteLogSegmentMetadata"]["eventTimestampMs"]
    return document


class TestAgainstThePlugin:
    @pytest.mark.parametrize("name", CAPTURES)
    def test_logs_and_indexes_are_the_brokers(self, capture: Capture, name: str) -> None:
        root = capture(name)
        remote = bucket_of(root)
        compared = 0
        for metadata in segments_of(root):
            with remote.fetch_log_segment(metadata, 0) as stream:
                log = stream.read()
            assert len(log) == metadata.segment_size_in_bytes
            for start, end in ((0, 0), (262_143, 262_144), (300_000, 900_000), (len(log) - 1, len(log) + 5)):
                with remote.fetch_log_segment(metadata, start, end) as stream:
                    assert stream.read() == log[start : end + 1]
            with remote.fetch_index(metadata, IndexType.LEADER_EPOCH) as stream:
                assert stream.read().startswith(b"0\n")
            if metadata.txn_index_empty:
                with pytest.raises(RemoteResourceNotFound):
                    remote.fetch_index(metadata, IndexType.TRANSACTION)
            local = root / "broker-logs" / f"{metadata.topic}-{metadata.partition}"
            suffixes = {".log": None, ".txnindex": IndexType.TRANSACTION, ".index": IndexType.OFFSET}
            for suffix, index_type in suffixes.items():
                path = local / f"{metadata.start_offset:020d}{suffix}"
                if path.exists() and index_type is None:
                    assert path.read_bytes() == log
                    compared += 1
                elif path.exists() and index_type is not None:
                    assert remote.fetch_index(metadata, index_type).read() == path.read_bytes()
        assert compared >= 7

    def test_plain_objects_are_written_as_the_plugin_wrote_them(
        self, capture: Capture, tmp_path: Path
    ) -> None:
        root = capture("aiven-plain")
        source = bucket_of(root)
        layout = AivenLayout(AivenSettings(chunk_size=262_144), key_prefix="tier/")
        written = local_tier(tmp_path / "bucket", layout)
        segments = list(segments_of(root))
        for metadata in segments:
            data = files_of(source, metadata, tmp_path / "files")
            assert written.copy_log_segment_data(metadata, data) is None
            written.verify_log_segment_data(metadata, data)
        objects = sorted(o.key for o in written.list_objects())
        assert objects == sorted(o.key for o in source.list_objects())
        for key in objects:
            mine, theirs = ((folder / "bucket" / key).read_bytes() for folder in (tmp_path, root))
            if key.endswith(".rsm-manifest"):
                assert manifest_of(mine) == manifest_of(theirs)
                assert list(json.loads(mine)) == list(json.loads(theirs))
            else:
                assert mine == theirs

    def test_compressed_chunks_have_the_plugins_sizes(self, capture: Capture, tmp_path: Path) -> None:
        root = capture("aiven-encrypted")
        source = bucket_of(root)
        layout = AivenLayout(AivenSettings(chunk_size=262_144, compression=True))
        store = MemoryStore()
        written = RemoteStorageManager(store, layout)
        for metadata in segments_of(root):
            data = files_of(source, metadata, tmp_path / "files")
            written.copy_log_segment_data(metadata, data)
            written.verify_log_segment_data(metadata, data)
            assert written.fetch_log_segment(metadata, 0).read() == data.log_segment.path.read_bytes()
            key = main_path(metadata) + ".rsm-manifest"
            mine = manifest_of(store.objects[key])
            theirs = manifest_of((root / "bucket" / key).read_bytes())
            sizes, encrypted = (
                sizes_from_text(m["chunkIndex"].pop("transformedChunks")) for m in (mine, theirs)
            )
            assert sizes == [size - OVERHEAD_BYTES for size in encrypted]
            for name in ("chunkIndex", "compression", "remoteLogSegmentMetadata"):
                assert mine[name] == theirs[name]

    def test_a_range_fetches_only_its_chunks(self, capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        root = capture("aiven-encrypted")
        tier = bucket_of(root)
        metadata = next(segments_of(root))
        spans: list[tuple[str, int, int | None]] = []
        opened = tier.store.open

        def watch(key: str, start: int = 0, end: int | None = None) -> Any:
            spans.append((key.rsplit(".", 1)[1], start, end))
            return opened(key, start, end)

        monkeypatch.setattr(tier.store, "open", watch)
        tier.fetch_log_segment(metadata, 300_000, 300_010).read()
        manifest = read_manifest((root / "bucket" / f"{main_path(metadata)}.rsm-manifest").read_bytes())
        first, second = manifest.chunk_index.stored_sizes[:2]
        assert spans == [("rsm-manifest", 0, None), ("log", first, first + second)]

    def test_a_chunk_is_fetched_once_and_forgotten_with_its_segment(self, tmp_path: Path) -> None:
        store = MemoryStore()
        tier = RemoteStorageManager(store, AivenLayout(AivenSettings(chunk_size=1000, compression=True)))
        metadata, data = metadata_of(), data_in(tmp_path / "one", size_bytes=5000)
        log = data.log_segment.path.read_bytes()
        tier.copy_log_segment_data(metadata, data)
        reads: list[int] = []
        opened = store.open

        def watch(key: str, start: int = 0, end: int | None = None) -> Any:
            reads.append(start)
            return opened(key, start, end)

        store.open = watch  # type: ignore[method-assign]
        for at in range(0, 5000, 250):
            assert tier.fetch_log_segment(metadata, at, at + 499).read() == log[at : at + 500]
        assert len(reads) == 1 + 5
        other = data_in(tmp_path / "two", seed=7, size_bytes=5000)
        tier.copy_log_segment_data(metadata, other)
        assert tier.fetch_log_segment(metadata, 0).read() == other.log_segment.path.read_bytes()
        delete_segment(tier, metadata)
        with pytest.raises(RemoteResourceNotFound):
            tier.fetch_log_segment(metadata, 0, 5)

    @pytest.mark.parametrize("compression", [False, True])
    def test_a_chunk_is_not_read_if_it_is_stored_larger_than_it_can_be(
        self, tmp_path: Path, compression: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would be in memory before it is compared with its size in the log."""
        settings = AivenSettings(compression=compression)
        tier, metadata = RemoteStorageManager(MemoryStore(), AivenLayout(settings)), metadata_of()
        tier.copy_log_segment_data(metadata, data_in(tmp_path, size_bytes=1000))
        objects = tier.store.objects  # type: ignore[attr-defined]
        key = f"{main_path(metadata)}.rsm-manifest"
        document = json.loads(objects[key])
        document["chunkIndex"] = {
            "type": "fixed",
            "originalChunkSize": 1000,
            "originalFileSize": 1000,
            "transformedChunkSize": 1000,
            "finalTransformedChunkSize": 1 + (1000 + 3 + (64 << 10) if compression else 1000),
        }
        objects[key] = json.dumps(document).encode()
        monkeypatch.setattr(tier, "layout", AivenLayout(settings))
        del objects[f"{main_path(metadata)}.log"]
        with pytest.raises(CorruptInputError, match=r"stored size .* for 1000 bytes of the log") as caught:
            tier.fetch_log_segment(metadata, 0).read()
        assert caught.value.hint

    def test_indexes_are_not_written_at_places_that_no_memory_has(self, tmp_path: Path) -> None:
        store, metadata = MemoryStore(), metadata_of()
        data = data_in(tmp_path)
        RemoteStorageManager(store, AivenLayout()).copy_log_segment_data(metadata, data)
        key = f"{main_path(metadata)}.rsm-manifest"
        document = json.loads(store.objects[key])
        document["segmentIndexes"]["leaderEpoch"]["position"] = 1 << 28
        store.objects[key] = json.dumps(document).encode()
        index = {IndexType.OFFSET: data.indexes[IndexType.OFFSET] or b""}
        with pytest.raises(CorruptInputError, match="expected at most 268435456 bytes"):
            RemoteStorageManager(store, AivenLayout()).store_indexes(metadata, index)


class TestKeys:
    @pytest.mark.parametrize("given", [{}, {"other": "private"}])
    def test_without_its_private_key(self, capture: Capture, given: dict[str, str]) -> None:
        root = capture("aiven-encrypted")
        remote = bucket_of(root, {key_id: root / "keys" / f"{name}.pem" for key_id, name in given.items()})
        metadata = next(segments_of(root))
        with pytest.raises(UnsupportedFormatError, match="key1") as caught:
            remote.fetch_log_segment(metadata, 0)
        assert "--aiven-private-key key1=FILE" in (caught.value.hint or "")

    def test_with_another_key_or_none_at_all(self, capture: Capture, tmp_path: Path) -> None:
        from Crypto.PublicKey import ECC, RSA

        root = capture("aiven-encrypted")
        other = RSA.generate(2048)
        unusable = (
            b"not a key: hunter2",
            other.public_key().export_key(),
            other.export_key(passphrase="hunter2"),
            ECC.generate(curve="p256").export_key(format="PEM").encode(),
        )
        for content, error in (
            (other.export_key(), UnsupportedFormatError),
            *((text, UsageError) for text in unusable),
        ):
            (tmp_path / "key.pem").write_bytes(content)
            remote = bucket_of(root, {"": tmp_path / "key.pem"})
            with pytest.raises(error) as caught:
                remote.fetch_log_segment(next(segments_of(root)), 0)
            assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (b"Bag Attributes\n    friendlyName: tier\nKey Attributes: <No Attributes>\n", b"\n"),
            (b"\n", b"\n-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\n# of 2024\n"),
        ],
        ids=["openssl pkcs12", "pair", "certificate"],
    )
    def test_text_around_the_key(self, capture: Capture, tmp_path: Path, before: bytes, after: bytes) -> None:
        root = capture("aiven-encrypted")
        key = (root / "keys" / "private.pem").read_bytes()
        (tmp_path / "key.pem").write_bytes(before + key + after)
        metadata = next(segments_of(root))
        found = bucket_of(root, {"key1": tmp_path / "key.pem"}).fetch_log_segment(metadata, 0).read()
        assert found == bucket_of(root).fetch_log_segment(metadata, 0).read()

    def test_without_the_library(self, capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        root = capture("aiven-encrypted")
        monkeypatch.setattr(layout_module, "find_spec", lambda _: None)
        with pytest.raises(UsageError, match="pycryptodome") as caught:
            bucket_of(root).fetch_log_segment(next(segments_of(root)), 0)
        assert caught.value.hint == "pip install tierctl[aiven]"

    def test_the_settings_of_a_broker_name_it(self, capture: Capture) -> None:
        root = capture("aiven-encrypted")
        lines = (root / "server.properties").read_text().replace("@DIR@", str(root)).splitlines()
        settings = dict(line.split("=", 1) for line in lines if "=" in line)
        remote = open_tier(TierSpec((root / "bucket").as_uri(), aiven=AivenSettings.from_settings(settings)))
        assert remote.fetch_log_segment(next(segments_of(root)), 0, 9).read()

    def test_every_flipped_bit_of_a_chunk_is_seen(self, capture: Capture, tmp_path: Path) -> None:
        root = capture("aiven-encrypted")
        metadata = next(segments_of(root))
        stem = main_path(metadata)
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            target = tmp_path / "bucket" / (stem + suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((root / "bucket" / (stem + suffix)).read_bytes())
        log = tmp_path / "bucket" / f"{stem}.log"
        whole = log.read_bytes()
        for at in (0, 11, 12, len(whole) // 2, len(whole) - 1):
            log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            remote = bucket_of(tmp_path, {"": root / "keys" / "private.pem"})
            with pytest.raises(CorruptInputError):
                remote.fetch_log_segment(metadata, 0).read()


class TestCustomMetadata:
    @pytest.mark.parametrize(
        ("old", "new"), [("old/", "new/"), ("old", "new/"), ("", "new/"), ("new/", "old/new/"), ("new/", "")]
    )
    def test_says_where_the_objects_are(self, tmp_path: Path, old: str, new: str) -> None:
        settings = AivenSettings(
            key_prefix=old,
            custom_metadata_fields=frozenset({"REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY"}),
        )
        store = MemoryStore()
        metadata, data = metadata_of(), data_in(tmp_path)
        custom = RemoteStorageManager(store, AivenLayout(settings, key_prefix=old)).copy_log_segment_data(
            metadata, data
        )
        assert read_custom_metadata(custom) == AivenCustomMetadata(
            remote_size=sum(map(len, store.objects.values())),
            object_prefix=old,
            object_key=main_path(metadata),
        )
        assert all(key.startswith(old + metadata.topic) for key in store.objects)
        # The settings of the plugin have changed, and the segment is still found.
        moved = RemoteStorageManager(store, AivenLayout(key_prefix=new))
        assert moved.objects_of(metadata) == []
        named = replace(metadata, custom_metadata=custom)
        assert len(moved.objects_of(named)) == 3
        assert moved.fetch_log_segment(named, 0).read() == data.log_segment.path.read_bytes()
        delete_segment(moved, named)
        assert store.objects == {}

    @pytest.mark.parametrize(
        "fields",
        [
            AivenCustomMetadata(object_prefix="../"),
            AivenCustomMetadata(object_prefix="/etc/"),
            AivenCustomMetadata(object_prefix="a//b/"),
            AivenCustomMetadata(object_key="../../x"),
            AivenCustomMetadata(object_key="x"),
        ],
    )
    def test_hostile_places_are_refused(self, fields: AivenCustomMetadata) -> None:
        hostile = replace(metadata_of(), custom_metadata=write_custom_metadata(fields))
        with pytest.raises(SafetyRefusal) as caught:
            AivenLayout().keys_of(hostile)
        assert "rsm.config.key.prefix" in (caught.value.hint or "")

    def test_another_segments_objects_are_read_and_never_deleted(self, tmp_path: Path) -> None:
        store = MemoryStore()
        tier = RemoteStorageManager(store, AivenLayout())
        data = data_in(tmp_path)
        tier.copy_log_segment_data(metadata_of(1), data)
        alias = replace(
            metadata_of(2),
            custom_metadata=write_custom_metadata(AivenCustomMetadata(object_key=main_path(metadata_of(1)))),
        )
        assert tier.fetch_log_segment(alias, 0).read() == data.log_segment.path.read_bytes()
        with pytest.raises(SafetyRefusal, match="another segment"):
            delete_segment(tier, alias)
        assert len(tier.objects_of(metadata_of(1))) == 3

    @given(
        size=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        prefix=st.none() | st.text(max_size=200),
        key=st.none() | st.text(max_size=200),
    )
    def test_round_trip(self, size: int | None, prefix: str | None, key: str | None) -> None:
        fields = AivenCustomMetadata(remote_size=size, object_prefix=prefix, object_key=key)
        assert read_custom_metadata(write_custom_metadata(fields)) == fields

    @given(st.binary(max_size=40))
    def test_any_bytes_are_read_or_refused(self, raw: bytes) -> None:
        with suppress(CorruptInputError):
            read_custom_metadata(raw)

    def test_tags_ascend(self) -> None:
        with pytest.raises(CorruptInputError, match="ascending tags, found 2"):
            read_custom_metadata(bytes.fromhex("03 0000 0300 0200".replace(" ", "")))

    def test_the_bytes_kafka_writes(self) -> None:
        fields = AivenCustomMetadata(remote_size=300, object_prefix="p/", object_key="k")
        assert write_custom_metadata(fields) == bytes.fromhex(
            "03 0002d804 010303702f 0202 026b".replace(" ", "")
        )
        assert write_custom_metadata(AivenCustomMetadata()) is None


def test_writing_encrypted_segments_is_refused(tmp_path: Path) -> None:
    tier = local_tier(tmp_path / "tier", AivenLayout(AivenSettings(encryption=True)))
    with pytest.raises(UsageError, match="writes none"):
        tier.copy_log_segment_data(metadata_of(), data_in(tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk.size": "0"},
        {"chunk.size": "x"},
        {"compression.enabled": "maybe"},
        {"custom.metadata.fields.include": "REMOTE_SIZE,COLOUR"},
    ],
)
def test_wrong_settings(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        AivenSettings.from_settings({f"rsm.config.{name}": value for name, value in settings.items()})


_PLAIN, _PACKED = Record(0, 1_795_256_999_418, b"\1" * 9, b"x" * 99), Record(0, 0x18800000000, None, b"")
"""At byte 22, where a batch states its compression, messages of the first state gzip, of the second none."""
LOGS = {
    "a message": (message(_PLAIN, 1), True),
    "a message of format 0": (message(_PLAIN, 0), True),
    "a compressed message": (message(_PACKED, 1, CompressionType.GZIP), False),
    "a compressed message of format 0": (message(_PACKED, 0, CompressionType.GZIP), False),
    "a batch": (encode_batch([_PLAIN]), True),
    "a compressed batch": (encode_batch([_PLAIN], compression=CompressionType.ZSTD), False),
    "no batch": (b"", False),
}


@pytest.mark.parametrize("log", LOGS)
def test_the_first_batch_of_each_format_says_whether_the_log_is_compressed(log: str, tmp_path: Path) -> None:
    """SegmentCompressionChecker of the plugin."""
    data, is_compressed = data_in(tmp_path), LOGS[log][1]
    data.log_segment.path.write_bytes(LOGS[log][0])
    store, metadata = MemoryStore(), metadata_of()
    layout = AivenLayout(AivenSettings(compression=True, compression_heuristic=True))
    copied = replace(data, log_segment=hashed_file(data.log_segment.path))
    RemoteStorageManager(store, layout).copy_log_segment_data(metadata, copied)
    document = json.loads(store.objects[f"{main_path(metadata)}.rsm-manifest"])
    assert document["compression"] is is_compressed


def test_copied_objects_have_their_own_custom_metadata() -> None:
    segment = metadata_of()
    target = replace(segment.topic_id_partition, partition=8)
    named = AivenCustomMetadata(remote_size=5, object_prefix="tier/", object_key=main_path(segment))
    layout = AivenLayout(key_prefix="tier/")
    new = layout.renamed(replace(segment, custom_metadata=write_custom_metadata(named)), target)
    assert read_custom_metadata(new.custom_metadata) == replace(named, object_key=main_path(new))
    assert all(key.startswith(f"tier/{main_path(new)}") for key in layout.keys_to_delete(new))
    assert layout.renamed(segment, target).custom_metadata is None
