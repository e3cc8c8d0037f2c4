"""The lines of a metadata log are the same for every split, also with damage; Spark is not needed."""

from pathlib import Path

import pytest
from tierctl.metadata.topic import cut, open_topic
from tierctl.model.location import TopicLocation
from tierctl.report.formatters.pages import Filter
from tierctl.report.formatters.sources import TopicRecords
from tierctl.spark.executors.rendered_events import Rendering, Spans, render
from tierctl.wire.metadata.values import encode

from tests.metadata.events import started
from tests.metadata.topics import topic_in
from tests.spark.executors.bulk import METADATA, Capture, damaged, within


def _lines(folder: Path, spans: Spans, records: int) -> list[tuple[str, bool]]:
    location = TopicLocation(uri=folder.as_uri())
    rendering = Rendering(location=location, style="kafka", properties={}, chosen=Filter())
    pages = [
        page for split in cut(location, spans, records_per_split=records) for page in render(rendering, split)
    ]
    return [(line, row in page.bad_rows) for page in pages for row, line in enumerate(page.lines)]


def _spans(folder: Path, start: int = 0) -> Spans:
    return TopicRecords(topic=open_topic(TopicLocation(uri=folder.as_uri())), start_offset=start).spans()


@pytest.mark.parametrize("start", [0, 5])
def test_damage_is_told_of_once(start: int, tmp_path: Path) -> None:
    spans = _spans(damaged(tmp_path), start)
    whole = _lines(tmp_path, spans, 1000)
    assert sum(is_bad for _, is_bad in whole) >= 3
    for records in (1, 2, 3, 5, 8):
        assert _lines(tmp_path, spans, records) == whole


def test_segments_that_are_gone(tmp_path: Path) -> None:
    topic = topic_in(tmp_path, writable=True, partition_count=1, segment_bytes=600)
    for number in range(20):
        topic.append([(0, encode(started(number)))])
    topic.close()
    segments = sorted(tmp_path.glob("*/*.log"))
    for gone in (segments[0], segments[3]):
        gone.unlink()
    spans = _spans(tmp_path)
    assert spans[0][0] > 0
    whole = _lines(tmp_path, spans, 1000)
    assert 0 < len(whole) < 20
    for records in (1, 2, 3):
        assert _lines(tmp_path, spans, records) == whole


@pytest.mark.parametrize("place", METADATA)
def test_captures(place: str, capture: Capture) -> None:
    folder = within(capture, place)
    spans = _spans(folder)
    assert _lines(folder, spans, 9) == _lines(folder, spans, 1000) != []
