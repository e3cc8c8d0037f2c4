"""The state directory: a second run reads only new events, and no damage loses an event."""

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from tierctl.errors import LockedError, MetadataError, SafetyRefusal
from tierctl.files import FileSystem
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.state_dir.directory import COMMITTED_OFFSETS, StateDirectory
from tierctl.metadata.state_dir.manifest import MANIFEST
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files import committed_offsets, flatfile
from tierctl.wire.metadata.partitioner import metadata_partition
from tierctl.wire.metadata.values import encode

from tests.metadata.events import FINISHED, TOPIC_ID, started, update
from tests.metadata.topics import topic_in
from tests.support.faults import NEVER, Failing, assert_durable, operations_of, run_and_die

PARTITIONS = 3
HOME = metadata_partition(TOPIC_ID, 0, PARTITIONS)
OTHER = metadata_partition(TOPIC_ID, 1, PARTITIONS)
CACHE = f"orders-0-{TOPIC_ID}.rlmcache"


class CountingTopic(FolderTopic):
    """Counts the records that are read."""

    records_read = 0

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        for chunk in super().read(partition, start_offset, end_offset):
            self.records_read += len(chunk.offsets)
            yield chunk


class Place:
    """A metadata topic and a state directory."""

    def __init__(self, folder: Path) -> None:
        self.metadata = folder / "metadata"
        self.state = folder / "state"

    def append(self, *values: bytes, partition: int = HOME) -> None:
        topic = topic_in(self.metadata, writable=True, partition_count=PARTITIONS)
        topic.append([(partition, value) for value in values])
        topic.close()

    def run(self, fs: FileSystem | None = None) -> "Run":
        topic = CountingTopic(self.metadata, complete=True, empty_count=PARTITIONS)
        kept = StateDirectory(self.state, fs=fs or FileSystem())
        try:
            manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=kept)
            manager.refresh()
            manager.close()
        finally:
            kept.close()
        return Run(manager.state, topic.records_read, list(kept.notes))

    def truth(self) -> TierState:
        """Return the state that a run without a state directory folds."""
        return TopicBasedRemoteLogMetadataManager(
            topic_in(self.metadata, partition_count=PARTITIONS)
        ).refresh()

    def committed(self) -> dict[int, int]:
        return dict(committed_offsets.read((self.state / COMMITTED_OFFSETS).read_bytes()).offsets)


class Run:
    def __init__(self, state: TierState, records_read: int, notes: list[str]) -> None:
        self.state = state
        self.records_read = records_read
        self.notes = notes


def summary(state: TierState) -> object:
    """Return all facts for decisions: segments, delete states, quarantine, positions."""
    return (
        [
            (p.topic_id_partition, p.delete_state, sorted(p.cache.list_remote_log_segments(), key=str))
            for p in state
        ],
        sorted((q.metadata_partition, q.metadata_offset) for q in state.quarantined),
        {p: offset for p, offset in state.read.items() if offset},
    )


def events(numbers: Sequence[int], partition: int = 0) -> list[bytes]:
    return [
        encode(event)
        for number in numbers
        for event in (started(number, partition=partition), update(number, partition=partition))
    ]


def made_place(folder: Path) -> Place:
    """Return a topic with events of two user partitions."""
    made = Place(folder)
    made.append(*events(range(5)))
    made.append(*events(range(3), partition=1), partition=OTHER)
    return made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made_place(tmp_path)


