"""Bytes by day, recent writers of a partition, and the entry of a cache file that serves an offset."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.metadata import daily_changes
from tierctl.metadata.cache_files import entry_rows, found_rows, partition_of
from tierctl.metadata.daily_changes import (
    DAY_MS,
    DailyChanges,
    DayChanges,
    others,
    read_daily_changes,
    recent_writers,
)
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.model import MetadataEvent, Uuid
from tierctl.model.events import StoredSegment
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.tier_state import TierState
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files import flatfile
from tierctl.wire.metadata.values import encode

from tests.conftest import DATA
from tests.metadata.events import FINISHED, TOPIC_ID, repeated_and_lost, started, update
from tests.metadata.topics import topic_in
from tests.plan.tier import PARTITION, advance, segment, segment_id

Row = dict[str, Any]
FILES = ("flat-named.flat", "flat-unnamed.flat", "kafka-3.6/remote_log_snapshot")


def spans(row: Row) -> Iterator[tuple[int, int, int]]:
    """Yield the leader epochs of a segment, each with its first and last offset."""
    pairs = row["segment_leader_epochs"]
    ends = [*(start - 1 for _, start in pairs[1:]), row["end_offset"]]
    yield from ((epoch, start, end) for (epoch, start), end in zip(pairs, ends, strict=True) if start <= end)


Span = tuple[int, int, int]
"""The first and last offset of a segment, and its event timestamp."""


def served(rows: list[Row]) -> RemoteLogMetadataCache:
    """Return the cache of a broker for which the finished segments of the last entries finished by time."""
    last: dict[str, Row] = {}
    for row in rows:
        last.pop(row["segment_id"], None)
        last[row["segment_id"]] = row
    finished = [row for row in last.values() if row["state"] == "COPY_SEGMENT_FINISHED"]
    state = TierState(read={0: 0})
    for row in sorted(finished, key=lambda row: row["event_timestamp_ms"]):
        epochs = [(epoch, start) for epoch, start in row["segment_leader_epochs"]]
        copied = segment(0, row["start_offset"], row["end_offset"], *epochs)
        advance(state, replace(copied, segment_id=Uuid(row["segment_id"])), FINISHED)
    part = state.partition(PARTITION)
    return RemoteLogMetadataCache.empty() if part is None else part.cache


def check_lookups(path: Path, asked: list[tuple[int, int]]) -> list[bool]:
    """Compare each lookup by leader epoch and offset with a broker's; return whether there is an entry."""
    rows = [row for row in entry_rows(path).rows if row.get("segment_id")]
    cache, last = served(rows), {row["segment_id"]: row for row in rows}
    answers = []
    for epoch, offset in asked:
        answer = cache.remote_log_segment_metadata(epoch, offset)
        found = list(found_rows(path, epoch=epoch, offset=offset, position=None).rows)
        assert found == ([] if answer is None else [last[str(answer.segment_id)]]), (epoch, offset)
        answers.append(answer is not None)
    return answers


@pytest.mark.parametrize("name", FILES)
def test_the_entry_is_the_one_that_a_broker_serves(name: str) -> None:
    path = DATA / "vectors" / name
    rows = [row for row in entry_rows(path).rows if row.get("segment_id")]
    answers = check_lookups(
        path, [(epoch, at) for row in rows[::9] for epoch, *ends in spans(row) for at in ends]
    )
    assert answers.count(True) > 3
    assert False in answers


_spans = st.lists(st.tuples(*[st.integers(0, 20)] * 3).map(lambda n: (n[0], n[0] + n[1], n[2])), max_size=6)


@given(_spans)
@example([(10, 90, 1), (5, 100, 2), (101, 200, 3)])
@example([(5, 100, 2), (10, 90, 1), (101, 200, 3)])
@example([(0, 99, 1), (50, 60, 2)])
@example([(0, 9, 1), (0, 5, 1)])
def test_copies_that_overlap_are_served_as_by_a_broker(copies: list[Span]) -> None:
    """In one epoch, or in two of which the second begins within each segment, or the first has no offset."""
    for later in (None, 0, 4):
        stored = [
            StoredSegment(
                segment_id=segment_id(number),
                start_offset=start,
                end_offset=end,
                leader_epoch=0,
                max_timestamp_ms=1,
                event_timestamp_ms=time_ms,
                segment_leader_epochs=((0, start), *([] if later is None else [(1, start + later)])),
                segment_size_in_bytes=1,
                state=FINISHED,
            )
            for number, (start, end, time_ms) in enumerate(copies)
        ]
        header = flatfile.FlatFileHeader(topic="orders", topic_id=TOPIC_ID, metadata_topic_offset=9)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "orders.flat"
            path.write_bytes(b"".join(flatfile.written(header, map(flatfile.encode_entry, stored))))
            edges = {at + n for first, last, _ in copies for at in (first, last) for n in (-1, 0, 1, 3, 4)}
            check_lookups(path, [(epoch, max(0, edge)) for edge in sorted(edges) for epoch in (0, 1)])


