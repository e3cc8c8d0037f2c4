"""TopicBasedRemoteLogMetadataManager over the log on disk."""

from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.errors import LockedError, MetadataError, RemoteResourceNotFound, UsageError
from tierctl.metadata.manager import RemoteLogMetadataManager, TopicBasedRemoteLogMetadataManager
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model import MetadataEvent, RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.wire.metadata.values import metadata_partition

from tests.metadata.events import FINISHED, TOPIC_ID, partition_delete, segment_id, started, update
from tests.metadata.topics import manager_at, topic_in

S = RemoteLogSegmentState
P = RemotePartitionDeleteState
TIP = TopicIdPartition(TOPIC_ID, "orders", 0)


def manager_on(folder: Path, *, partitions: int = 5) -> TopicBasedRemoteLogMetadataManager:
    return TopicBasedRemoteLogMetadataManager(topic_in(folder, writable=True, partition_count=partitions))


def cache_of(manager: RemoteLogMetadataManager) -> RemoteLogMetadataCache:
    part = manager.state.partition(TIP)
    assert part is not None
    return part.cache


def test_publishing_is_visible_when_it_returns_and_to_the_next_run(tmp_path: Path) -> None:
    manager: RemoteLogMetadataManager = manager_on(tmp_path)
    manager.publish([started(0)])
    assert [s.state for s in manager.state.segments_of(TIP)] == [S.COPY_SEGMENT_STARTED]
    assert cache_of(manager).highest_offset_for_epoch(0) in {None, -1}
    manager.publish([update(0)])
    manager.publish([started(1), update(1), started(2)])
    cache = cache_of(manager)
    found = cache.remote_log_segment_metadata(0, 150)
    assert found is not None
    assert (found.segment_id, found.state) == (segment_id(1), FINISHED)
    assert cache.remote_log_segment_metadata(0, 250) is None
    assert cache.highest_offset_for_epoch(0) == 199
    assert [s.start_offset for s in cache.list_remote_log_segments(0)] == [0, 100, 200]
    sizes = [s.segment_size_in_bytes for s in cache.list_remote_log_segments(0)]
    assert sizes == [1000, 1001, 1002]
    manager.refresh()
    manager.close()

    again = manager_on(tmp_path)
    again.refresh()
    assert again.state.segments_of(TIP) == manager.state.segments_of(TIP)
    assert again.state.read == manager.state.read
    partition = metadata_partition(TOPIC_ID, 0, 5)
    assert again.state.read == {n: 5 if n == partition else 0 for n in range(5)}
    again.close()


def test_an_unknown_partition_has_nothing(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    assert manager.state.partition(TIP) is None
    assert manager.state.segments_of(TIP) == []
    manager.publish([])
    manager.close()


ALLOWED: dict[str, list[MetadataEvent]] = {
    "whole life": [
        started(0),
        update(0),
        update(0, S.DELETE_SEGMENT_STARTED),
        update(0, S.DELETE_SEGMENT_FINISHED),
    ],
    "failed copy": [started(0), update(0, S.DELETE_SEGMENT_STARTED), update(0, S.DELETE_SEGMENT_FINISHED)],
    "repeats": [started(0), started(0), update(0), update(0)],
    "partition": [partition_delete(state) for state in P],
}
_MARKED, _FINISHED = P.DELETE_PARTITION_MARKED, P.DELETE_PARTITION_FINISHED
REFUSED: dict[str, tuple[list[MetadataEvent], type[Exception]]] = {
    "finishing an unknown one": ([update(0)], RemoteResourceNotFound),
    "deleting an unknown one": ([update(0, S.DELETE_SEGMENT_STARTED)], RemoteResourceNotFound),
    "another partition's": ([started(0), update(0, partition=1)], RemoteResourceNotFound),
    "added in a later state": ([replace(started(0), state=FINISHED)], MetadataError),
    "back to the start": ([started(0), update(0, S.COPY_SEGMENT_STARTED)], MetadataError),
    "deletion not started": ([started(0), update(0), update(0, S.DELETE_SEGMENT_FINISHED)], MetadataError),
    "finished after delete": ([started(0), update(0, S.DELETE_SEGMENT_STARTED), update(0)], MetadataError),
    "partition not marked": ([partition_delete(P.DELETE_PARTITION_STARTED)], MetadataError),
    "partition skips": ([partition_delete(_MARKED), partition_delete(_FINISHED)], MetadataError),
}


@pytest.mark.parametrize("one_wave", [True, False])
class TestTransitions:
    @pytest.mark.parametrize("events", ALLOWED.values(), ids=ALLOWED)
    def test_allowed(self, tmp_path: Path, events: list[MetadataEvent], one_wave: bool) -> None:
        manager = manager_on(tmp_path)
        for wave in [events] if one_wave else [[event] for event in events]:
            manager.publish(wave)
        assert sum(manager.state.read.values()) == len(events)
        manager.close()

    @pytest.mark.parametrize(("events", "error"), REFUSED.values(), ids=REFUSED)
    def test_refused_before_anything_is_published(
        self, tmp_path: Path, events: list[MetadataEvent], error: type[Exception], one_wave: bool
    ) -> None:
        manager = manager_on(tmp_path)
        if not one_wave:
            for event in events[:-1]:
                manager.publish([event])
        before = dict(manager.state.read)
        with pytest.raises(error):
            manager.publish(events if one_wave else events[-1:])
        manager.refresh()
        assert sum(manager.state.read.values()) == sum(before.values())
        manager.close()


def test_the_present_state_counts_not_the_one_at_opening(tmp_path: Path) -> None:
    first = manager_on(tmp_path)
    first.publish([started(0), update(0)])
    first.close()
    second = manager_on(tmp_path)
    second.publish([update(0, S.DELETE_SEGMENT_STARTED)])
    second.close()


def test_the_last_check_before_the_append_sees_what_was_read(tmp_path: Path) -> None:
    """The check is called after the metadata was read; its error prevents the append."""
    manager = manager_on(tmp_path)
    manager.publish([started(0)])
    before = dict(manager.refresh().read)

    def refuse() -> None:
        raise LockedError("the lease is lost")

    with pytest.raises(LockedError):
        manager.publish([update(0)], before_append=refuse)
    manager.refresh()
    assert manager.state.read == before
    with pytest.raises(RemoteResourceNotFound):
        manager.publish([update(7)], before_append=refuse)
    manager.close()


def test_events_not_read_back_stop_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_on(tmp_path)
    topic = manager._topic
    assert isinstance(topic, FolderTopic)
    real = topic.append
    spoiled = lambda records: real([(p, value[:-1] + b"?") for p, value in records])  # noqa: E731
    monkeypatch.setattr(topic, "append", spoiled)
    with pytest.raises(MetadataError, match="not read back"):
        manager.publish([started(0)])
    manager.close()


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("kafka://host:9092/topic", "not a metadata topic"),
        ("kafka://[::1", "not a metadata topic"),
        ("file://host/dir", "not a metadata topic"),
        ("dir", "not a metadata topic"),
        ("file:", "not a metadata topic"),
        ("kafka://nowhere", "'nowhere' is no host:port"),
        ("kafka://", "no bootstrap servers"),
        ("kafka://u:pw@a:1", "contains a user name"),
        ("redis://a:1", "unknown scheme 'redis'"),
    ],
)
def test_other_uris_are_refused(uri: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        manager_at(uri)
    assert "pw" not in caught.value.message
