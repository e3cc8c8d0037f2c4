"""Metadata partitions that are folded separately and joined have the state of one sequential fold."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.parallel_fold import FoldResult, FoldTask, Kept, run_fold_task
from tierctl.metadata.state_dir import StateDirectory
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import dialect_of
from tierctl.state import tier_state
from tierctl.state.tier_state import MissingEvents, TierState, sizes_by_group
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.metadata.events import TOPIC_ID, started, update
from tests.metadata.pictures import picture
from tests.metadata.topics import topic_in
from tests.state.histories import ORDERS, histories
from tests.state.histories import started as copy_started
from tests.support.amounts import examples

COUNT = 4
Logs = dict[int, list[bytes]]


class Apart:
    """An engine that folds pickled copies, as another process would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pieces: list[tuple[int, ...]] = []

    def __call__(self, pieces: Sequence[FoldTask]) -> Iterator[FoldResult]:
        for piece in pieces:
            self.pieces.append(tuple(span.metadata_partition for span in piece.ranges))
            topic = topic_in(self._folder, partition_count=COUNT)
            yield pickle.loads(pickle.dumps(run_fold_task(topic, pickle.loads(pickle.dumps(piece)))))


def write(folder: Path, logs: Logs) -> None:
    topic = topic_in(folder, writable=True, partition_count=COUNT)
    topic.append([(partition, value) for partition, values in logs.items() for value in values])
    topic.close()


def manager_on(
    folder: Path, state: Path | None, bulk: Apart | None, *, kept: Kept = Kept.SEGMENTS
) -> TopicBasedRemoteLogMetadataManager:
    topic = topic_in(folder, partition_count=COUNT)
    state_dir = None if state is None else StateDirectory(state)
    return TopicBasedRemoteLogMetadataManager(topic, state_dir=state_dir, fold_runner=bulk, kept=kept)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@st.composite
def _logs(draw: st.DrawFn, *, at_home: bool) -> Logs:
    """Return events of a few user partitions, each in its own metadata partition or in any of them."""
    logs: Logs = {n: [] for n in range(COUNT)}
    for number in range(draw(st.integers(1, 3))):
        topic_id = Uuid.from_bytes(bytes([number] * 16))
        for event in draw(histories(10)):
            home = metadata_partition(topic_id, 1, COUNT)
            where = home if at_home else draw(st.sampled_from([home, 0, 3]))
            logs[where].append(_value(event, topic_id, draw(st.integers(0, 19))))
    return logs


def _value(event: MetadataEvent, topic_id: Uuid, luck: int) -> bytes:
    mine = replace(event, topic_id=topic_id)
    return b"\0nonsense" if luck == 0 else encode(mine, dialect_of(mine))


_FIRST, _SECOND = (Uuid.from_bytes(bytes([number] * 16)) for number in (1, 2))
# A later run finds events of a user partition that another metadata partition has had so far.
_MOVED = [
    {0: [_value(copy_started(1, 0, 9), _FIRST, 1)], 2: [_value(copy_started(2, 10, 19), _SECOND, 1)]},
    {0: [_value(copy_started(3, 20, 29), _SECOND, 1)]},
]


@examples(15)
@example(_MOVED, True)
@given(st.lists(st.one_of(_logs(at_home=True), _logs(at_home=False)), min_size=2, max_size=2), st.booleans())
def test_equal_states(rounds: list[Logs], keeps: bool) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        whole, apart = folder / "whole", folder / "apart"
        for logs in rounds:
            write(folder / "topic", logs)
            one = manager_on(folder / "topic", whole if keeps else None, None)
            other = manager_on(folder / "topic", apart if keeps else None, Apart(folder / "topic"))
            assert picture(other.refresh()) == picture(one.refresh())
            one.close()
            other.close()
        if keeps:
            assert files_in(apart) == files_in(whole)


def sizes_of(state: TierState) -> dict[str, list[list[int]]]:
    """The counts and sizes of each user partition."""
    parts = list(state)
    sizes = sizes_by_group(state, list(enumerate(parts)), len(parts))
    return {
        str(part.topic_id_partition): [sizes.counts[at].tolist(), sizes.sizes_bytes[at].tolist()]
        for at, part in enumerate(parts)
    }


@examples(15)
@given(st.one_of(_logs(at_home=True), _logs(at_home=False)))
def test_sizes_without_segments(logs: Logs) -> None:
    """Where only sizes are kept, all else of the state is as it was; segments are not missing silently."""
    facts = ("segment_count", "last_event_offset", "lowest_start_offset", "delete_state", "is_to_remove")
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, logs)
        whole = manager_on(folder, None, None).refresh()
        reduced = manager_on(folder, None, Apart(folder), kept=Kept.SIZES).refresh()
        assert sizes_of(reduced) == sizes_of(whole)
        for one, other in zip(whole, reduced, strict=True):
            assert one.topic_id_partition == other.topic_id_partition
            assert [getattr(one, fact) for fact in facts] == [getattr(other, fact) for fact in facts]
            for question in (lambda part: list(part.segments), lambda part: part.cache.rows):
                with pytest.raises(AttributeError):
                    question(other)
        assert (whole.read, whole.anomaly_count) == (reduced.read, reduced.anomaly_count)
        assert list(map(str, whole.quarantined)) == list(map(str, reduced.quarantined))


def _facts(state: TierState) -> dict[str, object]:
    """Return the facts about the segments of each user partition that are kept without them."""
    found: dict[str, object] = {}
    for part in state.by_metadata_partition():
        segments = part.segments
        found[str(part.topic_id_partition)] = (
            [segments.count_in(each) for each in RemoteLogSegmentState],
            [part.segment_count, part.finished_count, part.failed_copies, part.delete_state],
            [segments.finished_range(), segments.finished_times_ms(), segments.newest_event_ms()],
            segments.latest_epoch(),
        )
    return found


