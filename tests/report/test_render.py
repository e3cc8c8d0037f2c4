"""Rows as table, json, jsonl and csv; --columns, --sort, --limit and --no-header; messages at a terminal."""

import codecs
import csv
import io
import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.cli.app import leaves
from tierctl.cli.docs.write import kinds_of_rows
from tierctl.commands.segments import TOPIC_SIZES
from tierctl.errors import UsageError
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.report import bars, printable, render, render_object
from tierctl.report import console as console_module
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.console import Console
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


def test_printable_escapes_what_unicode_says_controls_or_formats_text() -> None:
    names = {char: unicodedata.category(char) for char in map(chr, range(sys.maxunicode + 1))}
    escaped = {char for char, name in names.items() if name not in {"Cn", "Co"} and printable(char) != char}
    assert escaped == {char for char, name in names.items() if name in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert all(codecs.decode(printable(char), "unicode_escape") == char for char in escaped)


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
    assert "evil" in out.getvalue()
    if fmt == "json":
        assert json.loads(out.getvalue()) == {"a": 1, "b": [HOSTILE]}


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


VIEWED = [
    {"topic": "b", "topic_id": "B", "partitions": 1, "segments": 7, "log_bytes": 10, "objects": None},
    {"topic": "a", "topic_id": "A", "partitions": 2, "segments": 7, "log_bytes": 30, "objects": 2},
    {"topic": "c", "topic_id": "C", "partitions": 3, "segments": 1, "log_bytes": 20, "objects": 9},
]


def printed(fmt: str, **view: Any) -> str:
    out = io.StringIO()
    render(VIEWED, fmt, TOPIC_SIZES, View(**view), stream=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ([], "bac"),
        (["-topic"], "cba"),
        (["-segments", "-log_bytes"], "abc"),
        (["size"], "bca"),
        (["objects"], "acb"),
        (["-objects"], "cab"),
    ],
)
def test_rows_are_sorted(sort: list[str], order: str) -> None:
    """Null is last in both directions, and the order is the same in every format."""
    assert "".join(json.loads(line)["topic"] for line in printed("jsonl", sort=sort).splitlines()) == order
    assert "".join(row["topic"] for row in json.loads(printed("json", sort=sort))) == order
    assert "".join(row["topic"] for row in csv.DictReader(io.StringIO(printed("csv", sort=sort)))) == order
    assert "".join(line[0] for line in printed("table", sort=sort).splitlines()[1:]) == order


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_VALUES = st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.lists(_VALUES | st.builds(Path, st.just("x")) | st.builds(np.int64, st.integers(-9, 9))))
def test_values_of_every_type_can_be_sorted(values: list[Any]) -> None:
    """As dictionaries have no order of their own, it is that of their JSON."""
    rows = [{"x": value} for value in values]
    for sort in ("x", "-x"):
        texts = rendered(rows, "jsonl", made(["x"]), View(sort=(sort,))).splitlines()
        assert sorted(texts) == sorted(rendered(rows, "jsonl", made(["x"])).splitlines())
        nulls = values.count(None)
        assert texts[len(texts) - nulls :] == ['{"x": null}'] * nulls


@given(st.lists(st.integers()) | st.lists(st.text()) | st.lists(st.lists(st.integers())))
def test_values_of_one_type_have_their_own_order(values: list[Any]) -> None:
    rows = [{"x": value} for value in values]
    found = json.loads(rendered(rows, "json", made(["x"]), View(sort=("x",))))
    assert [row["x"] for row in found] == sorted(values)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_error_between_rows_ends_the_array(count: int) -> None:
    """Without a row there is no array: a command that is refused prints nothing."""

    def rows() -> Iterator[dict[str, Any]]:
        yield from ROWS[:count]
        raise UsageError("no more")

    out = io.StringIO()
    with pytest.raises(UsageError):
        render(rows(), "json", made(list(ROWS[0])), stream=out)
    printed = out.getvalue()
    assert ([row["topic"] for row in json.loads(printed)] if count else printed) == (
        [row["topic"] for row in ROWS[:count]] or ""
    )


def test_columns_are_those_asked_for() -> None:
    view = {"columns": ["log_bytes", "topic"]}
    assert json.loads(printed("json", **view))[0] == {"log_bytes": 10, "topic": "b"}
    assert printed("csv", **view).splitlines()[:2] == ["log_bytes,topic", "10,b"]
    assert printed("table", **view).splitlines()[:2] == ["log_bytes  topic", "       10  b"]


def test_a_limit_prints_fewer_rows_and_counts_them_all() -> None:
    out = io.StringIO()
    shown = render(iter(VIEWED), "jsonl", TOPIC_SIZES, View(limit=1), stream=out)
    assert (out.getvalue().count("\n"), shown.rows) == (1, 3)


