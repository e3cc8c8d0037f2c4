"""Use cases that only read, called from Python: typed rows, streams, and messages to a Progress."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from tierctl import commands
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.progress import SilentProgress
from tierctl.report.results import Stream

Where = dict[str, str]


@pytest.fixture
def where(capture: Callable[[str], Path]) -> Where:
    root = capture("tiered-cluster")
    return {"metadata": str(root / "before"), "remote": str(root / "before-remote")}


def test_segments_are_typed_and_sorted(where: Where) -> None:
    result = commands.segments(commands.SegmentsRequest(**where, topic=["orders"]))
    found = [row for row in result.rows if isinstance(row, RemoteLogSegmentMetadata)]
    assert len(found) == len(result.rows) > 3
    order = [(segment.partition, segment.start_offset) for segment in found]
    assert order == sorted(order)
    sizes = commands.segments(commands.SegmentsRequest(**where, topic=["orders"], sizes=True)).rows
    assert [row.topic for row in sizes if isinstance(row, commands.TopicSize)] == ["orders"]


def test_records_stream_and_a_caller_may_stop(where: Where) -> None:
    request = commands.FetchRequest(**where, topic=["orders"], partition=[0])
    result = commands.fetch(request)
    assert isinstance(result, commands.RecordRows)
    with result:
        first = next(iter(result))
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 0, 0)
    assert list(result) == []


def test_a_missing_topic_is_found_by_reading(where: Where) -> None:
    stream = commands.verify(commands.VerifyRequest(**where, topic=["oders"]))
    with pytest.raises(NotFoundError, match='unknown topic "oders"'):
        list(stream)


def test_verify_reports_notes_to_its_caller(where: Where, capfd: pytest.CaptureFixture[str]) -> None:
    progress = SilentProgress()
    stream = commands.verify(commands.VerifyRequest(metadata=where["metadata"]), progress)
    assert (list(stream), stream.exit_code) == ([], ExitCode.OK)
    assert progress.notes == ["without --remote no object is examined"]
    assert capfd.readouterr() == ("", "")


def test_format_reports_bad_records_to_its_caller(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "values"
    file.write_text("ff\n")
    progress = SilentProgress()
    pages = commands.format_records(commands.FormatRequest(files=[file], input_kind="hex"), progress)
    lines = [line for page in pages for line in page.lines]
    assert len(lines) == 1
    assert (pages.exit_code, progress.lines) == (ExitCode.CORRUPT, ["1 record could not be read"])
    assert capfd.readouterr() == ("", "")


def test_contradicting_fields_are_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="--epoch needs --offset"):
        commands.segments(commands.SegmentsRequest(epoch=1))
    with pytest.raises(UsageError, match="both state where to begin"):
        commands.fetch(commands.FetchRequest(offset="5", from_time_ms=0))
    with pytest.raises(UsageError, match="nothing to read"):
        commands.format_records(commands.FormatRequest())


def test_a_stream_has_its_exit_code_at_the_end_and_closes_early() -> None:
    closed: list[str] = []

    def items() -> Generator[int, None, ExitCode]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")
        return ExitCode.PARTIAL

    stream = Stream(items())
    assert (list(stream), stream.exit_code, closed) == ([1, 2], ExitCode.PARTIAL, ["closed"])
    with Stream(items()) as stopped:
        assert next(iter(stopped)) == 1
    assert (stopped.exit_code, closed) == (ExitCode.OK, ["closed"] * 2)
