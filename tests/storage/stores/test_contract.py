"""The contract of RemoteStorageManager, tested over every store."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tierctl.errors import RemoteObjectDiffers, RemoteResourceNotFound, RemoteStorageError, SafetyRefusal
from tierctl.model import IndexType, LogSegmentData
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.storage.layouts.kafka import KafkaLayout, SegmentLayout
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores import arrow, base
from tierctl.storage.stores.base import (
    ConditionalStore,
    ObjectStore,
    RemoteObject,
    hashed_file,
    open_store,
    open_store_at,
    parse_store_uri,
)
from tierctl.storage.stores.local_store import LocalStore

from tests.storage.memory import MemoryStore
from tests.storage.segments import data_in, delete_segment, metadata_of
from tests.support.servers import S3Server

Make = Callable[[pytest.FixtureRequest, Path, SegmentLayout], ObjectStore]


def _local(_request: pytest.FixtureRequest, folder: Path, layout: SegmentLayout) -> ObjectStore:
    address = parse_store_uri(folder.as_uri())
    return open_store_at(replace(address, required_folder=layout.base))


def _s3(request: pytest.FixtureRequest, _folder: Path, _layout: SegmentLayout) -> ObjectStore:
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(f"s3://{server.bucket()}/some/folder")


def _hdfs(request: pytest.FixtureRequest, _folder: Path, _layout: SegmentLayout) -> ObjectStore:
    return open_store(request.getfixturevalue("hdfs"))


def _arrow(_request: pytest.FixtureRequest, folder: Path, _layout: SegmentLayout) -> ObjectStore:
    folder.mkdir()
    # No server for the registered schemes runs here; pyarrow.fs has one interface for all file systems.
    return arrow.open_store(parse_store_uri(folder.as_uri()))


REGISTERED: dict[str, dict[str, Make]] = {
    "local_store": {"local": _local},
    "s3.store": {"s3": _s3},
    "hdfs": {"hdfs": _hdfs},
    "arrow": {"arrow": _arrow},
}
"""How the tests open the stores, by the module that the registry names."""

STORES: dict[str, Make] = {
    "memory": lambda _request, _folder, _layout: MemoryStore(),
    **{name: make for opened in REGISTERED.values() for name, make in opened.items()},
}
LAYOUTS: dict[str, Callable[[], SegmentLayout]] = {
    "kafka": KafkaLayout,
    "aiven": lambda: AivenLayout(AivenSettings(chunk_size=700), key_prefix="tier/"),
    "aiven zstd": lambda: AivenLayout(AivenSettings(chunk_size=700, compression=True)),
}
CASES = {f"memory, {layout}": (STORES["memory"], LAYOUTS[layout]) for layout in LAYOUTS}
CASES |= {f"{store}, kafka": (STORES[store], LAYOUTS["kafka"]) for store in STORES}
"""Each layout over one store, and each store with one layout: a store knows keys and bytes only."""

NEIGHBOUR = metadata_of(50, partition=7)
"""A segment without aborted transactions that is in each store."""


def test_every_registered_store_keeps_the_contract() -> None:
    """A new row of the registry needs an entry in REGISTERED, and then passes all tests below."""
    assert {kind.module for kind in base.STORES.values()} == set(REGISTERED)
    assert {store for store in STORES if any(name.startswith(f"{store}, ") for name in CASES)} == set(STORES)


@pytest.mark.parametrize("scheme", base.STORES)
def test_every_scheme_can_be_opened(scheme: str) -> None:
    module = importlib.import_module(f"tierctl.storage.stores.{base.STORES[scheme].module}")
    assert callable(module.open_store)
    assert base.parse_store_uri(base.STORES[scheme].example).scheme == scheme


def test_gcs_does_not_repeat_a_request_for_15_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[None, str]:
        asked.append(uri)
        return None, "bucket/x"

    monkeypatch.setattr(arrow, "pafs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri)))
    base.open_store("gs://bucket/x")
    base.open_store("abfs://container@account.dfs.core.windows.net/x")
    assert [uri.partition("?")[2] for uri in asked] == ["retry_limit_seconds=20", ""]


@pytest.fixture(params=CASES.values(), ids=CASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStorageManager:
    make, layout = request.param
    store = make(request, tmp_path / "tier", layout := layout())
    made = RemoteStorageManager(store, layout)
    made.copy_log_segment_data(NEIGHBOUR, data_in(tmp_path / "neighbour", transactional=False))
    return made


@pytest.fixture
def layout(store: RemoteStorageManager) -> SegmentLayout:
    return store.layout


@pytest.fixture
def data(tmp_path: Path) -> LogSegmentData:
    return data_in(tmp_path / "source", seed=3)


class TestCopy:
    def test_stores_every_file_as_it_is(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        assert store.copy_log_segment_data(metadata_of(), data) is None
        store.verify_log_segment_data(metadata_of(), data)
        assert store.fetch_log_segment(metadata_of(), 0).read() == data.log_segment.path.read_bytes()
        assert data.indexes[IndexType.TRANSACTION] is not None
        for index_type, expected in data.indexes.items():
            with store.fetch_index(metadata_of(), index_type) as stream:
                assert stream.read() == expected

    def test_overwrites_what_an_earlier_call_left(
        self, store: RemoteStorageManager, layout: SegmentLayout, data: LogSegmentData, tmp_path: Path
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        other = data_in(tmp_path / "other", seed=9, transactional=False, size_bytes=100)
        store.copy_log_segment_data(metadata_of(), other)
        store.verify_log_segment_data(metadata_of(), other)
        assert len(store.objects_of(metadata_of())) == (5 if isinstance(layout, KafkaLayout) else 3)
        assert store.fetch_log_segment(metadata_of(), 0).read() == other.log_segment.path.read_bytes()
        for without in (metadata_of(), NEIGHBOUR):
            with pytest.raises(RemoteResourceNotFound):
                store.fetch_index(without, IndexType.TRANSACTION).read()


class TestCopyObjects:
    def test_the_copy_is_the_segment_of_another_partition(
        self, store: RemoteStorageManager, layout: SegmentLayout, data: LogSegmentData, tmp_path: Path
    ) -> None:
        segment, target = metadata_of(), replace(NEIGHBOUR.topic_id_partition, partition=8)
        store.copy_log_segment_data(segment, data)
        before, new = set(store.list_objects()), store.renamed(segment, target)
        # A killed program left this file.
        store.copy_log_segment_data(new, data_in(tmp_path / "other", seed=9))
        for _ in range(2):
            store.copy_objects(segment, target)
            assert store.fetch_log_segment(new, 0).read() == data.log_segment.path.read_bytes()
            assert store.fetch_index(new, IndexType.OFFSET).read() == data.indexes[IndexType.OFFSET]
        if isinstance(layout, KafkaLayout):
            store.verify_log_segment_data(new, data)
        assert before < set(store.list_objects())
        with pytest.raises(RemoteResourceNotFound):
            store.copy_objects(metadata_of(3), target)


CHANGED = {
    None: ".log",
    IndexType.OFFSET: ".index",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
"""The log, which is None, and indexes, with the suffix of the object that has the bytes."""


CHANGES = (
    *((None, change) for change in ("longer", "shorter", "emptied")),
    *zip(CHANGED, itertools.cycle(["flipped", "longer", "shorter", "emptied"]), strict=False),
)


def test_verifying_names_what_is_missing_or_differs(
    store: RemoteStorageManager, layout: SegmentLayout, data: LogSegmentData, tmp_path: Path
) -> None:
    with pytest.raises(RemoteStorageError, match=r"\.log"):
        store.verify_log_segment_data(metadata_of(), data)
    store.copy_log_segment_data(metadata_of(), data)
    whole_log = data.log_segment.path.read_bytes()
    for kind, change in CHANGES:
        whole = whole_log if kind is None else data.indexes[kind]
        assert whole is not None
        changed = {
            "longer": whole + b"x",
            "shorter": whole[:-1],
            "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
            "emptied": b"",
        }[change]
        if kind is None:
            path = tmp_path / change
            path.write_bytes(changed)
            other = replace(data, log_segment=hashed_file(path))
        else:
            other = replace(data, indexes={**data.indexes, kind: changed})
        with pytest.raises(RemoteObjectDiffers, match=_object_of(CHANGED[kind], layout)):
            store.verify_log_segment_data(metadata_of(), other)
    # The store has an object that the segment does not have.
    without = replace(data, indexes={**data.indexes, IndexType.TRANSACTION: None})
    with pytest.raises(RemoteObjectDiffers, match=_object_of(".txnindex", layout)):
        store.verify_log_segment_data(metadata_of(), without)


class TestFetch:
    def test_ranges_are_inclusive_and_end_with_the_segment(
        self, store: RemoteStorageManager, data: LogSegmentData
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        whole = data.log_segment.path.read_bytes()
        for start, end in ((10, 19), (0, 0), (2990, 2999), (2990, 9999), (5000, 6000)):
            with store.fetch_log_segment(metadata_of(), start, end) as stream:
                assert stream.read() == whole[start : end + 1]
        for start in (0, 2999, 3000):
            with store.fetch_log_segment(metadata_of(), start, None) as stream:
                assert b"".join(iter(lambda: stream.read(7), b"")) == whole[start:]
        for start, end in ((-1, None), (5, 4)):
            with pytest.raises(ValueError, match="not a range"):
                store.fetch_log_segment(metadata_of(), start, end)

    def test_unknown_segments(self, store: RemoteStorageManager) -> None:
        for unknown in (metadata_of(1), metadata_of(50, partition=7, attempt=2)):
            with pytest.raises(RemoteResourceNotFound):
                store.fetch_log_segment(unknown, 0)
            for index_type in IndexType:
                with pytest.raises(RemoteResourceNotFound):
                    store.fetch_index(unknown, index_type)


class TestDelete:
    def test_takes_all_of_the_segment_and_nothing_else(
        self, store: RemoteStorageManager, data: LogSegmentData
    ) -> None:
        neighbours = [NEIGHBOUR, metadata_of(1), metadata_of(0, attempt=2), metadata_of(0, partition=1)]
        for metadata in (metadata_of(), *neighbours[1:]):
            store.copy_log_segment_data(metadata, data)
        before = [store.objects_of(metadata) for metadata in neighbours]
        for gone in (metadata_of(), metadata_of(), metadata_of(33, partition=12)):
            delete_segment(store, gone)
        assert store.objects_of(metadata_of()) == []
        assert [store.objects_of(metadata) for metadata in neighbours] == before

    def test_many_segments_at_once(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        """Segments of several folders, existing, missing and malicious ones: one result each, in order."""
        stored = [metadata_of(number, partition=number % 2) for number in range(5)]
        for metadata in stored:
            store.copy_log_segment_data(metadata, data)
        neighbours = [metadata_of(6), metadata_of(7, partition=1)]
        for metadata in neighbours:
            store.copy_log_segment_data(metadata, data)
        hostile, absent = metadata_of(topic="../x"), metadata_of(9, partition=3)
        asked = [stored[3], hostile, *stored[:3], absent, stored[4]]
        found = store.objects_of_each(asked)
        assert isinstance(found[1], SafetyRefusal)
        assert [found[at] for at in (0, 2, 3, 4, 6)] == [
            store.objects_of(asked[at]) for at in (0, 2, 3, 4, 6)
        ]
        assert found[5] == []
        errors = store.delete_log_segments(asked)
        assert [type(error) for error in errors] == [
            SafetyRefusal if at == 1 else type(None) for at in range(7)
        ]
        assert [objects == [] for objects in store.objects_of_each(asked)] == [at != 1 for at in range(7)]
        assert all(store.objects_of_each([NEIGHBOUR, *neighbours]))
        assert store.delete_batch >= 1
        assert store.delete_log_segments([]) == store.objects_of_each([]) == []


def _object_of(suffix: str, layout: SegmentLayout) -> str:
    """Return the object that contains a file's bytes."""
    return suffix if isinstance(layout, KafkaLayout) or suffix == ".log" else ".indexes"


