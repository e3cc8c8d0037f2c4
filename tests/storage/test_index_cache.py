"""The remote index cache: bounded, on disk, and never wrong."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, RemoteResourceNotFound, RemoteStorageError
from tierctl.files import FileSystem
from tierctl.model import EpochEntry, IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierctl.read.segment import UncachedIndexes, stored_or_rebuilt
from tierctl.storage import index_cache
from tierctl.storage.index_cache import FOLDER, RemoteIndexCache, cached_by_broker, spooled
from tierctl.storage.object_sets import producer_snapshot
from tierctl.storage.remote_storage_manager import RemoteStorageManager, RetrySettings
from tierctl.wire.files import indexes
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import (
    AbortedTxn,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)

from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of
from tests.support.amounts import examples
from tests.support.faults import Failing, operations_of
from tests.support.kafka import KafkaRelease


def indexed(folder: Path, number: int, *, entries: int = 10, transactional: bool = True) -> LogSegmentData:
    """Return a segment with valid indexes."""
    data = data_in(folder / str(number), seed=number, transactional=transactional)
    base = 100 * number
    aborted = [AbortedTxn(producer_id=1, first_offset=base, last_offset=base + 5, last_stable_offset=base)]
    positions = [OffsetPosition(base + n + 1, 100 * n + 100) for n in range(entries)]
    times = [TimestampOffset(1000 + n, base + n) for n in range(entries)]
    indexes = {
        IndexType.OFFSET: OffsetIndex.encode(base, positions).data,
        IndexType.TIMESTAMP: TimeIndex.encode(base, times).data,
        IndexType.TRANSACTION: TransactionIndex(tuple(aborted)).encode() if transactional else None,
        IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot([ProducerEntry(1, 0, 5, base, 5, 1000, 0, -1)]),
        IndexType.LEADER_EPOCH: write_leader_epoch_checkpoint([EpochEntry(0, base)]),
    }
    return replace(data, indexes=indexes)


@pytest.fixture
def remote(tmp_path: Path) -> MemoryStorage:
    store = MemoryStorage()
    for number in range(8):
        store.copy_log_segment_data(
            metadata_of(number), indexed(tmp_path / "source", number, transactional=number != 7)
        )
    return store


def limit(size_bytes: int) -> dict[str, str]:
    return {"remote.log.index.file.cache.total.size.bytes": str(size_bytes)}


def path_of(folder: Path, number: int) -> Path:
    """Return the file of a segment's offset index."""
    return folder / FOLDER / f"{100 * number}_{metadata_of(number).segment_id}.index"


def starts_in(folder: Path) -> list[str]:
    """Return the start offsets of the segments whose indexes are kept."""
    return sorted(path.name.partition("_")[0] for path in (folder / FOLDER).iterdir())


