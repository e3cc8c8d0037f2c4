"""The state directory: a second run reads only new events, and no damage loses an event."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from tierctl import files
from tierctl.errors import LockedError, MetadataError, SafetyRefusal
from tierctl.files import FileSystem
from tierctl.metadata import parallel_fold, state_dir
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.state_dir import (
    LOCK,
    MANIFEST,
    Journal,
    Manifest,
    StateDirectory,
    snapshot_name,
)
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model import TopicIdPartition, Uuid
from tierctl.state import fold, tier_state
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.wire.batches.record_batch import Record, encode_batch
from tierctl.wire.batches.scan import scan_heads
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.metadata.events import TOPIC_ID, started, update
from tests.metadata.topics import topic_in
from tests.support.faults import NEVER, Failing, assert_durable, operations_of, run_and_die

NOW_MS = 1_700_000_000_000
PARTITIONS = 3
HOME = metadata_partition(TOPIC_ID, 0, PARTITIONS)
OTHER = metadata_partition(TOPIC_ID, 1, PARTITIONS)


class CountingTopic(FolderTopic):
    """Counts the records that are read, but for the reading of one, which is compared with the last known."""

    records_read = 0

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        for chunk in super().read(partition, start_offset, end_offset):
            self.records_read += len(chunk.offsets) if end_offset - start_offset > 1 else 0
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

    @property
    def kept(self) -> dict[int, int]:
        """The offset of the snapshot of each metadata partition."""
        entries = Manifest.loads((self.state / MANIFEST).read_bytes()).snapshots
        return {number: entry.offset for number, entry in entries.items()}

    @property
    def snapshot(self) -> Path:
        """The snapshot of the metadata partition HOME."""
        return self.state / snapshot_name(HOME, self.kept[HOME])


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
        (state.anomaly_count, sorted((a.metadata_partition, a.metadata_offset) for a in state.anomalies)),
    )


def events(numbers: Sequence[int], partition: int = 0) -> list[bytes]:
    return [
        encode(event)
        for number in numbers
        for event in (started(number, partition=partition), update(number, partition=partition))
    ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a topic with events of two user partitions."""
    made = Place(tmp_path)
    made.append(*events(range(5)))
    made.append(*events(range(3), partition=1), partition=OTHER)
    return made


class TestGoingOn:
    def test_a_second_run_reads_only_what_is_new(self, place: Place) -> None:
        first = place.run()
        assert first.records_read == 16
        assert place.kept == {p: offset for p, offset in place.truth().read.items() if offset}
        second = place.run()
        assert second.records_read == 0
        assert summary(second.state) == summary(first.state) == summary(place.truth())
        place.append(*events([9]))
        third = place.run()
        assert third.records_read == 2
        assert summary(third.state) == summary(place.truth())
        assert first.notes == second.notes == third.notes == []

    def test_only_what_counts_is_in_the_directory(self, place: Place) -> None:
        """Neither a snapshot that a newer one replaces stays, nor what a crash left."""
        place.run()
        left = [place.state / name for name in ("_tierctl_state-1-999", f"{snapshot_name(HOME, 7)}.tmp")]
        for path in left:
            path.write_bytes(b"left by a crash")
        place.append(*events([9]))
        place.run()
        names = {snapshot_name(*each) for each in place.kept.items()}
        assert {path.name for path in place.state.iterdir()} == names | {MANIFEST, LOCK}

    def test_what_is_kept_is_on_the_disk(self, place: Place) -> None:
        assert_durable(lambda fs: place.run(fs) and None)

    def test_snapshots_are_on_the_disk_before_the_manifest_names_them(self, place: Place) -> None:
        seen: list[tuple[str, str]] = []
        place.run(FileSystem(lambda operation, path: seen.append((operation, path.name))))
        named = seen.index(("rename", MANIFEST))
        written = [at for at, (operation, name) in enumerate(seen) if operation == "rename" and at != named]
        assert len(written) == len(place.kept) > 0
        assert max(written) < seen.index(("fsync-dir", place.state.name), max(written)) < named

    def test_nothing_new_writes_nothing(self, place: Place) -> None:
        place.run()
        assert operations_of(lambda fs: place.run(fs) and None) == []

    def test_what_publishing_read_back_is_kept(self, place: Place) -> None:
        place.run()
        topic = topic_in(place.metadata, writable=True)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=StateDirectory(place.state))
        manager.publish([started(20), update(20)])
        manager.close()
        again = place.run()
        assert again.records_read == 0
        assert summary(again.state) == summary(place.truth())

    def test_a_topic_that_may_not_be_a_file_name(self, place: Place) -> None:
        topic_id = Uuid("u6uHqOrgTh-HLODx2Wo0EA")
        hostile = [encode(started(number, topic="../../etc", topic_id=topic_id)) for number in range(2)]
        place.append(*hostile, partition=metadata_partition(topic_id, 0, PARTITIONS))
        for read in (18, 0):
            run = place.run()
            assert (summary(run.state), run.records_read) == (summary(place.truth()), read)

    def test_of_too_many_anomalies_all_are_counted(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tier_state, "ANOMALIES_KEPT", 3)
        for number in range(50, 53):
            place.append(encode(update(number)))
            place.append(encode(update(number, partition=1)), partition=OTHER)
            assert place.run().state.anomaly_counts == place.truth().anomaly_counts
        run = place.run()
        assert (run.state.anomaly_count, len(run.state.anomalies), run.records_read) == (6, 3, 0)