class TestGoingOn:
    def test_a_second_run_reads_only_what_is_new(self, place: Place) -> None:
        first = place.run()
        assert first.records_read == 16
        assert place.committed()[HOME] == place.truth().read[HOME] - 1
        second = place.run()
        assert second.records_read == 0
        assert summary(second.state) == summary(first.state) == summary(place.truth())
        place.append(*events([9]))
        third = place.run()
        assert third.records_read == 2
        assert summary(third.state) == summary(place.truth())
        assert first.notes == second.notes == third.notes == []

    def test_what_is_kept_is_on_the_disk(self, place: Place) -> None:
        assert_durable(lambda fs: place.run(fs) and None)

    def test_nothing_new_writes_nothing(self, place: Place) -> None:
        place.run()
        assert operations_of(lambda fs: place.run(fs) and None) == []

    def test_the_files_are_the_kips(self, place: Place) -> None:
        place.run()
        found = flatfile.read((place.state / CACHE).read_bytes())
        assert (found.header.topic, found.header.topic_id) == ("orders", TOPIC_ID)
        assert found.header.metadata_topic_offset == len(found.records) - 1 or HOME == OTHER
        assert len(found.records) == 10
        assert found.damaged == ()

    def test_what_publishing_read_back_is_kept(self, place: Place) -> None:
        place.run()
        topic = topic_in(place.metadata, writable=True)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=StateDirectory(place.state))
        manager.publish([started(20), update(20)])
        manager.close()
        again = place.run()
        assert again.records_read == 0
        assert summary(again.state) == summary(place.truth())

    def test_large_caches_are_appended_to(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        from tierctl.metadata.state_dir import cache_file
        from tierctl.metadata.state_dir import directory as state_dir

        monkeypatch.setattr(cache_file, "REWRITE_BYTES_MAX", 0)
        monkeypatch.setattr(state_dir, "PENDING_BYTES_MAX", 0)
        place.run()
        place.append(*events([7, 8]))
        assert operations_of(lambda fs: place.run(fs) and None).count("create") == 3
        assert summary(place.run().state) == summary(place.truth())

    def test_offsets_lowered_by_hand_are_read_again_once(self, place: Place) -> None:
        place.run()
        (place.state / COMMITTED_OFFSETS).write_bytes(committed_offsets.write({HOME: 2, OTHER: 100}))
        again = place.run()
        assert again.records_read == place.truth().read[HOME] - 3
        assert summary(again.state) == summary(place.truth())
        assert len(flatfile.read((place.state / CACHE).read_bytes()).records) == 10


class TestUnreadable:
    def test_what_was_not_understood_is_met_again(self, place: Place) -> None:
        place.append(b"\1\7\0what", *events([5]))
        expected = summary(place.truth())
        for _ in range(3):
            run = place.run()
            assert summary(run.state) == expected
            assert len(run.state.quarantined) == 1
        assert place.committed()[HOME] == run.state.quarantined[0].metadata_offset - 1

    def test_a_topic_that_may_not_be_a_file_name_is_met_again(self, place: Place) -> None:
        hostile = started(0, topic="../../etc", topic_id=Uuid("u6uHqOrgTh-HLODx2Wo0EA"))
        place.append(encode(hostile), partition=metadata_partition(hostile.topic_id, 0, PARTITIONS))
        for _ in range(2):
            assert summary(place.run().state) == summary(place.truth())
        assert {path.name for path in place.state.iterdir() if path.suffix == ".rlmcache"} == {
            CACHE,
            f"orders-1-{TOPIC_ID}.rlmcache",
        }

    def test_a_history_without_beginning_stays_incomplete(self, place: Place) -> None:
        checkpoint = place.metadata / "log-start-offset-checkpoint"
        checkpoint.write_bytes(b"0\n1\n__remote_log_metadata %d 4\n" % HOME)
        for _ in range(2):
            assert place.run().state.missing_of(HOME)

    def test_a_beginning_that_was_read_before_it_went_is_complete(self, place: Place) -> None:
        whole = place.run()
        checkpoint = place.metadata / "log-start-offset-checkpoint"
        checkpoint.write_bytes(b"0\n1\n__remote_log_metadata %d 4\n" % HOME)
        later = place.run()
        assert summary(later.state) == summary(whole.state)
        assert not later.state.missing_of(HOME)


class TestMissingEvents:
    """The metadata topic lost events, before or after the state directory read them."""

    def cut(self, place: Place, begin: int) -> None:
        checkpoint = place.metadata / "log-start-offset-checkpoint"
        checkpoint.write_bytes(b"0\n1\n__remote_log_metadata %d %d\n" % (HOME, begin))

    def test_events_between_two_runs(self, place: Place) -> None:
        read = place.run().state.read[HOME]
        place.append(*events([5, 6]))
        self.cut(place, read + 3)
        for _ in range(2):
            assert place.run().state.missing == [MissingEvents(HOME, read, read + 3)]

    def test_a_head_and_later_a_hole(self, place: Place) -> None:
        self.cut(place, 4)
        read = place.run().state.read[HOME]
        place.append(*events([5, 6]))
        self.cut(place, read + 1)
        expected = [MissingEvents(HOME, 0, 4), MissingEvents(HOME, read, read + 1)]
        for _ in range(2):
            assert place.run().state.missing == expected

    def test_a_damaged_cache_is_not_read_again_without_its_head(self, place: Place) -> None:
        """The other cache of the metadata partition has events up to above the topic's new start offset."""
        both = next(n for n in range(2, 99) if metadata_partition(TOPIC_ID, n, PARTITIONS) == HOME)
        place.append(*events([0, 1], partition=both), partition=HOME)
        read = place.run().state.read[HOME]
        (place.state / CACHE).write_bytes(b"nonsense")
        self.cut(place, read - 2)
        run = place.run()
        assert run.notes
        assert run.state.missing == [MissingEvents(HOME, 0, read - 2)]

    def test_a_damaged_cache_beside_one_that_ends_before_a_hole(self, place: Place) -> None:
        both = next(n for n in range(2, 99) if metadata_partition(TOPIC_ID, n, PARTITIONS) == HOME)
        place.append(*events([0, 1], partition=both), partition=HOME)
        read = place.run().state.read[HOME]
        place.append(*events([7, 8]))
        (place.state / CACHE).write_bytes(b"nonsense")
        self.cut(place, read + 3)
        assert place.run().state.missing == [MissingEvents(HOME, read, read + 3)]


class TestDamage:
    def damage(self, path: Path, how: str) -> None:
        data = path.read_bytes()
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[:-3])
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "flipped":
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        elif how == "another's":
            path.write_bytes(path.with_name(f"orders-1-{TOPIC_ID}.rlmcache").read_bytes())
        else:
            path.write_bytes(b"nonsense")

    @pytest.mark.parametrize("how", ["missing", "cut", "empty", "flipped", "another's", "nonsense"])
    @pytest.mark.parametrize("name", [CACHE, MANIFEST, COMMITTED_OFFSETS])
    def test_is_noticed_and_read_anew(self, place: Place, name: str, how: str) -> None:
        place.run()
        self.damage(place.state / name, how)
        broken = (place.state / name).read_bytes() if (place.state / name).exists() else None
        run = place.run()
        assert summary(run.state) == summary(place.truth())
        if name == CACHE:
            assert run.notes
            assert run.records_read >= 10
            if broken is not None:
                assert (place.state / f"{name}.bak").read_bytes() == broken
        again = place.run()
        assert (again.records_read, again.notes) == (0, [])
        assert summary(again.state) == summary(place.truth())

    def test_every_cut_and_flip_of_a_cache(self, place: Place) -> None:
        place.run()
        path = place.state / CACHE
        whole = path.read_bytes()
        expected = summary(place.truth())
        for at in range(0, len(whole), 41):
            for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]):
                path.write_bytes(data)
                assert summary(place.run().state) == expected

    def test_offsets_ahead_of_the_caches_do_not_lose_what_lies_between(self, place: Place) -> None:
        place.run()
        place.append(*events([6]))
        ahead = place.committed() | {HOME: place.truth().read[HOME] - 1}
        (place.state / COMMITTED_OFFSETS).write_bytes(committed_offsets.write(ahead))
        assert summary(place.run().state) == summary(place.truth())


