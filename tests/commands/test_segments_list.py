"""The list of segments is made while it is read: a tier may have millions."""

from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tierctl import commands
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.state.table import SegmentTable

from tests.metadata.events import OTHER_ID, TOPIC_ID, started
from tests.metadata.topics import manager_at


def test_segments_are_made_in_order_when_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was created again has two user partitions of the same name and number."""
    events = [
        started(number, partition=number % 3, topic=topic, topic_id=topic_id)
        for number, (topic, topic_id) in enumerate([("orders", TOPIC_ID), ("orders", OTHER_ID)] * 20)
    ]
    Random(1).shuffle(events)
    with closing(manager_at(tmp_path / "metadata", writable=True)) as manager:
        manager.publish(events)
    made: list[int] = []
    metadata = SegmentTable.metadata

    def counted(table: SegmentTable, row: int) -> RemoteLogSegmentMetadata:
        made.append(row)
        return metadata(table, row)

    monkeypatch.setattr(SegmentTable, "metadata", counted)
    rows = commands.segments(commands.SegmentsRequest(metadata=str(tmp_path / "metadata"))).rows
    in_order = sorted(events, key=lambda each: (each.partition, each.start_offset))
    assert next(iter(rows)) == in_order[0]
    assert len(made) < len(events) // 2
    assert list(rows) == in_order
    assert rows[-1] == in_order[-1]
    assert len(rows) == len(events)
