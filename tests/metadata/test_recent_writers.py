"""The brokers that wrote to a metadata partition recently."""

from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.metadata.daily_changes import others, recent_writers
from tierctl.wire.metadata.values import encode

from tests.metadata.events import started
from tests.metadata.topics import topic_in


@pytest.mark.parametrize("before", [0, 600])
def test_recent_writers(tmp_path: Path, before: int) -> None:
    topic = topic_in(tmp_path, writable=True)
    old = [encode(replace(started(number), broker_id=5)) for number in range(before)]
    events = [replace(started(9000 + broker_id), broker_id=broker_id) for broker_id in (7, -1, 8)]
    topic.append([(3, value) for value in [*old, b"not an event", *map(encode, events)]])
    end = topic.end_offsets()[3]
    written_ms = next(iter(topic.read(3, end - 1, end))).timestamps_ms.tolist()[0]
    found = recent_writers(topic, 3, 0, end, written_ms - 60_000)
    # The records were written just now, whatever times the events state.
    assert set(found) == {7, -1, 8} | ({5} if before else set())
    assert set(others(found, {-1, 5})) == {7, 8}
    assert recent_writers(topic, 3, 0, end, written_ms + 60_000) == {}
    later = replace(started(1), broker_id=6, event_timestamp_ms=written_ms + 120_000)
    topic.append([(3, encode(later))])
    assert recent_writers(topic, 3, 0, end + 1, written_ms + 60_000) == {6: later.event_timestamp_ms}
    assert recent_writers(topic, 4, 0, 0, 0) == {}
    topic.close()
