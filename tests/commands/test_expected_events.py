"""Whoever reads many events announces them first: interpreted loops would read the beginning of the log."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands, kernel
from tierctl.metadata.daily_changes import record_chunks
from tierctl.metadata.offset_repair import Held, first_missing
from tierctl.metadata.topic import METADATA_TOPIC, MetadataSplit
from tierctl.report.formatters.pages import Filter
from tierctl.spark.executors.rendered_text import Rendering, render_split
from tierctl.spark.sources.metadata_splits import event_tasks, read_task

from tests.metadata.topics import at, topic_in
from tests.spark.metadata_logs import batches, write_log

EVENTS = 10


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return how many events were handled before kernels were compiled, an entry for each time."""
    found: list[int] = []
    compiled = kernel.use_compiled

    def use_compiled() -> None:
        found.append(kernel._forms.announced)
        compiled()

    monkeypatch.setattr(kernel, "LARGE", EVENTS)
    monkeypatch.setattr(kernel, "use_compiled", use_compiled)
    kernel.use_interpreted()
    yield found
    kernel.use_interpreted()


def _read_all(folder: Path) -> None:
    with closing(topic_in(folder)) as topic:
        list(record_chunks(topic, topic.end_offsets()))


def _find_missing(folder: Path) -> None:
    with closing(topic_in(folder)) as topic:
        first_missing(topic, Held({}), (0, EVENTS))


def _format(folder: Path, **options: Any) -> None:
    list(commands.format_records(commands.FormatRequest(**options, style="kip")))


READERS: dict[str, Callable[[Path], object]] = {
    "format": lambda folder: _format(folder, metadata=str(folder)),
    "format-file": lambda folder: _format(folder, files=[_log(folder)]),
    "format-spark": lambda folder: render_split(
        Rendering(location=at(folder), spans={0: (0, EVENTS)}, style="kip", properties={}, chosen=Filter()),
        MetadataSplit(location=at(folder), metadata_partition=0, start_offset=0, end_offset=EVENTS),
    ),
    "data-source": lambda folder: [
        [*read_task(task)] for task in event_tasks(at(folder), {0: (0, EVENTS // 2), 1: (0, EVENTS // 2)})
    ],
    "whole-topic": _read_all,
    "offsets": _find_missing,
}


def _log(folder: Path) -> Path:
    return next((folder / f"{METADATA_TOPIC}-0").iterdir())


@pytest.mark.parametrize("reader", READERS)
def test_kernels_are_compiled_before_the_first_event(tmp_path: Path, counted: list[int], reader: str) -> None:
    pytest.importorskip("numba")
    for number in range(2):
        write_log(tmp_path, number, batches([None] * EVENTS))
    READERS[reader](tmp_path)
    assert counted[:1] == [0]