def _segments(state: TierState) -> Iterator[tuple[TopicIdPartition, list[RemoteLogSegmentMetadata]]]:
    """Answer with all segments of each user partition."""
    for part in state:
        yield part.topic_id_partition, list(part.cache.list_remote_log_segments())


@examples(15)
@given(st.one_of(_logs(at_home=True), _logs(at_home=False)))
def test_facts_here_and_segments_elsewhere(logs: Logs) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, logs)
        whole = manager_on(folder, None, None).refresh()
        manager = manager_on(folder, None, Apart(folder), kept=Kept.FACTS)
        reduced = manager.refresh()
        assert _facts(reduced) == _facts(whole)
        assert sizes_of(reduced) == sizes_of(whole)
        assert list(reduced.map_in_order(_segments)) == list(whole.map_in_order(_segments))
        assert list(map(str, reduced.quarantined)) == list(map(str, whole.quarantined))
        for part in reduced:
            with pytest.raises(AttributeError):
                part.get(Uuid.from_bytes(bytes(16)))
            with pytest.raises(AttributeError):
                part.cache.highest_offset_for_epoch(0)
        assert manager.refresh() is reduced


def test_copies_that_were_begun_again_are_facts(tmp_path: Path) -> None:
    home = metadata_partition(ORDERS.topic_id, ORDERS.partition, COUNT)
    write(tmp_path, {home: [encode(copy_started(number, 0, 99)) for number in (1, 2, 3)]})
    manager = manager_on(tmp_path, None, Apart(tmp_path), kept=Kept.FACTS)
    failed = manager.refresh().partitions[ORDERS.key].failed_copies
    assert failed == manager_on(tmp_path, None, None).refresh().partitions[ORDERS.key].failed_copies
    assert failed is not None
    assert failed.attempts == 2


def test_facts_after_new_events(tmp_path: Path) -> None:
    home = metadata_partition(TOPIC_ID, 0, COUNT)
    write(tmp_path, {home: [encode(started(0))], (home + 1) % COUNT: [encode(started(0, partition=1))]})
    runner = Apart(tmp_path)
    manager = manager_on(tmp_path, None, runner, kept=Kept.FACTS)
    before = manager.refresh()
    write(tmp_path, {home: [encode(update(0))]})
    after = manager.refresh()
    key = (TOPIC_ID, 0)
    states = []
    for state in (before, after):
        runner.pieces.clear()
        [(_, [segment])] = state.map_in_order(_segments, [key])
        assert runner.pieces == [(home,)]
        states.append((segment.state, state.partitions[key].finished_count))
    begun, finished, *_ = RemoteLogSegmentState
    assert states == [(begun, 0), (finished, 1)]


def test_user_partitions_in_two_places_are_read_together(tmp_path: Path) -> None:
    home = metadata_partition(TOPIC_ID, 0, COUNT)
    stray = (home + 1) % COUNT
    first, then = sorted([home, stray])
    write(tmp_path, {first: [encode(started(0))], then: [encode(update(0))]})
    bulk = Apart(tmp_path)
    manager = manager_on(tmp_path, None, bulk)
    state = manager.refresh()
    assert bulk.pieces == [(first,), (then,), (first, then)]
    assert picture(state) == picture(manager_on(tmp_path, None, None).refresh())
    assert {q.metadata_partition for q in state.quarantined} == {stray}


def test_only_what_is_new_is_read_apart_and_later_nothing(tmp_path: Path) -> None:
    write(tmp_path, {0: [encode(started(0))], 2: [encode(started(1, partition=1))]})
    bulk = Apart(tmp_path)
    manager = manager_on(tmp_path, None, bulk)
    manager.refresh()
    assert bulk.pieces == [(0,), (2,)]
    write(tmp_path, {1: [encode(started(2))]})
    manager.refresh()
    assert bulk.pieces == [(0,), (2,)]
    assert manager.state.read == {0: 1, 1: 1, 2: 1, 3: 0}


def test_a_head_that_is_gone_is_missing_in_both(tmp_path: Path) -> None:
    """Also in a metadata partition without new records, for which no task is sent."""
    folder = tmp_path / "topic"
    write(folder, {n: [encode(started(i, partition=n)) for i in range(4)] for n in (0, 2, 3)})
    starts = "".join(f"__remote_log_metadata {n} {start}\n" for n, start in ((0, 3), (2, 4)))
    (folder / "log-start-offset-checkpoint").write_text(f"0\n2\n{starts}")
    for kept in (None, "state"):
        one = manager_on(folder, kept and tmp_path / "one", None)
        other = manager_on(folder, kept and tmp_path / "other", Apart(folder))
        state = other.refresh()
        assert state.missing == [MissingEvents(0, 0, 3), MissingEvents(2, 0, 4)]
        assert picture(state) == picture(one.refresh())
        one.close()
        other.close()
    write(folder, {0: [encode(started(9 + i)) for i in range(9)]})
    bulk = Apart(folder)
    assert manager_on(folder, tmp_path / "other", bulk).refresh().missing == state.missing
    assert bulk.pieces == [(0,)]


def test_of_too_many_anomalies_the_same_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_state, "ANOMALIES_KEPT", 5)
    write(tmp_path, {n: [encode(update(i)) for i in range(3)] for n in range(COUNT)})
    state = manager_on(tmp_path, None, Apart(tmp_path)).refresh()
    assert [a.metadata_partition for a in state.anomalies] == [0, 0, 0, 1, 1]
    assert state.anomaly_count == 12
    assert picture(state) == picture(manager_on(tmp_path, None, None).refresh())
