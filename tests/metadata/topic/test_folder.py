"""The metadata topic in a folder: create, read, append, recover."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, LockedError, MetadataError, NotFoundError
from tierctl.files import PLAIN
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.metadata.topic.open_topic import StoreFiles
from tierctl.model import ClusterIdentity, Uuid
from tierctl.storage.stores import open_store
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import ControlType, encode_batch
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, read_partition_metadata
from tierctl.wire.metadata.values import encode

from tests.metadata.events import started, update
from tests.metadata.topics import at, topic_in
from tests.support.faults import Failing, operations_of
from tests.support.kafka import KafkaRelease
from tests.wire.batches.samples import marker

VALUES = [encode(event) for number in range(5) for event in (started(number), update(number))]
TOPIC_ID = Uuid("h0muvYe_TpOMWkoQBim7pw")
NOW_MS = 1_700_000_000_000
LOG = "00000000000000000000.log"


def open_log(folder: Path, *, writable: bool = True, **more: object) -> MetadataTopic:
    return topic_in(
        folder,
        writable=writable,
        partition_count=3,
        clock_ms=lambda: NOW_MS,
        new_topic_id=lambda: TOPIC_ID,
        **more,  # type: ignore[arg-type]
    )


def values_of(
    log: MetadataTopic, partition: int, start: int = 0, end: int | None = None
) -> list[bytes | None]:
    until = log.end_offsets()[partition] if end is None else end
    return [value for chunk in log.read(partition, start, until) for value in chunk.values.to_pylist()]


def chunks_of(log: MetadataTopic, partition: int = 0) -> list[RecordChunk]:
    return list(log.read(partition, 0, log.end_offsets()[partition]))


def bad_of(log: MetadataTopic, partition: int = 0) -> list[tuple[int, int]]:
    return [(bad.offset, bad.next_offset) for chunk in chunks_of(log, partition) for bad in chunk.damage]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a metadata topic of 3 partitions with VALUES in partition 0."""
    log = open_log(tmp_path / "metadata")
    log.append([(0, value) for value in VALUES])
    log.close()
    return tmp_path / "metadata"


def segment(folder: Path, name: str = LOG, partition: int = 0) -> Path:
    return folder / f"__remote_log_metadata-{partition}" / name