class TestRefusals:
    def test_another_number_of_metadata_partitions(self, place: Place) -> None:
        place.run()
        extra = place.metadata / f"__remote_log_metadata-{PARTITIONS}"
        extra.mkdir()
        with pytest.raises(SafetyRefusal, match="has 4 partitions, but had 3") as caught:
            place.run()
        assert caught.value.hint

    def test_another_metadata_topic(self, place: Place) -> None:
        place.run()
        for path in place.metadata.glob("*/partition.metadata"):
            path.write_bytes(b"version: 0\ntopic_id: fLg1aTQHR1-5r0a-jrk1gw")
        with pytest.raises(SafetyRefusal, match="belongs to metadata topic"):
            place.run()

    def test_a_log_shorter_than_what_was_read(self, place: Place) -> None:
        place.run()
        (place.metadata / f"__remote_log_metadata-{HOME}" / f"{0:020d}.log").write_bytes(b"")
        for _ in range(2):
            assert place.run().state.is_damaged(HOME)

    def test_one_writer_readers_go_without_keeping(self, place: Place) -> None:
        with StateDirectoryHeld(place.state):
            with pytest.raises(LockedError):
                StateDirectory(place.state)
            reader = StateDirectory(place.state, writable=False)
            manager = TopicBasedRemoteLogMetadataManager(topic_in(place.metadata), state_dir=reader)
            assert summary(manager.refresh()) == summary(place.truth())
            manager.close()
            assert not (place.state / COMMITTED_OFFSETS).exists()
        assert place.run().records_read == 16


