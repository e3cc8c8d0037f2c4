"""Rows as table, json, jsonl and csv: complete, escaped, and streamed."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.report import printable, render, render_object
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.render import View

FORMATS = ("table", "json", "jsonl", "csv")
HOSTILE = "\x1b[31mred\x9b2J\x07\u202eevil\u2028\r\n\t\x7f\ud800"


def made(names: Sequence[str], **kinds: Kind) -> Columns:
    """Return columns with these names, of type text except those in `kinds`."""
    fields = {name: Annotated[str, Field(kinds.get(name, Kind.TEXT), name), Shown(0)] for name in names}
    return Columns(
        TypedDict("Row", fields),
        name="made",
        title="Made",
        commands="made",
        noun="row",  # type: ignore[operator]
    )


def rendered(
    rows: Any, fmt: str, columns: Columns | None = None, view: View | None = None, **options: Any
) -> str:
    out = io.StringIO()
    names = [key for row in rows[:1] for key in row]
    render(rows, fmt, columns or made(names, partition=Kind.NUMBER), view or View(), stream=out, **options)
    return out.getvalue()


ROWS = [
    {"topic": "orders", "partition": 1, "ids": [[0, 5]], "raw": b"\x01\xff", "none": None, "flag": True},
    {"topic": "clicks", "partition": 20, "ids": [], "raw": b"", "none": None, "flag": False},
]


def test_every_format_says_the_same() -> None:
    as_json = json.loads(rendered(ROWS, "json"))
    assert as_json == [json.loads(line) for line in rendered(ROWS, "jsonl").splitlines()]
    assert as_json[0] == {
        "topic": "orders",
        "partition": 1,
        "ids": [[0, 5]],
        "raw": "01ff",
        "none": None,
        "flag": True,
    }
    assert next(csv.DictReader(io.StringIO(rendered(ROWS, "csv")))) == {
        "topic": "orders",
        "partition": "1",
        "ids": "[[0,5]]",
        "raw": "01ff",
        "none": "",
        "flag": "true",
    }
    assert rendered(ROWS, "table").splitlines() == [
        "topic   partition  ids      raw   none  flag",
        "orders          1  [[0,5]]  01ff        true",
        "clicks         20  []                   false",
    ]


@pytest.mark.parametrize(
    ("fmt", "text"), [("json", "[]\n"), ("jsonl", ""), ("csv", "a,b\n"), ("table", "a  b\n")]
)
def test_no_rows(fmt: str, text: str) -> None:
    assert rendered([], fmt, made(["a", "b"])) == text


@pytest.mark.parametrize("fmt", FORMATS)
def test_hostile_text_is_data(fmt: str) -> None:
    text = rendered([{"topic": HOSTILE, "partition": 1}], fmt)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "evil" in text
    assert text.count("\n") == {"table": 2, "csv": 2, "jsonl": 1, "json": 3}[fmt]


@given(st.text())
def test_printable_is_one_line_and_keeps_what_is_harmless(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown
    if text.isprintable() and not any("\ud800" <= c <= "\udfff" for c in text):
        assert shown.isascii() or len(shown) >= len(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("+SUM(A1)", "'+SUM(A1)"),
        ("@cmd", "'@cmd"),
        ("-2+3|calc", "'-2+3|calc"),
        ("-_EXPeli8S0a5wJiVzeI3m", "-_EXPeli8S0a5wJiVzeI3m"),
        ("plain", "plain"),
        ("\t=1", "\\t=1"),
    ],
)
def test_csv_keeps_spreadsheets_from_running_text(text: str, shown: str) -> None:
    assert list(csv.reader(io.StringIO(rendered([{"a": text}], "csv")))) == [["a"], [shown]]


def test_values_of_the_model_and_of_numpy() -> None:
    row = {
        "id": Uuid("2QZ5FAXaQrqgUzsReWnweA"),
        "state": RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        "number": np.int64(7),
        "pairs": ((1, 2),),
    }
    assert json.loads(rendered([row], "jsonl")) == {
        "id": "2QZ5FAXaQrqgUzsReWnweA",
        "state": "COPY_SEGMENT_FINISHED",
        "number": 7,
        "pairs": [[1, 2]],
    }
    assert rendered([row], "csv").splitlines()[1] == (
        '2QZ5FAXaQrqgUzsReWnweA,COPY_SEGMENT_FINISHED,7,"[[1,2]]"'
    )


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_are_streamed(fmt: str) -> None:
    """At most one page of rows is read before the first line is printed."""
    out = io.StringIO()
    taken = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal taken
        for taken in range(3000):
            if taken > 1100:
                assert out.tell()
            yield {"n": taken}

    render(rows(), fmt, made(["n"]), stream=out)
    assert taken == 2999


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_object(fmt: str) -> None:
    out = io.StringIO()
    render_object({"a": 1, "b": [HOSTILE]}, fmt, stream=out)
    text = out.getvalue()
    assert "1" in text
    assert "evil" in text
    if fmt == "json":
        assert json.loads(text) == {"a": 1, "b": [HOSTILE]}


@pytest.mark.parametrize("unit", ["a\x00", "\ud800x", "\u4e2d\u202e", "\\\\\n"])
def test_a_long_text_is_escaped_as_a_short_one(unit: str) -> None:
    text = unit * 400_000
    assert printable(text) == "".join(map(printable, unit)) * 400_000


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_that_is_written_in_pieces_says_the_same(fmt: str) -> None:
    """The long row has quotes and separators, and begins like a formula."""
    long = '=",\n\x00' * 14_000
    rows = [{"a": "x", "b": 'a "b", c'}, {"a": long, "b": None}, {"a": "y", "b": "z"}]
    text = rendered(rows, fmt)
    shown = long.replace("\n", "\\n").replace("\x00", "\\x00")
    if fmt == "csv":
        assert list(csv.reader(io.StringIO(text)))[1:] == [["x", 'a "b", c'], [f"'{shown}", ""], ["y", "z"]]
    elif fmt == "table":
        # Other rows are not padded to the length of the long one.
        header, first, line, last = text.splitlines()
        assert line.rstrip() == shown
        assert (header.split(), first.split(None, 1), last.split()) == (
            ["a", "b"],
            ["x", 'a "b", c'],
            ["y", "z"],
        )
        assert max(map(len, (header, first, last))) < 2100
    else:
        assert (
            [json.loads(each) for each in text.splitlines()] == rows
            if fmt == "jsonl"
            else json.loads(text) == rows
        )