@pytest.mark.parametrize("name", FILES)
def test_every_entry_is_found_by_its_position_and_nothing_else_is(name: str) -> None:
    path = DATA / "vectors" / name
    rows = {row["position"]: row for row in entry_rows(path).rows}
    for position, row in rows.items():
        assert list(found_rows(path, epoch=None, offset=None, position=position).rows) == [row]
        assert not found_rows(path, epoch=None, offset=None, position=position + 3).rows


@pytest.mark.parametrize(
    ("number", "is_named"),
    [("0", True), ("12", True), (str(2**31 - 1), True), (str(2**31), False)]
    + [(number, False) for number in ("", "+1", "00", "01", "\u0661", "1\uff12", "1 ")],
)
def test_a_flat_file_is_named_by_a_number_as_tierctl_writes_it(number: str, is_named: bool) -> None:
    found = partition_of(f"orders-{number}-{TOPIC_ID}.rlmcache")
    assert (found is not None) == is_named
    assert found is None or (found.topic, str(found.partition)) == ("orders", number)


TODAY = 1_700_000_200_000 // DAY_MS


def a_chunk_per_record(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> Iterator[RecordChunk]:
    """Read the topic in many chunks, like a large topic."""
    for partition, end in end_offsets.items():
        for offset in range(end):
            yield from topic.read(partition, offset, offset + 1)


@pytest.mark.parametrize("is_cut", [False, True])
def test_each_state_of_a_segment_counts_once(
    is_cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_cut:
        monkeypatch.setattr(daily_changes, "record_chunks", a_chunk_per_record)
    topic = topic_in(tmp_path, writable=True)
    topic.append([(4, encode(event)) for event in repeated_and_lost()])
    topic.append([(4, b"no record")])
    found = read_daily_changes(topic, topic.end_offsets(), lambda _: True)
    day = DayChanges(copied_segments=2, copied_bytes=1001 + 1002, deleted_segments=1, deleted_bytes=1001)
    assert dict(found.days) == {("orders", TOPIC_ID, TODAY): day}
    assert found.unknown_segments == 1
    assert read_daily_changes(topic, topic.end_offsets(), lambda _: False) == DailyChanges()
    topic.close()


@pytest.mark.parametrize("before", [0, 600])
def test_recent_writers(tmp_path: Path, before: int) -> None:
    topic = topic_in(tmp_path, writable=True)
    old = [encode(replace(started(number), broker_id=5)) for number in range(before)]
    events = [replace(started(9000 + broker_id), broker_id=broker_id) for broker_id in (7, -1, 8)]
    topic.append([(3, value) for value in [*old, b"not an event", *map(encode, events)]])
    end = topic.end_offsets()[3]
    written_ms = next(iter(topic.read(3, end - 1, end))).timestamps_ms.tolist()[0]
    found, unusable = recent_writers(topic, 3, 0, end, written_ms - 60_000)
    assert (unusable is not None and unusable.metadata_offset) == before
    # The records were written just now, whatever times the events state.
    assert set(found) == {7, -1, 8} | ({5} if before else set())
    assert set(others(found, {-1, 5})) == {7, 8}
    assert recent_writers(topic, 3, 0, end, written_ms + 60_000).latest == {}
    later = replace(started(1), broker_id=6, event_timestamp_ms=written_ms + 120_000)
    topic.append([(3, encode(later))])
    assert recent_writers(topic, 3, 0, end + 1, written_ms + 60_000).latest == {6: later.event_timestamp_ms}
    assert recent_writers(topic, 4, 0, 0, 0) == ({}, None)
    topic.close()


@pytest.mark.parametrize(
    ("events", "segments", "unknown"),
    [
        (((4, started(1)), (4, started(1, partition=1)), (4, update(1)), (4, update(1, partition=1))), 2, 0),
        (((4, started(1)), (4, replace(update(1), topic="renamed")), (4, update(1))), 1, 1),
        (((4, started(1)), (4, update(1, partition=1))), 0, 1),
        (((0, started(1)), (2, update(1))), 1, 0),
    ],
    ids=["an id twice", "another name", "another partition", "a topic that got more partitions"],
)
def test_a_segment_is_one_of_its_user_partition(
    events: tuple[tuple[int, MetadataEvent], ...], segments: int, unknown: int, tmp_path: Path
) -> None:
    topic = topic_in(tmp_path, writable=True)
    topic.append([(number, encode(event)) for number, event in events])
    found = read_daily_changes(topic, topic.end_offsets(), lambda _: True)
    topic.close()
    assert sum(each.copied_segments for each in found.days.values()) == segments
    assert found.unknown_segments == unknown
