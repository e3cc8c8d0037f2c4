"""Use cases that only read, called from Python: typed rows, streams, and messages to a Progress."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from tierctl import commands
from tierctl.errors import ExitCode
from tierctl.report.results import Stream

Where = dict[str, str]


@pytest.fixture
def where(capture: Callable[[str], Path]) -> Where:
    root = capture("tiered-cluster")
    return {"metadata": str(root / "before"), "remote": str(root / "before-remote")}


def test_records_stream_and_a_caller_may_stop(where: Where) -> None:
    request = commands.FetchRequest(**where, topic=["orders"], partition=[0])
    result = commands.fetch(request)
    assert isinstance(result, commands.RecordRows)
    with result:
        first = next(iter(result))
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 0, 0)
    assert list(result) == []


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
