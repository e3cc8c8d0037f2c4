"""What every RemoteStorageManager must do, whatever it stores in."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import RemoteObjectDiffers, RemoteResourceNotFound, RemoteStorageError, SafetyRefusal
from tierctl.model import IndexType, LogSegmentData
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layout import keys_of
from tierctl.storage.local import LocalTieredStorage
from tierctl.storage.retry import RetryingStorage, RetrySettings

from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of

Make = Callable[[Path], RemoteStorageManager]


def _retrying(inner: RemoteStorageManager) -> RetryingStorage:
    return RetryingStorage(inner, RetrySettings(), sleep=lambda _: None, chance=lambda: 0.5)


STORES: dict[str, Make] = {
    "local": LocalTieredStorage,
    "memory": lambda _: MemoryStorage(),
    "local, retried": lambda folder: _retrying(LocalTieredStorage(folder)),
    "memory, retried": lambda _: _retrying(MemoryStorage()),
}


@pytest.fixture(params=STORES.values(), ids=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStorageManager:
    made: RemoteStorageManager = request.param(tmp_path / "tier")
    made.copy_log_segment_data(metadata_of(50, partition=7), data_in(tmp_path / "neighbour"))
    return made


@pytest.fixture
def data(tmp_path: Path) -> LogSegmentData:
    return data_in(tmp_path / "source", seed=3)


NEIGHBOUR = metadata_of(50, partition=7)


class TestCopy:
    def test_stores_every_file_as_it_is(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        assert store.copy_log_segment_data(metadata_of(), data) is None
        store.verify_log_segment_data(metadata_of(), data)
        assert store.fetch_log_segment(metadata_of(), 0).read() == data.log_segment.read_bytes()
        assert data.transaction_index is not None
        for index_type, expected in {
            IndexType.OFFSET: data.offset_index.read_bytes(),
            IndexType.TIMESTAMP: data.time_index.read_bytes(),
            IndexType.TRANSACTION: data.transaction_index.read_bytes(),
            IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot_index.read_bytes(),
            IndexType.LEADER_EPOCH: data.leader_epoch_index,
        }.items():
            with store.fetch_index(metadata_of(), index_type) as stream:
                assert stream.read() == expected

    def test_no_transaction_index_no_object(self, store: RemoteStorageManager, tmp_path: Path) -> None:
        data = data_in(tmp_path / "plain", transactional=False)
        store.copy_log_segment_data(metadata_of(), data)
        assert len(store.objects_of(metadata_of())) == 5
        with pytest.raises(RemoteResourceNotFound):
            store.fetch_index(metadata_of(), IndexType.TRANSACTION).read()
        store.verify_log_segment_data(metadata_of(), data)

    def test_overwrites_what_an_earlier_call_left(
        self, store: RemoteStorageManager, data: LogSegmentData, tmp_path: Path
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        other = data_in(tmp_path / "other", seed=9, transactional=False, size_bytes=100)
        store.copy_log_segment_data(metadata_of(), other)
        store.verify_log_segment_data(metadata_of(), other)
        assert len(store.objects_of(metadata_of())) == 5

    def test_attempts_do_not_meet(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        first, second = metadata_of(attempt=1), metadata_of(attempt=2)
        store.copy_log_segment_data(first, data)
        store.copy_log_segment_data(second, data)
        store.delete_log_segment_data(first)
        store.verify_log_segment_data(second, data)


class TestVerify:
    def test_names_what_is_missing(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        with pytest.raises(RemoteStorageError, match=r"\.log"):
            store.verify_log_segment_data(metadata_of(), data)

    @pytest.mark.parametrize("change", ["longer", "shorter", "flipped", "emptied"])
    @pytest.mark.parametrize(
        "name", ["log_segment", "offset_index", "transaction_index", "producer_snapshot_index"]
    )
    def test_names_what_differs(
        self, store: RemoteStorageManager, data: LogSegmentData, name: str, change: str
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        source: Path = getattr(data, name)
        whole = source.read_bytes()
        changed = {
            "longer": whole + b"x",
            "shorter": whole[:-1],
            "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
            "emptied": b"",
        }
        source.write_bytes(changed[change])
        with pytest.raises(RemoteObjectDiffers, match=source.suffix):
            store.verify_log_segment_data(metadata_of(), data)

    def test_an_object_too_many_differs(
        self, store: RemoteStorageManager, data: LogSegmentData, tmp_path: Path
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        with pytest.raises(RemoteObjectDiffers, match="txnindex"):
            store.verify_log_segment_data(
                metadata_of(), data_in(tmp_path / "source", seed=3, transactional=False)
            )


class TestFetch:
    @pytest.mark.parametrize(
        ("start", "end"),
        [(0, None), (0, 0), (10, 19), (2990, 2999), (2990, 9999), (2999, None), (3000, None), (5000, 6000)],
    )
    def test_ranges_are_inclusive_and_end_with_the_segment(
        self, store: RemoteStorageManager, data: LogSegmentData, start: int, end: int | None
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        whole = data.log_segment.read_bytes()
        expected = whole[start:] if end is None else whole[start : end + 1]
        with store.fetch_log_segment(metadata_of(), start, end) as stream:
            assert stream.read() == expected
        with store.fetch_log_segment(metadata_of(), start, end) as stream:
            assert b"".join(iter(lambda: stream.read(7), b"")) == expected

    @pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4)])
    def test_no_range(
        self, store: RemoteStorageManager, data: LogSegmentData, start: int, end: int | None
    ) -> None:
        store.copy_log_segment_data(metadata_of(), data)
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
        store.delete_log_segment_data(metadata_of())
        assert store.objects_of(metadata_of()) == []
        assert [store.objects_of(metadata) for metadata in neighbours] == before

    def test_is_idempotent(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        for _ in range(3):
            store.delete_log_segment_data(metadata_of())
        store.delete_log_segment_data(metadata_of(33, partition=12))


class TestListing:
    def test_objects_of_a_segment_and_of_all(self, store: RemoteStorageManager, data: LogSegmentData) -> None:
        store.copy_log_segment_data(metadata_of(), data)
        found = store.objects_of(metadata_of())
        assert [o.key for o in found] == sorted(keys_of(metadata_of()))
        assert {o.key.rsplit(".", 1)[1]: o.size_bytes for o in found} == {
            "log": 3000,
            "index": 16,
            "timeindex": 24,
            "txnindex": 34,
            "snapshot": 56,
            "leader_epoch_checkpoint": 8,
        }
        assert sorted(store.list_objects()) == sorted([*found, *store.objects_of(NEIGHBOUR)])


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "", ".", "..", "x" * 250, "a\0b", "a b", "é"])
def test_illegal_topics_never_reach_a_key(
    store: RemoteStorageManager, data: LogSegmentData, topic: str
) -> None:
    hostile = metadata_of(topic=topic)
    for call in (
        lambda: store.copy_log_segment_data(hostile, data),
        lambda: store.verify_log_segment_data(hostile, data),
        lambda: store.fetch_log_segment(hostile, 0),
        lambda: store.fetch_index(hostile, IndexType.OFFSET),
        lambda: store.delete_log_segment_data(hostile),
        lambda: store.objects_of(hostile),
    ):
        with pytest.raises(SafetyRefusal):
            call()