class TestUnreadable:
    def test_what_was_not_understood_is_met_again(self, place: Place) -> None:
        place.append(b"\1\7\0what", *events([5]))
        for read in (19, 3, 3):
            run = place.run()
            assert summary(run.state) == summary(place.truth())
            assert (len(run.state.quarantined), run.records_read) == (1, read)
        place.append(*events([6]))
        assert summary(place.run().state) == summary(place.truth())
        assert place.kept[HOME] == run.state.quarantined[0].metadata_offset

    def test_what_is_understood_later_is_folded(self, place: Place) -> None:
        """Another release of tierctl reads the record, or an operator puts a good replica there."""
        place.append(b"\1\7\0what", *events([6]))
        assert place.run().state.quarantined
        for folder in place.metadata.glob("__remote_log_metadata-*"):
            for path in folder.glob("*.log"):
                path.write_bytes(b"")
        place.append(*events(range(5)), encode(started(5)), *events([6]))
        place.append(*events(range(3), partition=1), partition=OTHER)
        for _ in range(2):
            run = place.run()
            assert run.state.quarantined == []
            assert summary(run.state) == summary(place.truth())

    def test_anomalies_before_it_are_kept(self, place: Place) -> None:
        place.append(encode(update(70)))
        place.run()
        place.append(encode(update(71)), b"\1\7\0what", encode(update(72)))
        for _ in range(2):
            assert summary(place.run().state) == summary(place.truth())


class TestUserPartitionsInTwoPlaces:
    def test_keep_what_they_had_before(self, place: Place) -> None:
        """Only both metadata partitions together have the state: events of both are read by each run."""
        stray = ({0, 1, 2} - {HOME}).pop()
        third = ({0, 1, 2} - {HOME, stray}).pop()
        others = [n for n in range(9) if metadata_partition(TOPIC_ID, n, PARTITIONS) == third]
        place.append(*events([0], partition=others[0]), partition=third)
        place.run()
        before = place.kept
        for number in (30, 31, 32):
            place.append(encode(started(number)), partition=stray)
            assert summary(place.run().state) == summary(place.truth())
            place.append(encode(update(number)), *events([number + 10]))
            assert summary(place.run().state) == summary(place.truth())
        assert place.kept == before
        assert before.keys() == {HOME, third} | ({stray} if stray == OTHER else set())