@pytest.mark.parametrize("fmt", ["table", "csv"])
def test_no_header(fmt: str) -> None:
    assert printed(fmt, no_header=True).splitlines()[0].split(",")[0].split()[0] == "b"


@pytest.mark.parametrize("view", [{"columns": ["sizes"]}, {"sort": ["-sizes"]}])
def test_an_unknown_column_is_refused(view: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no column 'sizes'") as raised:
        View(**view).check(TOPIC_SIZES)
    assert "log_bytes" in str(raised.value.hint)


KINDS = list(kinds_of_rows())
TYPES = {"string": (str, Path), "integer": (int,), "number": (float,), "boolean": (bool,), "array": (list,)}


@pytest.mark.parametrize("columns", KINDS, ids=lambda columns: columns.name)
def test_descriptions_are_consistent(columns: Columns) -> None:
    assert set(columns.in_table) <= set(columns.names)
    assert set(columns.at_terminal) <= set(columns.names)
    assert set(columns.terminal) <= set(columns.at_terminal)
    assert min(columns.at_terminal.values()) == 0
    named = {
        *columns.below,
        *columns.notes,
        *columns.subjects,
        *columns.substitutes,
        columns.size,
    }
    assert columns.word in {None, *columns.names} or hasattr(columns.row, str(columns.word))
    assert named - {None} <= set(columns.names)
    assert {*columns.subjects.values(), *columns.substitutes.values()} <= set(columns.names)
    headings = [column.heading for column in columns.all]
    assert len({*headings, *columns.names}) == len({*columns.names}) + sum(
        column.heading not in columns.names for column in columns.all
    )
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize("columns", KINDS, ids=lambda columns: columns.name)
def test_fields_have_the_types_of_their_kinds(columns: Columns) -> None:
    for name, hint in get_type_hints(columns.row).items():
        if name in columns.by_name:
            kinds = [get_origin(each) or each for each in get_args(hint) or (hint,)]
            kinds = [get_origin(hint)] if get_origin(hint) in {list, tuple} else kinds
            expected = TYPES[columns.by_name[name].kind.json_type]
            assert all(issubclass(kind, expected) for kind in kinds if kind is not NoneType), name


def test_every_command_with_columns_states_its_rows() -> None:
    without = [
        words
        for words, command in leaves()
        if any("--columns" in option.opts for option in command.options)
        and not getattr(command.callback, "rows", ())
    ]
    assert without == []


SETTINGS = "remote.log.copy.disable=true,local.retention.ms=-2,local.retention.bytes=-2"
COMMAND = f"kafka-configs.sh --alter --entity-name orders --add-config {SETTINGS}"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_command_is_one_line_that_can_be_copied(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    console = Console()
    console.say(f"disable copying: {COMMAND}")
    console.command(COMMAND)
    *said, command = capsys.readouterr().err.splitlines()
    assert (len(said) > 1) is is_terminal
    assert command == COMMAND


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    events: list[object] = []

    @contextmanager
    def amount_bar(title: str, *, unit: str, total: int | None) -> Iterator[object]:
        events.append((title, unit, total))
        yield events.append
        events.append("closed")

    monkeypatch.setattr(bars, "amount_bar", amount_bar)
    return events


def test_amounts_before_the_bar_appears_are_counted_too(shown: list[object]) -> None:
    with console_module.LateBar("reading", unit="events", total=9) as bar:
        bar.advance(2)
        bar.advance(3)
        assert shown == []
        bar._show()
        bar.advance(4)
    assert shown == [("reading", "events", 9), 5, 4, "closed"]


def test_work_that_is_over_shows_nothing(shown: list[object]) -> None:
    with console_module.LateBar("reading", unit="events", total=None) as bar:
        bar.advance(1)
    bar._show()
    assert shown == []


@pytest.mark.parametrize(
    ("terminals", "prints", "is_shown"),
    [
        ((True, False), True, True),
        ((True, True), True, False),
        ((False, True), False, False),
    ],
)
def test_bars_are_for_terminals(
    terminals: tuple[bool, bool],
    prints: bool,
    is_shown: bool,
    shown: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console_module, "DELAY_S", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminals[0], raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminals[1], raising=False)
    console = Console(prints_meanwhile=prints)
    with console.bar("outer", unit="files", total=1) as advance, console.bar("inner", unit="files") as inner:
        inner(1)
        if is_shown:
            bar = advance.__self__  # type: ignore[attr-defined]
            bar._timer.join()
    assert [event[0] for event in shown if isinstance(event, tuple)] == (["outer"] if is_shown else [])