class TestGetting:
    @pytest.mark.parametrize("index_type", list(IndexType))
    def test_fetched_once_and_kept_over_restarts(
        self, tmp_path: Path, remote: MemoryStorage, index_type: IndexType
    ) -> None:
        with remote.fetch_index(metadata_of(2), index_type) as stream:
            expected = stream.read()
        cache = RemoteIndexCache(tmp_path, remote)
        assert [cache.get(metadata_of(2), index_type) for _ in range(3)] == [expected] * 3
        assert (cache.fetches, cache.size_bytes) == (1, len(expected))
        again = RemoteIndexCache(tmp_path, remote)
        assert again.get(metadata_of(2), index_type) == expected
        assert (again.fetches, again.size_bytes) == (0, len(expected))

    @pytest.mark.parametrize("failing", ["file", "folder"])
    def test_what_its_disk_can_not_read_is_fetched(
        self, tmp_path: Path, remote: MemoryStorage, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        """Such a file ended each run."""
        expected = RemoteIndexCache(tmp_path, remote).get(metadata_of(2), IndexType.OFFSET)

        def refuse(path: Path, **_: str) -> None:
            raise OSError(errno.EIO, "bad disk", str(path))

        with monkeypatch.context() as patch:
            if failing == "file":
                patch.setattr(index_cache, "read_regular", refuse)
                patch.setattr(index_cache, "read_trusted", refuse)
            else:
                patch.setattr(os, "scandir", refuse)
            assert RemoteIndexCache(tmp_path, remote).get(metadata_of(2), IndexType.OFFSET) == expected

    def test_what_others_can_write_is_fetched_again(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        expected = cache.get(metadata_of(2), IndexType.OFFSET)
        (file,) = (tmp_path / FOLDER).iterdir()
        file.write_bytes(expected[8:])
        file.chmod(0o666)
        assert cache.get(metadata_of(2), IndexType.OFFSET) == expected
        assert (cache.fetches, file.stat().st_mode & 0o022) == (2, 0)

    def test_no_transaction_index_is_an_empty_one(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        assert [cache.get(metadata_of(7), IndexType.TRANSACTION) for _ in range(2)] == [b"", b""]
        assert cache.fetches == 1

    def test_what_is_not_there_is_an_error_each_time(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        for _ in range(2):
            with pytest.raises(RemoteResourceNotFound):
                cache.get(metadata_of(99), IndexType.OFFSET)
        remote.failing.errors = [RemoteStorageError("down")]
        with pytest.raises(RemoteStorageError, match="down"):
            cache.get(metadata_of(1), IndexType.OFFSET)
        assert cache.get(metadata_of(1), IndexType.OFFSET)

    @pytest.mark.parametrize("index_type", list(IndexType))
    def test_damage_in_the_tier_is_told_and_not_kept(
        self, tmp_path: Path, remote: MemoryStorage, index_type: IndexType
    ) -> None:
        for key in list(remote.failing.objects):
            remote.failing.objects[key] = b"\xff" * 41
        cache = RemoteIndexCache(tmp_path, remote)
        with pytest.raises(CorruptInputError) as caught:
            cache.get(metadata_of(2), index_type)
        assert str(metadata_of(2).segment_id) in (caught.value.source or "")
        assert cache.size_bytes == 0


class TestBound:
    def test_least_recently_used_goes_first(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote, settings=limit(3 * 80))
        for number in (0, 1, 2, 0, 3):
            cache.get(metadata_of(number), IndexType.OFFSET)
        assert starts_in(tmp_path) == ["0", "200", "300"]
        assert (cache.size_bytes, cache.fetches) == (240, 4)

    def test_recency_survives_a_restart(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        for number in (0, 1, 2, 0):
            cache.get(metadata_of(number), IndexType.OFFSET)
        for age, number in enumerate((1, 2, 0)):
            os.utime(path_of(tmp_path, number), ns=(age, age))
        smaller = RemoteIndexCache(tmp_path, remote, settings=limit(2 * 80))
        assert smaller.size_bytes == 160
        assert starts_in(tmp_path) == ["0", "200"]

    @pytest.mark.parametrize(
        ("settings", "kept"),
        [
            ({}, True),
            ({"remote.log.index.file.cache.total.size.mb": "1"}, False),
            ({"remote.log.index.file.cache.total.size.mb": "2"}, True),
            ({"remote.log.index.file.cache.total.size.mb": "2"} | limit(1 << 20), False),
        ],
    )
    def test_settings_state_the_limit(self, tmp_path: Path, settings: dict[str, str], kept: bool) -> None:
        remote = MemoryStorage()
        remote.copy_log_segment_data(metadata_of(1), indexed(tmp_path, 1, entries=(1 << 17) + 1))
        cache = RemoteIndexCache(tmp_path, remote, settings=settings)
        assert cache.size_bytes == 0
        found = len(cache.get(metadata_of(1), IndexType.OFFSET))
        assert found > 1 << 20
        assert cache.size_bytes == found * kept

    @given(
        st.lists(st.tuples(st.integers(0, 7), st.sampled_from(list(IndexType))), max_size=40),
        st.integers(1, 500),
    )
    @examples(15)
    def test_never_above_the_limit_and_always_right(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        asked: list[tuple[int, IndexType]],
        size_bytes_max: int,
    ) -> None:
        folder = tmp_path_factory.mktemp("cache")
        remote = MemoryStorage()
        for number in range(8):
            remote.copy_log_segment_data(
                metadata_of(number), indexed(folder / "source", number, entries=number)
            )
        cache = RemoteIndexCache(folder, remote, settings=limit(size_bytes_max))
        for number, index_type in asked:
            with remote.fetch_index(metadata_of(number), index_type) as stream:
                assert cache.get(metadata_of(number), index_type) == stream.read()
            on_disk = sum(path.stat().st_size for path in folder.glob(f"{FOLDER}/*"))
            assert cache.size_bytes == on_disk <= size_bytes_max


def _spooled(remote: MemoryStorage, segment: RemoteLogSegmentMetadata, folder: Path) -> object:
    with spooled(remote, segment, folder) as files:
        return files.index_bytes()


def _cached(remote: MemoryStorage, segment: RemoteLogSegmentMetadata, folder: Path) -> object:
    cache = RemoteIndexCache(folder, remote)
    return [cache.get(segment, kind) for kind in IndexType]


def _uncached(remote: MemoryStorage, segment: RemoteLogSegmentMetadata, _: Path) -> object:
    return [UncachedIndexes(remote).get(segment, kind) for kind in IndexType]


def _in_pieces(remote: MemoryStorage, segment: RemoteLogSegmentMetadata, _: Path) -> object:
    with remote.fetch_index(segment, IndexType.OFFSET) as stream:
        return list(iter(lambda: stream.read(7), b""))


READERS: dict[str, Callable[[MemoryStorage, RemoteLogSegmentMetadata, Path], object]] = {
    "cached": _cached,
    "uncached": _uncached,
    "spooled": _spooled,
    "in pieces": _in_pieces,
    "for a dump": lambda remote, segment, _: stored_or_rebuilt(remote, segment, IndexType.OFFSET, print),
    "producers": lambda remote, segment, _: producer_snapshot(remote, segment),
}


@pytest.mark.parametrize("retry", [None, RetrySettings()])
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_bounds_an_index(
    reader: str, retry: RetrySettings | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, segment = MemoryStorage(), metadata_of(1)
    remote.retry = retry
    remote.copy_log_segment_data(segment, indexed(tmp_path / "source", 1))
    sizes = [len(each) for key, each in remote.failing.objects.items() if not key.endswith(".log")]
    monkeypatch.setattr(indexes, "INDEX_BYTES_MAX", max(sizes))
    READERS[reader](remote, segment, tmp_path)
    monkeypatch.setattr(indexes, "INDEX_BYTES_MAX", min(sizes) - 1)
    (new := tmp_path / "new").mkdir()
    with pytest.raises(CorruptInputError, match=rf"expected at most {min(sizes) - 1} bytes, found more"):
        READERS[reader](remote, segment, new)


class TestCrashes:
    def test_leftovers_go_and_damage_is_fetched_again(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        whole = {number: cache.get(metadata_of(number), IndexType.OFFSET) for number in range(4)}
        path = {number: path_of(tmp_path, number) for number in whole}
        path[0].write_bytes(whole[0][:-3])
        path[1].write_bytes(whole[1][::-1])
        (tmp_path / FOLDER / f"{path[2].name}.tmp").write_bytes(b"cut")
        (tmp_path / FOLDER / "a stranger").write_bytes(b"keep")
        again = RemoteIndexCache(tmp_path, remote)
        assert again.size_bytes == 160
        assert not path[0].exists()
        names = {each.name for each in (tmp_path / FOLDER).iterdir()}
        assert names == {path[2].name, path[3].name, "a stranger"}
        assert {number: again.get(metadata_of(number), IndexType.OFFSET) for number in whole} == whole
        assert again.fetches == 2

    def test_damage_while_running_is_fetched_again(self, tmp_path: Path, remote: MemoryStorage) -> None:
        cache = RemoteIndexCache(tmp_path, remote)
        whole = cache.get(metadata_of(1), IndexType.OFFSET)
        (path,) = (tmp_path / FOLDER).iterdir()
        for damage in (whole[:-1], b"\xff" * 16):
            path.write_bytes(damage)
            assert cache.get(metadata_of(1), IndexType.OFFSET) == whole
        path.unlink()
        assert cache.get(metadata_of(1), IndexType.OFFSET) == whole
        assert (cache.fetches, cache.size_bytes) == (4, 80)

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_a_failing_disk_does_not_fail_a_read(
        self, tmp_path: Path, remote: MemoryStorage, number: int
    ) -> None:
        def get(folder: Path, fs: FileSystem) -> RemoteIndexCache:
            cache = RemoteIndexCache(folder, remote, fs=fs)
            assert len(cache.get(metadata_of(1), IndexType.OFFSET)) == 80
            return cache

        operations = operations_of(lambda fs: get(tmp_path / "watched", fs) and None)
        for nth in range(len(operations)):
            assert get(tmp_path / str(nth), Failing(nth, number)).size_bytes == 0
            assert get(tmp_path / str(nth), FileSystem()).size_bytes == 80


class SlowStorage(MemoryStorage):
    """Block fetches of one segment until released; report when the first has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        if metadata.start_offset == 0:
            self.begun.set()
            assert self.go_on.wait(10)
        return super().fetch_index(metadata, index_type)


def test_threads_fetch_an_index_once_and_others_do_not_wait(tmp_path: Path) -> None:
    remote = SlowStorage()
    for number in range(2):
        remote.copy_log_segment_data(metadata_of(number), indexed(tmp_path / "source", number))
    cache = RemoteIndexCache(tmp_path, remote)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get(metadata_of(0), IndexType.OFFSET)))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    assert remote.begun.wait(10)
    assert cache.get(metadata_of(1), IndexType.OFFSET)
    assert found == []
    remote.go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(found) == 5
    assert len(set(found)) == 1
    assert cache.fetches == 2


def test_processes_that_write_an_index_at_once_both_keep_it(tmp_path: Path, remote: MemoryStorage) -> None:
    """Of one temporary file, the first rename would publish what the other process has not written yet."""
    other = RemoteIndexCache(tmp_path, remote)

    def meanwhile(operation: str, _path: Path) -> None:
        if operation == "write":
            other.get(metadata_of(1), IndexType.OFFSET)

    cache = RemoteIndexCache(tmp_path, remote, fs=FileSystem(meanwhile))
    expected = cache.get(metadata_of(1), IndexType.OFFSET)
    assert path_of(tmp_path, 1).read_bytes() == expected
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [path_of(tmp_path, 1).name]


def test_segments_of_one_id_are_spooled_apart(remote: MemoryStorage, tmp_path: Path) -> None:
    """Two user partitions have them in a bucket that was copied for another topic."""
    with spooled(remote, metadata_of(0), tmp_path) as one:
        with spooled(remote, metadata_of(0), tmp_path) as other:
            assert other.log != one.log
        assert one.log.read_bytes()
    assert not one.log.parent.exists()


_LOADING = """
import java.lang.reflect.*; import java.nio.file.*;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.apache.kafka.storage.internals.log.RemoteIndexCache;
public class Loading { public static void main(String[] folders) throws Exception {
  Object tier = Proxy.newProxyInstance(Loading.class.getClassLoader(),
      new Class<?>[]{RemoteStorageManager.class}, (proxy, method, arguments) -> null);
  Class<?> own = RemoteStorageManager.class;
  Class<?>[] old = {long.class, own, String.class};
  Class<?>[] types = {long.class, long.class, boolean.class, own, String.class};
  boolean isTimed = RemoteIndexCache.class.getConstructors().length > 1;
  for (String folder : folders) {
    String found = "starts";
    try {
      Constructor<?> made = RemoteIndexCache.class.getConstructor(isTimed ? types : old);
      ((RemoteIndexCache) (isTimed ? made.newInstance(1000L, 1000L, false, tier, folder)
          : made.newInstance(1000L, tier, folder))).close();
    } catch (InvocationTargetException e) { found = "ends"; }
    System.out.println(found); } } }
"""


def _with_zeros(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(120))


def _spoilt_caches(folder: Path, remote: RemoteStorageManager) -> dict[str, Path]:
    """Return log directories whose caches a broker can't load, by what is wrong, and "good" ones."""
    spoil: dict[str, Callable[[Path], object]] = {
        "good": Path.exists,
        "good: an index is missing": Path.unlink,
        "good: deletion": lambda path: path.rename(path.with_name(f"{path.name}.deleted")),
        "good: unfinished": lambda path: path.with_name(f"{path.name}.tmp").write_bytes(b"?"),
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "last offset": lambda path: path.write_bytes(path.read_bytes() + b"\xff" * 8),
        "name": lambda path: path.with_name("README").write_bytes(b"?"),
        "id": lambda path: path.with_name("0_short.index").write_bytes(b""),
        "good: zeros after offsets": lambda path: path.write_bytes(path.read_bytes() + bytes(80)),
        "zeros after times": lambda path: _with_zeros(path.with_suffix(".timeindex")),
        "offset": lambda path: [
            each.rename(each.with_name(each.name.replace("100_", f"{1 << 63}_", 1)))
            for each in sorted(path.parent.glob("100_*"))
        ],
        "folder": lambda path: (path.unlink(), path.mkdir()),
        "cache is a file": lambda path: (shutil.rmtree(path.parent), path.parent.write_bytes(b"?")),
        "cache is a link": lambda path: (shutil.rmtree(path.parent), path.parent.symlink_to("/none/x")),
    }
    for name, change in spoil.items():
        for kind in (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION):
            RemoteIndexCache(folder / name, remote).get(metadata_of(1), kind)
        change(path_of(folder / name, 1))
    return {name: folder / name for name in spoil}


def test_caches_of_brokers(tmp_path: Path, remote: MemoryStorage) -> None:
    for name, folder in _spoilt_caches(tmp_path, remote).items():
        wrong = [why for _, why in cached_by_broker(folder) if why is not None]
        # Each of the three indexes has the segment's offset in its name.
        count = 3 if name == "offset" else int(not name.startswith("good"))
        assert len(wrong) == count, (name, wrong)
    assert list(cached_by_broker(tmp_path / "none")) == []


@pytest.mark.kafka
def test_brokers_end_at_the_same_caches(kafka: KafkaRelease, tmp_path: Path, remote: MemoryStorage) -> None:
    caches = _spoilt_caches(tmp_path / "caches", remote)
    found = kafka.run_source(tmp_path, _LOADING, *map(str, caches.values())).split()
    assert found == ["starts" if name.startswith("good") else "ends" for name in caches]