class TestMissingEvents:
    """The metadata topic lost events, before or after the state directory read them."""

    def cut(self, place: Place, begin: int) -> None:
        checkpoint = place.metadata / "log-start-offset-checkpoint"
        checkpoint.write_bytes(b"0\n1\n__remote_log_metadata %d %d\n" % (HOME, begin))

    @pytest.mark.parametrize("more", [(), (b"\1\7\0what", *events([5]))], ids=["", "not understood"])
    def test_a_beginning_that_was_read_before_it_went_is_complete(
        self, place: Place, more: tuple[bytes, ...]
    ) -> None:
        """Also if the first run met a record that is not understood, from which on the next one reads."""
        place.append(*more)
        whole = place.run()
        self.cut(place, 4)
        for _ in range(2):
            later = place.run()
            assert summary(later.state) == summary(whole.state)
            assert not later.state.missing

    def test_a_head_and_later_a_hole(self, place: Place) -> None:
        self.cut(place, 4)
        read = place.run().state.read[HOME]
        place.append(*events([5, 6]))
        self.cut(place, read + 1)
        expected = [MissingEvents(HOME, 0, 4), MissingEvents(HOME, read, read + 1)]
        for _ in range(2):
            state = place.run().state
            assert (state.missing, state.quarantined) == (expected, [])

    def test_a_log_without_events_any_more(self, place: Place) -> None:
        read = place.truth().read[HOME]
        self.cut(place, read)
        for _ in range(2):
            assert place.run().state.missing == [MissingEvents(HOME, 0, read)]

    def test_a_damaged_snapshot_of_a_topic_that_lost_its_head(self, place: Place) -> None:
        read = place.run().state.read[HOME]
        place.snapshot.write_bytes(b"nonsense")
        self.cut(place, read - 2)
        run = place.run()
        assert run.notes
        assert run.state.missing == [MissingEvents(HOME, 0, read - 2)]


