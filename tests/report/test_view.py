"""--columns, --sort, --limit and --no-header: the same in every format."""

import csv
import io
import json
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from tierctl.cli.app import leaves
from tierctl.cli.docs.write import kinds_of_rows
from tierctl.commands.segments import TOPIC_SIZES
from tierctl.errors import UsageError
from tierctl.report import render
from tierctl.report.columns import Columns
from tierctl.report.render import View

ROWS = [
    {"topic": "b", "topic_id": "B", "partitions": 1, "segments": 7, "log_bytes": 10, "objects": None},
    {"topic": "a", "topic_id": "A", "partitions": 2, "segments": 7, "log_bytes": 30, "objects": 2},
    {"topic": "c", "topic_id": "C", "partitions": 3, "segments": 1, "log_bytes": 20, "objects": 9},
]


def printed(fmt: str, **view: Any) -> str:
    out = io.StringIO()
    render(ROWS, fmt, TOPIC_SIZES, View(**view), stream=out)
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


def test_columns_are_those_asked_for() -> None:
    view = {"columns": ["log_bytes", "topic"]}
    assert json.loads(printed("json", **view))[0] == {"log_bytes": 10, "topic": "b"}
    assert printed("csv", **view).splitlines()[:2] == ["log_bytes,topic", "10,b"]
    assert printed("table", **view).splitlines()[:2] == ["log_bytes  topic", "       10  b"]


def test_a_limit_prints_fewer_rows_and_counts_them_all() -> None:
    out = io.StringIO()
    shown = render(iter(ROWS), "jsonl", TOPIC_SIZES, View(limit=1), stream=out)
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
        columns.word,
        columns.size,
    }
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
