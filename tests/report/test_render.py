"""Rows to table, json, jsonl and csv: nothing lost, nothing obeyed, nothing kept in memory."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.report import printable, render, render_object

FORMATS = ("table", "json", "jsonl", "csv")
HOSTILE = "\x1b[31mred\x9b2J\x07\u202eevil\u2028\r\n\t\x7f\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rendered(rows: Any, fmt: str, *args: Any, **options: Any) -> str:
    out = io.StringIO()
    render(rows, fmt, *args, stream=out, **options)
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
    assert rendered([], fmt, ("a", "b")) == text


@pytest.mark.parametrize("fmt", FORMATS)
def test_hostile_text_is_data(fmt: str) -> None:
    text = rendered([{"topic": HOSTILE, HOSTILE: 1}], fmt)
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


def test_ascii_stays_as_it_is() -> None:
    text = "".join(map(chr, range(32, 127)))
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
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


def test_csv_numbers_are_not_touched() -> None:
    assert rendered([{"a": -1, "b": -2.5}], "csv") == "a,b\n-1,-2.5\n"


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
    """At most a page is taken before the first line is out."""
    out = io.StringIO()
    taken = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal taken
        for taken in range(3000):
            if taken > 1100:
                assert out.tell()
            yield {"n": taken}

    render(rows(), fmt, stream=out)
    assert taken == 2999


def test_table_columns_narrow_tables_only() -> None:
    for fmt in ("json", "jsonl", "csv"):
        assert "raw" in rendered(ROWS, fmt, tuple(ROWS[0]), table_columns=("topic",))
    assert rendered(ROWS, "table", table_columns=("topic",)).split() == ["topic", "orders", "clicks"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_object(fmt: str) -> None:
    out = io.StringIO()
    render_object({"a": 1, "b": [HOSTILE]}, fmt, stream=out)
    text = out.getvalue()
    assert "1" in text
    assert "evil" in text
    if fmt == "json":
        assert json.loads(text) == {"a": 1, "b": [HOSTILE]}


WIDE = [
    {"segment_id": "WXLMw9uDS32Q2fp63a9ugA", "segment_size_in_bytes": 17, "reason": "too old by far, " * 4},
    {"segment_id": "frhhXlTgT861Vsw_kSDCIw", "segment_size_in_bytes": 1234567, "reason": "short"},
]


def on_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    render(WIDE, "table", stream=out)
    return out.getvalue()


@pytest.mark.parametrize("columns", [60, 70, 80, 100, 200])
def test_a_terminal_gets_what_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers and sentences are folded, ids and numbers stay whole, no word is lost."""
    lines = on_terminal(columns, monkeypatch).splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).replace("_", " ").split()
    for row in WIDE:
        assert sum(word == "far," for word in words) == 4
        assert any(
            str(row["segment_id"]) in line and str(row["segment_size_in_bytes"]) in line for line in lines
        )


@pytest.mark.parametrize("columns", [10, 30, 50])
def test_a_terminal_too_narrow_is_left_to_wrap(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(columns, monkeypatch).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("WXLMw9uDS32Q2fp63a9ugA")
    assert lines[1].endswith("too old by far,")