class StateDirectoryHeld:
    """The state directory is locked, as by another tierctl."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._fd = os.open(folder / ".tierctl-state.lock", os.O_RDWR | os.O_CREAT)

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class TestFaults:
    def prepared(self, folder: Path) -> Place:
        """Some caches exist, some are new, some are extended, and a bad record stops the committed offset."""
        place = Place(folder)
        place.append(*events(range(3)))
        place.run()
        place.append(*events(range(3, 5)), b"\1\7\0what", *events([5]))
        place.append(*events(range(2), partition=1), partition=OTHER)
        return place

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_a_failing_disk(self, tmp_path: Path, number: int) -> None:
        watched = self.prepared(tmp_path / "watched")
        operations = operations_of(lambda fs: watched.run(fs) and None)
        assert {"create", "write", "fsync", "rename", "fsync-dir"} <= set(operations)
        for nth in range(len(operations)):
            place = self.prepared(tmp_path / str(nth))
            with pytest.raises(MetadataError) as caught:
                place.run(Failing(nth, number))
            assert caught.value.hint
            run = place.run()
            assert summary(run.state) == summary(place.truth()), f"after {operations[nth]} number {nth}"
            assert run.notes == []

    def test_kill_9(self, tmp_path: Path) -> None:
        watched = self.prepared(tmp_path / "watched")
        for nth in range(len(operations_of(lambda fs: watched.run(fs) and None))):
            place = self.prepared(tmp_path / str(nth))
            assert run_and_die(partial(run_once, place), nth)
            for _ in range(2):
                run = place.run()
                assert summary(run.state) == summary(place.truth())
                assert run.notes == []
        assert not run_and_die(partial(run_once, self.prepared(tmp_path / "whole")), NEVER)


def run_once(place: Place, fs: FileSystem) -> None:
    place.run(fs)


def test_finished_segments_keep_their_brokers_fields(place: Place) -> None:
    """Entries of KIP-405 have no fields for broker id and custom metadata; tierctl's entries have them."""
    place.run()
    (segment,) = [
        s
        for p in place.run().state
        for s in p.cache.list_remote_log_segments()
        if p.topic_id_partition.partition == 0 and s.start_offset == 0
    ]
    assert (segment.broker_id, segment.state, segment.segment_size_in_bytes) == (-1, FINISHED, 1000)
    assert segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
