"""Pages have the lines of the scalar renderers, whatever the sizes of chunks, tasks and pages are."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, RemoteStorageError
from tierctl.report.formatters import pages as pages_module
from tierctl.report.formatters.pages import Filter, Page, Printer, render_ahead
from tierctl.report.formatters.records import Records, TextLines, load
from tierctl.report.table import printable
from tierctl.spark.executors.task import dumps, loads
from tierctl.wire.metadata.values import decode

from tests.support.amounts import TRIES_ALL, examples
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import columns, golden

ALL_FIELDS = {"print.all.event.value.fields": "true", "print.message.offset": "true"}
STYLES = [("kafka", {}), ("json", {}), ("kip", {}), ("kip", ALL_FIELDS)]
Values = list[bytes | None]


def encoded(values: Values, start: int) -> Records:
    return Records(
        metadata_partition=3,
        offsets=pa.array(range(start, start + len(values)), pa.int64()),
        timestamps_ms=pa.array([None if i % 3 == 0 else i for i in range(len(values))], pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def rendered(style: str, properties: dict[str, str], chunks: list[Values]) -> list[Page]:
    starts = [sum(map(len, chunks[:i])) for i in range(len(chunks))]
    printer = Printer(formatter=load(style, properties), chosen=Filter())
    return list(render_ahead(printer, map(encoded, chunks, starts)))


def numbered(pages: list[Page]) -> list[tuple[str, bool]]:
    """Return each line, and whether its record is unreadable."""
    return [(line, row in page.bad_rows) for page in pages for row, line in enumerate(page.lines)]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "_LINES_PER_PAGE", 3)
    monkeypatch.setattr(pages_module, "_RECORDS_PER_TASK", 7)


def kafka_line(value: bytes | None, offset: int) -> tuple[str, bool]:
    head = f"partition: 3, offset: {offset}, "
    try:
        return f"{head}value: {None if value is None else to_string(decode(value))}".replace(
            "value: None", "value: null"
        ), False
    except CorruptInputError as error:
        shown, rest = (value or b"")[:1024].hex(), len(value or b"") - 1024
        more = f"...({rest} more bytes)" if rest > 0 else ""
        return f"{head}error: {printable(str(error))}, bytes: {shown}{more}", True


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(columns(), max_size=3))
def test_kafka_lines_are_those_of_the_scalar_renderer(small_pages: None, chunks: list[Values]) -> None:
    values = [value for chunk in chunks for value in chunk]
    got = numbered(rendered("kafka", {}, chunks))
    expected = [kafka_line(value, offset) for offset, value in enumerate(values)]
    # `to_string` prints a topic's name unescaped.
    assert [(printable(line), bad) for line, bad in got] == [(printable(line), bad) for line, bad in expected]


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(chunks=st.lists(columns(), max_size=3))
def test_a_record_has_the_same_line_alone(small_pages: None, chunks: list[Values]) -> None:
    for style, properties in STYLES:
        formatter = load(style, properties)
        got = [line for page in rendered(style, properties, chunks) for line in page.lines]
        assert len(got) == sum(map(len, chunks))
        for i, chunk in enumerate(chunks):
            start = sum(map(len, chunks[:i]))
            records = encoded(chunk, start)
            for row in range(0, len(chunk), 1 if TRIES_ALL else 4):
                assert [got[start + row]] == list(formatter.lines(records.slice(row, 1))), style


def test_pages_are_bounded(small_pages: None) -> None:
    pages = rendered("kafka", {}, [list(golden("kafka")[:20]), [], list(golden("kip405")[:5])])
    assert [len(page.lines) for page in pages] == [3, 3, 1, 3, 3, 1, 3, 3, 3, 2]


def test_errors_of_slices_keep_their_rows() -> None:
    records = Records(
        metadata_partition=0,
        offsets=pa.array(range(9), pa.int64()),
        timestamps_ms=pa.nulls(9, pa.int64()),
        values=pa.nulls(9, pa.binary()),
        errors={2: "two", 5: "five"},
    )
    assert [records.slice(start, 3).errors for start in (0, 3, 6)] == [{2: "two"}, {2: "five"}, {}]


def test_an_error_of_the_source_comes_after_the_lines_before_it() -> None:
    def failing() -> Iterator[Records]:
        for start in range(4):
            yield encoded(list(golden("kafka")[:2]), 2 * start)
        raise RemoteStorageError("gone")

    printer = Printer(formatter=load("kafka", {}), chosen=Filter())
    pages = render_ahead(printer, failing())
    got = [line for page in islice(pages, 4) for line in page.lines]
    with pytest.raises(RemoteStorageError):
        next(pages)
    assert [line.split(", ")[1] for line in got] == [f"offset: {offset}" for offset in range(8)]


# A line may contain a newline: that of a separator of --style kip.
LINES = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["", "\n", "a\nb", "é", "\U0001f600"])))


@given(LINES)
def test_lines_keep_their_text(lines: list[str]) -> None:
    made = TextLines.of(lines)
    assert (len(made), list(made)) == (len(lines), lines)
    assert str(made.text, "utf-8") == "".join(f"{line}\n" for line in lines)


@given(LINES, st.integers(0, 6), st.integers(0, 6))
def test_slices_and_first_lines(lines: list[str], start: int, count: int) -> None:
    array = pa.array([f"{line}\n" for line in lines], pa.string())
    made = TextLines.of_array(array.slice(start, 4)).first(count)
    assert list(made) == lines[start : start + 4][:count]
    assert str(made.text, "utf-8") == "".join(f"{line}\n" for line in made)
    assert list(loads(dumps(made))) == list(made)
    assert bytes(loads(dumps(made)).text) == bytes(made.text)


def test_a_surrogate_is_escaped() -> None:
    assert bytes(TextLines.of(["a\udc80b"]).text) == b"a\\udc80b\n"