class TestSiblings:
    """What stands beside the snapshots, and what came between two steps of a run."""

    def test_snapshots_without_a_manifest_are_kept(self, place: Place) -> None:
        place.run()
        names = {snapshot_name(*each) for each in place.kept.items()}
        (place.state / MANIFEST).unlink()
        run = place.run()
        assert summary(run.state) == summary(place.truth())
        assert all(name in " ".join(run.notes) for name in names)
        assert {path.name for path in place.state.glob("*.bak")} == {f"{name}.bak" for name in names}

    def test_nobody_else_can_write_what_a_run_writes(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also under a umask that takes no right, and in place of a file that others could write."""
        monkeypatch.setattr(files, "_umask", lambda: 0)
        before = os.umask(0)
        try:
            place.run()
            for at in (1, 2):
                Journal(place.state).raise_log_starts({TopicIdPartition(TOPIC_ID, "orders", 0): at})
                Journal(place.state).record_sightings({(TOPIC_ID, 0): {TOPIC_ID: 0}}, NOW_MS)
        finally:
            os.umask(before)
        for path in (place.state, *place.state.iterdir()):
            assert (path.name, path.stat().st_mode & 0o022) == (path.name, 0)

    def test_runs_that_only_plan_record_their_sightings_in_turn(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They need not hold the lock of the directory."""
        place.run()
        seen = {(TOPIC_ID, 0): {TOPIC_ID: 0}}
        monkeypatch.setattr(state_dir, "_LOCK_TIMEOUT_S", 0)

        def meanwhile(_operation: str, _path: Path) -> None:
            with pytest.raises(LockedError):
                Journal(place.state).record_sightings(seen, NOW_MS)

        first = Journal(place.state, fs=FileSystem(meanwhile)).record_sightings(seen, NOW_MS - 1)
        assert Journal(place.state).record_sightings(seen, NOW_MS) == first == {TOPIC_ID: NOW_MS - 1}

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
    def test_a_folder_that_another_user_makes_meanwhile_is_refused(self, place: Place) -> None:
        class Meanwhile(FileSystem):
            def make_folder(self, path: Path, **_: object) -> None:
                path.mkdir()
                os.chown(path, 12345, 12345)

        with pytest.raises(SafetyRefusal, match="belongs to user 12345"):
            place.run(Meanwhile())
        assert list(place.state.iterdir()) == []

    def test_what_has_another_name_stays(self, place: Place) -> None:
        place.run()
        (place.state / "_tierctl_state-mine").write_text("mine")
        (place.state / f"{snapshot_name(HOME, 3)}.tmp").mkdir()
        place.append(*events([9]))
        assert summary(place.run().state) == summary(place.truth())
        assert (place.state / "_tierctl_state-mine").read_text() == "mine"

    def test_misplaced_events_before_a_record_that_is_not_understood(self, place: Place) -> None:
        stray = next(n for n in range(9) if metadata_partition(TOPIC_ID, n, PARTITIONS) != HOME)
        place.append(*events([7], partition=stray), b"\1\7\0what", *events([8]))
        for _ in range(2):
            run = place.run()
            assert [q.is_misplaced for q in run.state.quarantined].count(True) == 1
        place.append(*events([9], partition=stray))
        assert [q.is_misplaced for q in place.run().state.quarantined].count(True) == 1

    def test_half_a_fold_is_not_kept(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signal may come after events are applied and before their offset counts as read."""
        place.run()
        place.append(*events([9]), encode(update(77)))
        with monkeypatch.context() as patched:
            patched.setattr(parallel_fold, "fold", interrupted_after(parallel_fold.fold))
            topic = SlowTopic(place.metadata, complete=True, empty_count=PARTITIONS)
            manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=StateDirectory(place.state))
            with pytest.raises(KeyboardInterrupt):
                manager.refresh()
            manager.close()
        assert summary(place.run().state) == summary(place.truth())

    def test_a_full_disk_at_the_end_does_not_hide_what_was_done(self, place: Place) -> None:
        place.run()
        notes: list[str] = []
        fs = FileSystem()
        kept = StateDirectory(place.state, fs=fs)
        topic = topic_in(place.metadata, writable=True)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=kept, on_note=notes.append)
        manager.publish([started(20)])
        fs._observe = Failing(0, errno.ENOSPC)._observe
        manager.close()
        assert "the next run reads the events again" in notes[0]
        assert summary(place.run().state) == summary(place.truth())

    def test_a_full_disk_after_reading_is_one_error(self, place: Place) -> None:
        notes: list[str] = []
        kept = StateDirectory(place.state, fs=Failing(0, errno.ENOSPC, only=frozenset({"write"}), lasts=True))
        topic = topic_in(place.metadata)
        manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=kept, on_note=notes.append)
        with pytest.raises(MetadataError, match="No space left"):
            manager.refresh()
        manager.close()
        assert notes == []

    def test_a_batch_that_begins_within_the_last_one_that_was_read(self, place: Place) -> None:
        """A batch's CRC does not cover its base offset: one bit is changed there, and mended later."""
        log = place.metadata / f"__remote_log_metadata-{HOME}" / f"{0:020d}.log"
        begin = place.truth().read[HOME]
        batches = [
            encode_batch([Record(begin + n, NOW_MS, None, encode(started(20 + n))) for n in numbers])
            for numbers in (range(3), range(3, 6))
        ]
        log.write_bytes(log.read_bytes() + batches[0])
        before = log.read_bytes()
        place.run()
        bad = (begin + 2).to_bytes(8, "big") + batches[1][8:]
        log.write_bytes(before + bad)
        assert place.run().state.is_damaged(HOME)
        good = before + batches[1]
        log.write_bytes(good)
        assert summary(place.run().state) == summary(place.truth())


class SlowTopic(FolderTopic):
    """Yields one record at a time."""

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        for offset in range(start_offset, end_offset):
            yield from super().read(partition, offset, offset + 1)


def interrupted_after(fold: Callable[..., Any]) -> Callable[..., Any]:
    """Return the fold, which ends by a signal before the offsets of its third call count as read."""
    calls = iter(range(9))

    def interrupted(events: Any, state: TierState, **more: Any) -> Any:
        read = dict(state.read)
        folded = fold(events, state, **more)
        if next(calls) == 2:
            state.read.clear()
            state.read.update(read)
            raise KeyboardInterrupt
        return folded

    return interrupted


class TestDamage:
    def damage(self, path: Path, how: str) -> None:
        data = path.read_bytes()
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[:-3])
        elif how == "empty":
            path.write_bytes(b"")
        else:
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])

    @pytest.mark.parametrize(
        ("what", "how"),
        [("snapshot", "missing"), *(("manifest", how) for how in ("missing", "cut", "empty", "flipped"))],
    )
    def test_is_noticed_and_read_anew(self, place: Place, what: str, how: str) -> None:
        place.run()
        path = place.snapshot if what == "snapshot" else place.state / MANIFEST
        self.damage(path, how)
        broken = path.read_bytes() if path.exists() else None
        run = place.run()
        assert summary(run.state) == summary(place.truth())
        if broken is not None:
            assert path.with_name(f"{path.name}.bak").read_bytes() == broken
        assert run.notes
        assert run.records_read >= 10
        again = place.run()
        assert (again.records_read, again.notes) == (0, [])
        assert summary(again.state) == summary(place.truth())
        if broken is not None:
            self.damage(path, how)
            place.run()
            assert path.with_name(f"{path.name}.bak").read_bytes() == broken
            assert len(list(place.state.glob(f"{path.name}*.bak"))) == 2

    def test_every_cut_and_flip_of_a_snapshot(self, place: Place) -> None:
        place.run()
        expected = summary(place.truth())
        path = place.snapshot
        whole = path.read_bytes()
        for at in range(0, len(whole), len(whole) // 40):
            for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]):
                path.write_bytes(data)
                assert summary(place.run().state) == expected

    def test_a_snapshot_of_another_metadata_partition(self, place: Place) -> None:
        place.run()
        manifest = Manifest.loads((place.state / MANIFEST).read_bytes())
        path, other = place.snapshot, place.state / snapshot_name(OTHER, place.kept[OTHER])
        path.write_bytes(other.read_bytes())
        own, its = manifest.snapshots[HOME], manifest.snapshots[OTHER]
        manifest.snapshots[HOME] = its._replace(offset=own.offset)
        (place.state / MANIFEST).write_bytes(manifest.dumps())
        run = place.run()
        assert run.notes
        assert summary(run.state) == summary(place.truth())


