"""Lines of a metadata log are the same however it is cut, damaged or not; no Spark is needed to see it."""

from pathlib import Path

import pytest
from tierctl.metadata.partition_log import PartitionLog
from tierctl.report.formatters.choice import Filter
from tierctl.spark.format import Rendering, Spans, render
from tierctl.spark.metadata_split import TopicLocation, cut

from tests.spark.bulk import METADATA, Capture, damaged, within


def _lines(folder: Path, spans: Spans, records: int) -> list[tuple[str, bool]]:
    location = TopicLocation(uri=folder.as_uri())
    rendering = Rendering(location=location, style="kafka", properties={}, chosen=Filter())
    pages = [
        page for split in cut(location, spans, records_per_split=records) for page in render(rendering, split)
    ]
    return [(line, row in page.bad_rows) for page in pages for row, line in enumerate(page.lines)]


def _spans(folder: Path, start: int = 0) -> Spans:
    folders = sorted(folder.glob("__remote_log_metadata-*"))
    logs = [PartitionLog(each, int(each.name.rpartition("-")[2])) for each in folders]
    return {log.partition: (start, log.end_offset()) for log in logs}


@pytest.mark.parametrize("start", [0, 5])
def test_damage_is_told_of_once(start: int, tmp_path: Path) -> None:
    spans = _spans(damaged(tmp_path), start)
    whole = _lines(tmp_path, spans, 1000)
    assert sum(is_bad for _, is_bad in whole) >= 3
    for records in (1, 2, 3, 5, 8):
        assert _lines(tmp_path, spans, records) == whole


@pytest.mark.parametrize("place", METADATA)
def test_captures(place: str, capture: Capture) -> None:
    folder = within(capture, place)
    spans = _spans(folder)
    assert _lines(folder, spans, 9) == _lines(folder, spans, 1000) != []