class TestCreate:
    def test_the_first_one_stays(self, store: RemoteStorageManager) -> None:
        objects = store.store
        assert objects.create("small", b"first")
        assert not objects.create("small", b"second")
        with objects.open("small") as stream:
            assert stream.read() == b"first"
        assert {found.key for found in objects.list_folder("").objects} == {"small"}

    def test_one_of_many_creates_it(self, store: RemoteStorageManager) -> None:
        objects = store.store
        if not isinstance(objects, ConditionalStore | LocalStore):
            return
        bodies = [b"%d" % number for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(partial(objects.create, "small"), bodies))
        with objects.open("small") as stream:
            stored = stream.read()
        assert won == [body == stored for body in bodies]


class TestListing:
    def test_objects_of_a_segment_and_of_all(
        self, store: RemoteStorageManager, layout: SegmentLayout, data: LogSegmentData
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        found = store.objects_of(metadata_of())
        assert [o.key for o in found] == sorted(layout.keys_of(metadata_of()))
        sizes = {o.key.rsplit(".", 1)[1]: o.size_bytes for o in found}
        if isinstance(layout, KafkaLayout):
            assert sizes == {
                "log": 3000,
                "index": 16,
                "timeindex": 24,
                "txnindex": 34,
                "snapshot": 56,
                "leader_epoch_checkpoint": 8,
            }
        else:
            assert set(sizes) == {"log", "indexes", "rsm-manifest"}
            assert sizes["indexes"] == 16 + 24 + 34 + 56 + 8
        assert list(store.list_objects()) == sorted([*found, *store.objects_of(NEIGHBOUR)])

    def test_in_parts_is_the_same_as_at_once(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        for partition in (0, 1, 12):
            store.copy_log_segment_data(metadata_of(partition=partition), data)

        def parts(folder: str = "") -> Iterator[RemoteObject]:
            for each in store.list_folder(folder).by_key():
                yield from parts(each) if isinstance(each, str) else [each]

        whole = list(store.list_objects())
        assert list(parts()) == whole == sorted(whole)
        folders = store.list_folder()
        assert folders.objects == ()
        assert [found for folder in folders.folders for found in store.list_objects(folder)] == whole


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("topic", ["../../etc", "a/b", "", ".", "..", "x" * 250, "a\0b", "a b", "é"])
def test_illegal_topics_never_reach_a_key(
    layout: Callable[[], SegmentLayout], data: LogSegmentData, topic: str
) -> None:
    store = RemoteStorageManager(MemoryStore(), layout())
    hostile = metadata_of(topic=topic)
    for call in (
        lambda: store.copy_log_segment_data(hostile, data),
        lambda: store.verify_log_segment_data(hostile, data),
        lambda: store.fetch_log_segment(hostile, 0),
        lambda: store.fetch_index(hostile, IndexType.OFFSET),
        lambda: delete_segment(store, hostile),
        lambda: store.objects_of(hostile),
    ):
        with pytest.raises(SafetyRefusal):
            call()