class TestMaking:
    def test_default_is_fifty_partitions_as_a_broker_lays_them_out(self, tmp_path: Path) -> None:
        log = topic_in(tmp_path / "m", writable=True)
        assert log.partition_count == 50
        ids = set()
        for partition in range(50):
            inside = tmp_path / "m" / f"__remote_log_metadata-{partition}"
            ids.add(read_partition_metadata((inside / "partition.metadata").read_bytes()))
            assert read_leader_epoch_checkpoint((inside / "leader-epoch-checkpoint").read_bytes()) == (
                (0, 0),
            )
            assert (inside / LOG).stat().st_size == 0
        assert ids == {log.topic_id}

    def test_reading_a_missing_folder_makes_nothing(self, tmp_path: Path) -> None:
        log = topic_in(tmp_path / "m")
        assert (log.partition_count, log.topic_id) == (50, None)
        assert set(log.end_offsets().values()) == {0}
        assert list(log.read(7, 0, 0)) == []
        assert not (tmp_path / "m").exists()

    def test_an_interrupted_making_is_refused_by_readers_and_finished_by_a_writer(self, folder: Path) -> None:
        shutil.rmtree(folder)
        open_log(folder).close()
        shutil.rmtree(segment(folder).parent)
        with pytest.raises(CorruptInputError, match="none numbered 0"):
            open_log(folder, writable=False)
        log = open_log(folder)
        assert log.partition_count == 3
        assert log.topic_id == TOPIC_ID
        log.close()

    def test_a_making_that_fails_leaves_no_folder_with_which_a_broker_does_not_start(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "metadata"
        made = operations_of(lambda fs: open_log(path, fs=fs).close())
        for nth in range(made.index("rename", made.index("rename") + 1)):
            shutil.rmtree(path, ignore_errors=True)
            with pytest.raises(MetadataError, match="No space left"):
                open_log(path, fs=Failing(nth, errno.ENOSPC, lasts=True))
            assert not list(tmp_path.glob("*/*.tmp"))

    def test_a_missing_partition_with_data_around_it_is_never_made_up(self, folder: Path) -> None:
        for missing in (0, 1):
            copy = folder.with_name(f"without-{missing}")
            shutil.copytree(folder, copy)
            (copy / "__remote_log_metadata-2" / LOG).write_bytes(b"x")
            shutil.rmtree(segment(copy, partition=missing).parent)
            for writable in (False, True):
                with pytest.raises(CorruptInputError, match=f"none numbered {missing}"):
                    open_log(copy, writable=writable)

    def test_a_link_to_a_disk_that_is_not_mounted_is_no_missing_partition(self, folder: Path) -> None:
        """Of the last one it would otherwise change the number of partitions."""
        shutil.rmtree(segment(folder, partition=2).parent)
        (folder / "__remote_log_metadata-2").symlink_to(folder / "unmounted")
        with pytest.raises(MetadataError, match="metadata-2"), closing(open_log(folder)) as log:
            log.end_offsets()

    def test_rebuild_is_named_where_metadata_may_be_lost(self, folder: Path, tmp_path: Path) -> None:
        broker, empty, cut = tmp_path / "broker", tmp_path / "empty", folder
        for each in (broker, empty):
            each.mkdir()
        (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
        shutil.rmtree(segment(cut, partition=1).parent)
        lost = "lost, tierctl rebuild makes them again from the objects of the tier"
        cases = {
            broker: ("this is a broker's log directory", lost, "only for a new tier"),
            empty: ("expected a folder that contains", lost, "copy creates new ones for a new tier"),
            cut: ("put all partitions in one folder", lost),
        }
        for where, parts in cases.items():
            with pytest.raises((CorruptInputError, NotFoundError)) as e:
                FolderTopic(where, complete=True)
            assert [part for part in parts if part not in str(e.value.hint)] == []
        with pytest.raises(NotFoundError) as e:
            FolderTopic(Path("nothing"), files=StoreFiles(open_store(folder.as_uri())))
        assert e.value.hint == "expected a folder that contains __remote_log_metadata-N folders"


class TestIdentity:
    def test_ids_of_cluster_and_topic_in_a_folder_and_in_a_store(self, folder: Path) -> None:
        (folder / "meta.properties").write_text("node.id=7\nversion=1\ncluster.id=dGllcmN0bC10ZXN0cy0wMQ\n")
        identity = ClusterIdentity(cluster_id="dGllcmN0bC10ZXN0cy0wMQ", metadata_topic_id=TOPIC_ID)
        assert open_log(folder).identity() == identity
        in_store = FolderTopic(Path(), files=StoreFiles(open_store(folder.as_uri())))
        assert in_store.identity() == identity

    def test_an_unknown_id_is_none(self, folder: Path, tmp_path: Path) -> None:
        identity = open_log(folder).identity()
        assert identity == ClusterIdentity(cluster_id=None, metadata_topic_id=TOPIC_ID)
        nothing = ClusterIdentity(cluster_id=None, metadata_topic_id=None)
        assert topic_in(tmp_path / "missing").identity() == nothing
        assert open_topic(at(segment(folder))).identity() == nothing

    def test_a_damaged_file_is_named(self, folder: Path) -> None:
        (folder / "meta.properties").write_text("cluster.id=\\u12")
        with pytest.raises(CorruptInputError, match=r"line 1 of .*meta\.properties"):
            open_log(folder).identity()


class TestAppending:
    def test_offsets_and_reading_back(self, folder: Path) -> None:
        log = open_log(folder)
        assert log.append([(0, b"a"), (2, b"b"), (0, b"c")]) == [10, 0, 11]
        assert log.end_offsets() == {0: 12, 1: 0, 2: 1}
        assert values_of(log, 0, 9) == [VALUES[9], b"a", b"c"]
        assert values_of(log, 0, 3, 5) == VALUES[3:5]
        assert values_of(open_log(folder, writable=False), 2) == [b"b"]
        (chunk,) = log.read(0, 0, 12)
        assert chunk.offsets.tolist() == list(range(12))
        assert set(chunk.timestamps_ms.tolist()) == {NOW_MS}
        assert (chunk.next_offset, chunk.damage) == (12, ())
        log.close()

    def test_a_file_above_the_largest_offset_is_no_segment(self, folder: Path) -> None:
        before = open_log(folder, writable=False).end_offsets()
        segment(folder).with_name(f"{1 << 63:020d}.log").write_bytes(b"x")
        assert open_log(folder, writable=False).end_offsets() == before

    def test_a_reader_cannot_append(self, folder: Path) -> None:
        with pytest.raises(MetadataError, match="for reading only"):
            open_log(folder, writable=False).append([(0, b"a")])

    def test_rolls_at_segment_bytes(self, folder: Path) -> None:
        log = open_log(folder, segment_bytes=2000)
        for number in range(20):
            log.append([(0, b"%02d" % number * 100)])
        names = sorted(path.name for path in segment(folder).parent.glob("*.log"))
        assert len(names) > 2
        assert all(segment(folder, name).stat().st_size <= 2000 for name in names)
        expected = [*VALUES, *(b"%02d" % number * 100 for number in range(20))]
        assert values_of(log, 0) == expected
        assert values_of(open_log(folder, writable=False), 0, 17) == expected[17:]
        log.close()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
    def test_a_broker_of_another_user_can_write_what_root_makes(self, tmp_path: Path) -> None:
        """A broker opens the active segment for writing, and makes files in the folders of partitions."""
        folder = tmp_path / "data"
        folder.mkdir()
        os.chown(folder, 12345, 12346)
        with closing(open_log(folder, segment_bytes=2000)) as log:
            for number in range(20):
                log.append([(0, b"%02d" % number * 100)])
        made = [path for path in folder.rglob("*") if not path.name.endswith(".lock")]
        assert len({path for path in made if path.suffix == ".log"}) > 4
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12346)}

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
    def test_root_gives_away_no_file_to_which_a_link_leads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The owner of a folder can put a link in the place of what root has made there."""
        folder, own = tmp_path / "data", tmp_path / "own"
        folder.mkdir()
        own.touch()
        os.chown(folder, 12345, 12346)
        monkeypatch.setattr(Path, "mkdir", lambda path, *_mode: path.symlink_to(own))
        PLAIN.make_folder(folder / "made", like=folder)
        assert own.stat().st_uid == 0
        assert (folder / "made").lstat().st_uid == 12345

    def test_continues_a_brokers_log_in_its_latest_epoch(self, writable: Callable[[str], Path]) -> None:
        folder = writable("tiered-cluster/before")
        log = topic_in(folder, writable=True)
        assert log.partition_count == 5
        assert log.append([(0, VALUES[0])]) == [16]
        before, after = chunks_of(topic_in(folder))[0].values.to_pylist()[-2:]
        assert after == VALUES[0] != before
        data = segment(folder).read_bytes()
        # The batch's partition leader epoch, at byte 12 of its header.
        start = data.rindex(VALUES[0]) - 12 - 61
        head = data[data.index((16).to_bytes(8, "big"), start - 20) :]
        assert int.from_bytes(head[12:16], "big") == 2
        assert not segment(folder, "00000000000000000000.index").exists()
        assert not segment(folder, "00000000000000000000.timeindex").exists()
        assert segment(folder, "00000000000000000000.index", 2).exists()
        log.close()

    def test_a_log_without_epochs_begins_with_epoch_0(self, folder: Path) -> None:
        checkpoint = segment(folder, "leader-epoch-checkpoint")
        for content in (None, b"", b"0\n0\n"):
            checkpoint.unlink() if content is None else checkpoint.write_bytes(content)
            log = open_log(folder)
            (end,) = log.append([(0, b"a")])
            log.close()
            assert read_leader_epoch_checkpoint(checkpoint.read_bytes()) == ((0, end),)
            checkpoint.touch()


class TestOneWriter:
    def test_a_second_writer_is_locked_out_a_reader_is_not(self, folder: Path) -> None:
        first = open_log(folder)
        with pytest.raises(LockedError):
            open_log(folder)
        assert open_log(folder, writable=False).end_offsets()[0] == 10
        first.close()
        open_log(folder).close()


class TestWhatOthersWrite:
    def test_control_records_are_covered_but_not_returned(self, folder: Path) -> None:
        path, ended = segment(folder), marker(10, ControlType.COMMIT, 1)
        path.write_bytes(path.read_bytes() + ended + encode_batch([Record(11, NOW_MS, None, b"after")]))
        log = open_log(folder, writable=False)
        (chunk,) = chunks_of(log)
        assert chunk.offsets.tolist() == [*range(10), 11]
        assert (chunk.next_offset, chunk.damage) == (12, ())
        assert [(c.values.to_pylist(), c.next_offset) for c in log.read(0, 10, 11)] == [([], 11)]

    def test_compaction_is_told(self, folder: Path) -> None:
        path = segment(folder)
        sparse = encode_batch(
            [Record(12, NOW_MS, None, b"12"), Record(14, NOW_MS, None, b"14")], last_offset=15
        )
        later = encode_batch([Record(18, NOW_MS, None, b"18")])
        path.write_bytes(path.read_bytes() + sparse + later)
        log = open_log(folder, writable=False)
        assert bad_of(log) == [(10, 12), (13, 14), (15, 16), (16, 18)]
        assert values_of(log, 0, 10) == [b"12", b"14", b"18"]
        assert [[(b.offset, b.next_offset) for b in c.damage] for c in log.read(0, 13, 15)] == [[(13, 14)]]


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_reads_a_log_made_here_and_a_brokers_log_appended_to(
    folder: Path, writable: Callable[[str], Path], kafka: KafkaRelease
) -> None:
    brokers = writable("tiered-cluster/before")
    with closing(topic_in(brokers, writable=True)) as log:
        log.append([(0, value) for value in VALUES])
    files = f"{segment(folder)},{segment(brokers)}"
    made, appended = kafka.dump_log(files, "--remote-log-metadata-decoder").split("Dumping ")[1:]
    assert made.count("isvalid: true") == made.count("partitionLeaderEpoch: 0") == 10
    assert made.count("RemoteLogSegmentMetadata{") == made.count("RemoteLogSegmentMetadataUpdate{") == 5
    assert f"id={started(3).segment_id}" in made
    assert "Found non-consecutive offsets" not in made
    assert appended.count("isvalid: true") == 16 + 10
    assert appended.count("partitionLeaderEpoch: 2") == 6 + 10
