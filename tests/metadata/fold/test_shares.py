"""A metadata partition that is divided by user partition has the state of a fold in one task."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.metadata.parallel_fold import (
    FoldResult,
    FoldTask,
    PartitionRange,
    divided_ranges,
    fold_share,
    is_divisible,
    joined_shares,
    pieces_of,
    run_fold_task,
)
from tierctl.model import MetadataEvent, Uuid
from tierctl.state import sizes
from tierctl.state.fold import fold
from tierctl.state.sizes import sizes_by_group
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.wire.batches.segment_file import DamagedRange, RecordChunk
from tierctl.wire.metadata.decode_columns import KnownLayouts

from tests.state.folding import assert_same, encodable, table_of, values_of
from tests.state.histories import finished, histories, regular_histories, started
from tests.support.amounts import examples

PARTITIONS = 9
Values = Sequence[bytes | None]


class Log:
    """Metadata partition 0 in memory, read in chunks of a few records."""

    def __init__(self, values: Values, first: int = 0, damage: tuple[DamagedRange, ...] = ()) -> None:
        self._values, self._first, self._damage = values, first, damage

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        for begin in range(start_offset, end_offset, 7):
            end = min(begin + 7, end_offset)
            values = pa.array(self._values[begin - self._first : end - self._first], pa.binary())
            yield RecordChunk(
                partition,
                np.arange(begin, end),
                np.zeros(end - begin, np.int64),
                values,
                end,
                tuple(each for each in self._damage if begin <= each.offset < end),
            )


def task_of(values: Values, *, first: int = 0, count: int = 1) -> FoldTask:
    whole = PartitionRange(metadata_partition=0, begin=first, end=first + len(values))
    return FoldTask(ranges=(whole,), partition_count=count, state=TierState())


def by_shares(log: Log, task: FoldTask, shares: int, records: int) -> list[FoldResult | None]:
    """Return the results of the shares, each as another process would return it."""
    pieces: list[list[bytes]] = [[] for _ in range(shares)]
    known = KnownLayouts()
    for each in divided_ranges(task, shares=shares, records=records):
        for piece in pieces_of(log, each, known):
            pieces[piece.share].append(piece.data)
    found = (fold_share(pickle.loads(pickle.dumps(task)), own) for own in pieces)
    return [pickle.loads(pickle.dumps(result)) for result in found]


def divided(log: Log, task: FoldTask, shares: int, records: int) -> TierState:
    results = [result for result in by_shares(log, task, shares, records) if result is not None]
    assert len(results) == shares
    return joined_shares(task, results).state


def whole(log: Log, task: FoldTask) -> TierState:
    return run_fold_task(log, pickle.loads(pickle.dumps(task))).state


@st.composite
def _mixed(draw: st.DrawFn) -> list[bytes | None]:
    """Return mixed events of several user partitions; some share segment ids, some values are invalid."""
    random = Random(draw(st.integers(0, 1 << 32)))
    queues = []
    for number in range(draw(st.integers(1, 4))):
        topic_id = Uuid.from_bytes(bytes([draw(st.integers(1, 2))] * 16))
        own = [e for e in draw(st.one_of(histories(12), regular_histories(15))) if encodable(e)]
        own = [e for e in own if not getattr(e, "nested_tags", ()) and not e.unknown_tags]
        queues.append([replace(e, topic_id=topic_id, partition=number) for e in own])
        if draw(st.booleans()):
            apart = bytes([number + 1])
            queues[-1] = [
                replace(e, segment_id=Uuid.from_bytes(apart + e.segment_id.bytes[1:])) for e in queues[-1]
            ]
    events: list[MetadataEvent] = []
    while any(queues):
        events.append(random.choice([queue for queue in queues if queue]).pop(0))
    values: list[bytes | None] = list(values_of(events))
    for bad in draw(st.lists(st.sampled_from([None, b"\0nonsense", b""]), max_size=2)):
        values.insert(random.randint(0, len(values)), bad)
    return values


@examples(30)
@given(_mixed(), st.integers(1, 5))
def test_sizes_without_segments(values: list[bytes | None], shares: int) -> None:
    values = [value for value in values if value] or [None]
    log, task = Log(values), task_of(values)
    results = by_shares(log, replace(task, sizes_only=True), shares, 7)
    if None in results:
        return
    found, expected = (
        joined_shares(task, [each for each in results if each is not None]).state,
        whole(log, task),
    )
    parts = [list(state) for state in (found, expected)]
    assert [part.topic_id_partition for part in parts[0]] == [part.topic_id_partition for part in parts[1]]
    sizes = [
        sizes_by_group(state, list(enumerate(own)), len(own))
        for state, own in zip((found, expected), parts, strict=True)
    ]
    assert sizes[0].counts.tolist() == sizes[1].counts.tolist()
    assert sizes[0].sizes_bytes.tolist() == sizes[1].sizes_bytes.tolist()
    assert [part.segment_count for part in parts[0]] == [part.segment_count for part in parts[1]]


@examples(60)
@given(_mixed(), _mixed(), st.integers(1, 5), st.integers(1, 40))
def test_any_histories(values: list[bytes | None], later: list[bytes], shares: int, records: int) -> None:
    values = values or [None]
    log, task = Log(values), task_of(values)
    state, expected = divided(log, task, shares, records), whole(log, task)
    for each in (state, expected):
        assert each.read == {0: len(values)}
    assert state.quarantined == expected.quarantined or [
        (q.metadata_offset, q.error.message) for q in state.quarantined
    ] == [(q.metadata_offset, q.error.message) for q in expected.quarantined]
    assert_same(state, expected)
    for each in (state, expected):
        fold(
            table_of(later),
            each,
            metadata_partition=0,
            metadata_offsets=range(len(values), len(values) + len(later)),
        )
    assert_same(state, expected)


def events_of(partitions: int, segments: int = 3) -> list[bytes | None]:
    """Return events of copied segments of many user partitions, one partition after the other."""
    events = [
        replace(event, partition=partition, segment_id=Uuid.from_bytes(bytes([partition, at] * 8)))
        for at in range(segments)
        for partition in range(partitions)
        for event in finished(0, 10 * at, 10 * at + 9)
    ]
    return list(values_of(events))


def test_each_share_has_some_of_the_user_partitions() -> None:
    values = events_of(PARTITIONS)
    task = task_of(values)
    results = by_shares(Log(values), task, 3, 20)
    counts = [len(result.state.partitions) for result in results if result is not None]
    assert len(counts) == 3
    assert sum(counts) == PARTITIONS
    assert max(counts) < PARTITIONS


def test_one_segment_id_in_two_shares() -> None:
    """Such user partitions are kept out of the columns, where a segment id is unique."""
    values = list(values_of([replace(e, partition=p) for p in range(PARTITIONS) for e in finished(1, 0, 9)]))
    log, task = Log(values), task_of(values)
    state = divided(log, task, 4, 5)
    assert_same(state, whole(log, task))
    assert len(state.tables[0].irregular) > 1


def test_events_that_retention_deleted_are_missing_once() -> None:
    values = events_of(2)
    state = divided(Log(values, first=40), task_of(values, first=40), 3, 4)
    assert state.missing == [MissingEvents(0, 0, 40)]
    assert state.read == {0: 40 + len(values)}


def test_of_too_many_anomalies_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ANOMALIES_KEPT", 5)
    values = [value for number, value in enumerate(events_of(PARTITIONS)) if number % 2]
    state = divided(Log(values), task_of(values), 3, 10)
    assert [a.metadata_offset for a in state.anomalies] == [0, 1, 2, 3, 4]
    assert state.anomaly_count == len(values)


def test_unreadable_records_are_not_divided() -> None:
    values = events_of(2)
    error = CorruptInputError("batch", expected="a CRC", found="another")
    log = Log(values, damage=(DamagedRange(8, 9, error),))
    assert None in by_shares(log, task_of(values), 2, 5)


def test_misplaced_events_are_not_divided() -> None:
    values = list(values_of([replace(started(1, 0, 9), partition=p) for p in range(PARTITIONS)]))
    assert None in by_shares(Log(values), task_of(values, count=2), 2, 5)


def test_what_is_known_already_is_not_divided() -> None:
    values = events_of(1)
    task = task_of(values)
    assert is_divisible(task)
    assert not is_divisible(replace(task, ranges=task.ranges * 2))
    assert not is_divisible(replace(task, state=whole(Log(values), task)))