class TestRefusals:
    @pytest.mark.parametrize("what", ["manifest", "snapshot"])
    def test_what_a_newer_tierctl_wrote_is_no_damage(
        self, place: Place, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if what == "snapshot":
            with monkeypatch.context() as newer:
                newer.setattr(fold, "SNAPSHOT_VERSION", (known := fold.SNAPSHOT_VERSION) + 1)
                place.run()
            file = place.snapshot
        else:
            place.run()
            known, file = state_dir.VERSION, place.state / MANIFEST
            file.write_text(json.dumps({"version": known + 1, "what follows": "is unknown"}))
        before = {path: path.read_bytes() for path in place.state.iterdir()}
        found = rf"{file.name}: expected version {known}, found version {known + 1}"
        with pytest.raises(SafetyRefusal, match=found) as caught:
            place.run()
        assert "use another --state-dir" in (caught.value.hint or "")
        assert {path: path.read_bytes() for path in place.state.iterdir()} == before

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

    @pytest.mark.parametrize("end", [10, 20])
    @pytest.mark.parametrize("kept", range(0, 10, 3))
    def test_a_log_that_was_cut_and_grew_again(self, place: Place, kept: int, end: int) -> None:
        """A leader was elected that had not all records: others have the offsets that were read."""
        place.run()
        log = place.metadata / f"__remote_log_metadata-{HOME}" / f"{0:020d}.log"
        ends = [*scan_heads(log.read_bytes()).positions.tolist(), log.stat().st_size]
        log.write_bytes(log.read_bytes()[: ends[kept]])
        place.append(*events(range(50, 60))[: end - kept])
        run = place.run()
        (note,) = run.notes
        assert f"expected the record at offset 9 of metadata partition {HOME} that was read before" in note
        assert summary(run.state) == summary(place.truth())
        assert summary(place.run().state) == summary(place.truth())
        assert place.run().notes == []

    def test_a_last_record_that_was_deleted_is_no_cut(self, place: Place) -> None:
        """Retention deletes whole segments: the first record that is left may be a later one."""
        place.run()
        folder = place.metadata / f"__remote_log_metadata-{HOME}"
        (folder / f"{0:020d}.log").rename(folder / f"{10:020d}.log")
        records = [Record(10 + at, NOW_MS, None, value) for at, value in enumerate(events([70]))]
        (folder / f"{10:020d}.log").write_bytes(b"".join(encode_batch([each]) for each in records))
        run = place.run()
        assert run.notes == []
        assert run.state.read[HOME] == 12

    def test_one_writer_readers_go_without_keeping(self, place: Place) -> None:
        with StateDirectoryHeld(place.state):
            with pytest.raises(LockedError):
                StateDirectory(place.state)
            reader = StateDirectory(place.state, writable=False)
            manager = TopicBasedRemoteLogMetadataManager(topic_in(place.metadata), state_dir=reader)
            assert summary(manager.refresh()) == summary(place.truth())
            manager.close()
            assert not (place.state / MANIFEST).exists()
        assert place.run().records_read == 16

    def test_a_reader_beside_a_writer_that_replaces_the_snapshots(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.run()
        place.append(*events([9]))
        reads = [dict(place.kept)]
        read = state_dir._read_own

        def replaced_meanwhile(path: Path) -> bytes:
            if path.name != MANIFEST and reads:
                reads.clear()
                writer.release()
                place.run()
                writer.acquire()
            return read(path)

        with StateDirectoryHeld(place.state) as writer:
            monkeypatch.setattr(state_dir, "_read_own", replaced_meanwhile)
            reader = StateDirectory(place.state, writable=False)
            topic = CountingTopic(place.metadata, complete=True, empty_count=PARTITIONS)
            manager = TopicBasedRemoteLogMetadataManager(topic, state_dir=reader)
            assert summary(manager.refresh()) == summary(place.truth())
            assert (topic.records_read, reader.notes) == (0, [])
            manager.close()


class StateDirectoryHeld:
    """The state directory is locked, as by another tierctl."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)

    def acquire(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class TestFaults:
    @pytest.fixture
    def prepared(self, tmp_path: Path) -> Callable[[str], Place]:
        """Return copies of a place with old, new and replaced snapshots, one of them held by a bad record."""
        place = Place(tmp_path / "prepared")
        place.append(*events(range(3)))
        place.run()
        place.append(*events(range(3, 5)), b"\1\7\0what", *events([5]))
        place.append(*events(range(2), partition=1), partition=OTHER)
        return lambda name: Place(Path(shutil.copytree(tmp_path / "prepared", tmp_path / name)))

    def test_a_failing_disk(self, prepared: Callable[[str], Place]) -> None:
        watched = prepared("watched")
        operations = operations_of(lambda fs: watched.run(fs) and None)
        assert {"create", "write", "fsync", "rename", "fsync-dir"} <= set(operations)
        whole = summary(watched.truth())
        for nth in range(len(operations)):
            place = prepared(str(nth))
            with pytest.raises(MetadataError) as caught:
                place.run(Failing(nth, errno.EIO))
            assert caught.value.hint
            run = place.run()
            assert summary(run.state) == whole, f"after {operations[nth]} number {nth}"
            assert run.notes == []

    def test_kill_9(self, prepared: Callable[[str], Place]) -> None:
        watched = prepared("watched")
        whole = summary(watched.truth())
        for nth in range(len(operations_of(lambda fs: watched.run(fs) and None))):
            place = prepared(str(nth))
            assert run_and_die(partial(run_once, place), nth)
            for _ in range(2):
                run = place.run()
                assert summary(run.state) == whole
                assert run.notes == []
        assert not run_and_die(partial(run_once, prepared("whole")), NEVER)


def run_once(place: Place, fs: FileSystem) -> None:
    place.run(fs)
