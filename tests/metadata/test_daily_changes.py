"""Bytes by day: each state of a segment counts once, and unknown facts are left out."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tierctl.metadata import daily_changes
from tierctl.metadata.daily_changes import DAY_MS, DailyChanges, DayChanges, read_daily_changes
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.values import encode

from tests.metadata.events import TOPIC_ID, repeated_and_lost
from tests.metadata.topics import topic_in

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
