"""Tables at a terminal: the columns that fit, units and colours."""

import io
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.checks.check import CHECKS
from tierctl.checks.findings import FINDINGS
from tierctl.commands.config import SETTINGS
from tierctl.commands.segments import SEGMENTS
from tierctl.commands.what_if import WHAT_IF
from tierctl.read.record_rows import RECORDS
from tierctl.report import render
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.render import View
from tierctl.report.table import bytes_text, fit, total

HOUR_MS = 3_600_000
NOW_MS = 1_795_300_000_000
SEGMENT = {
    "topic": "orders",
    "topic_id": "2QZ5FAXaQrqgUzsReWnweA",
    "partition": 3,
    "segment_id": "WXLMw9uDS32Q2fp63a9ugA",
    "start_offset": 1200,
    "end_offset": 2399,
    "broker_id": 2,
    "max_timestamp_ms": NOW_MS - 3 * HOUR_MS,
    "event_timestamp_ms": NOW_MS - 2 * HOUR_MS,
    "segment_leader_epochs": [[0, 1200]],
    "segment_size_in_bytes": 13_314_398_618,
    "custom_metadata": None,
    "state": "COPY_SEGMENT_FINISHED",
    "txn_index_empty": True,
}
FINDING = {
    "severity": "error",
    "check": "missing_object",
    "topic": "orders",
    "topic_id": "2QZ5FAXaQrqgUzsReWnweA",
    "partition": 3,
    "segment_id": "WXLMw9uDS32Q2fp63a9ugA",
    "start_offset": 1200,
    "end_offset": 2399,
    "key": "orders-3-2QZ5FAXaQrqgUzsReWnweA/00000000000000001200-WXLMw9uDS32Q2fp63a9ugA.log",
    "found": "the tier has no object of this finished segment: the log, 13314398618 bytes, can't be found",
    "fix": "look for it",
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TERM", "dumb")
    return lambda columns: monkeypatch.setenv("COLUMNS", str(columns))


def at_terminal(rows: list[Any], kind: Columns, **view: Any) -> list[str]:
    out = Terminal()
    render(rows, "table", kind, View(now_ms=NOW_MS, **view), stream=out)
    return out.getvalue().splitlines()


def left_out(rows: list[Any], kind: Columns) -> tuple[str, ...]:
    return render(rows, "table", kind, View(now_ms=NOW_MS), stream=Terminal()).dropped


def test_sizes_and_times_are_in_units_that_a_person_reads(width: Any) -> None:
    width(80)
    assert at_terminal([], SEGMENTS) == []
    header, row = at_terminal([SEGMENT | {"broker_id": None}], SEGMENTS)
    assert header.split() == ["topic", "partition", "start", "end", "size", "newest_record", "state"]
    assert re.split(" {2,}", row) == ["orders", "3", "1200", "2399", "12.4 GiB", "3 h ago", SEGMENT["state"]]


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize(
    ("row", "kind"), [(SEGMENT, SEGMENTS), (FINDING, FINDINGS)], ids=["segments", "findings"]
)
def test_lines_fit_and_the_most_important_columns_stay(
    columns: int, row: dict[str, Any], kind: Columns, width: Any
) -> None:
    width(columns)
    header, *lines = at_terminal([row], kind)
    assert max(map(len, (header, *lines))) <= columns
    ranks = kind.at_terminal
    headings = {kind.by_name[name].heading for name, rank in ranks.items() if rank == 0}
    assert headings - {*kind.notes} <= set(header.split())
    words = " ".join(" ".join(lines).split())
    assert all(row[name] in words for name in kind.notes)


@pytest.mark.parametrize(
    ("columns", "more"), [(60, set()), (100, {"start", "end"}), (160, {"partition", "size", "state"})]
)
def test_a_long_name_takes_no_other_column_away(columns: int, more: set[str], width: Any) -> None:
    """A topic's name has up to 249 characters; the lines of all other topics would have nothing else."""
    width(columns)
    topic = "a" * 200 + "z" * 49
    header, *lines = at_terminal([SEGMENT, SEGMENT | {"topic": topic}], SEGMENTS)
    assert {"topic", *more} <= set(header.split())
    assert max(map(len, (header, *lines))) <= columns
    shown = lines[1].split()[0]
    assert (shown[0], shown[-1], "…" in shown) == ("a", "z", True)
    assert columns == 60 or len(shown) >= 64


@pytest.mark.parametrize("columns", [80, 300])
def test_rows_share_the_notes_that_do_not_fit_beside_them(columns: int, width: Any) -> None:
    width(columns)
    rows = [FINDING | {"start_offset": start} for start in (0, 600)]
    rows += [FINDING | {"start_offset": 1200, "fix": "restore it"}]
    header, *lines = at_terminal(rows, FINDINGS)
    assert ("fix" in header.split()) == (columns == 300)
    at = [next(i for i, line in enumerate(lines) if f"  {start}  " in line) for start in (0, 600, 1200)]
    assert at[1] == at[0] + 1
    counts = [sum(text in line for line in lines) for text in ("look for it", "restore it")]
    assert counts == ([2, 1] if columns == 300 else [1, 1])
    if columns == 80:
        assert lines[at[1] + 1].startswith("    the tier has no object")
        assert lines[at[2] - 2 : at[2]] == ["    fix: look for it", ""]


def test_an_object_of_no_topic_is_named(width: Any) -> None:
    key = f"kafka-tiered-storage/orders-0-{'A' * 22}/{'0' * 10}"
    orphan = {
        "severity": "warning",
        "check": "orphan",
        "key": key,
        "found": "an object of 9 bytes",
        "fix": "h",
    }
    rows = [{**dict.fromkeys(FINDING), **orphan}, FINDING]
    width(80)
    lines = at_terminal(rows, FINDINGS)
    assert [line for line in lines if "key: " in line] == [f"    key: {key}"]
    assert "key" not in left_out(rows, FINDINGS)
    assert "key" in left_out([{**FINDING, "key": key}], FINDINGS)
    width(300)
    assert [key in line for line in at_terminal(rows, FINDINGS)] == [False, True, False]


def test_settings_have_their_origin(width: Any) -> None:
    width(80)
    long_name = "remote.log.manager.fetch.quota.window.size.seconds"
    default = {"scope": "broker", "setting": long_name, "value": "1", "source": "default", "place": None}
    named = {**default, "setting": "retention.ms", "topic": "orders", "place": "topics.properties:1"}
    assert at_terminal([default], SETTINGS)[1].split() == ["broker", long_name, "1", "default"]
    for line in at_terminal([default, {**named, "value": "5"}], SETTINGS)[2:]:
        assert {"orders", "retention.ms", "5", "topics.properties:1"} <= set(line.split())


def test_columns_that_were_asked_for_are_all_shown(width: Any) -> None:
    width(40)
    names = ("segment_id", "size", "max_timestamp_ms", "topic_id")
    header, row = at_terminal([SEGMENT], SEGMENTS, columns=names)
    assert header.split() == ["segment_id", "size", "newest_record", "topic_id"]
    assert row.split()[0] == SEGMENT["segment_id"]


def test_costs_below_a_cent_are_not_shown_as_none(width: Any) -> None:
    width(80)
    row = {"topic": "t", "now_cost": 0.004, "changed_cost": 0.0, "later_cost": 1234.5}
    _, line = at_terminal([row], WHAT_IF, columns=("topic", "now_cost", "changed_cost", "later_cost"))
    assert line.split() == ["t", "<", "0.01", "0.00", "1,234.50"]


def test_the_content_of_a_record_is_cut_before_its_place_is_left_out(width: Any) -> None:
    width(80)
    row = {
        "topic": "orders",
        "partition": 3,
        "offset": 10**9,
        "timestamp_ms": NOW_MS,
        "key": "k" * 300,
        "value": "a" * 500 + "z" * 500,
    }
    header, line = at_terminal([row], RECORDS)
    assert {"topic", "partition", "offset", "value"} <= set(header.split())
    assert len(line) <= 80
    assert re.search("a…z", line)
    render([row], "table", RECORDS, View(), stream=(out := io.StringIO()))
    assert row["value"] in out.getvalue()


def test_headers_of_any_size_take_little_memory(width: Any) -> None:
    width(80)
    header = {"key": "h", "value": "\x00" * (1 << 20), "value_encoding": "utf8"}
    rows = ({"topic": "orders", "partition": 3, "offset": n, "headers": [header]} for n in range(20))
    tracemalloc.start()
    try:
        render(rows, "table", RECORDS, View(), stream=(out := Terminal()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(out.getvalue().splitlines()) == 21
    assert peak < 40 << 20


def test_a_long_path_above_sentences_is_cut(width: Any) -> None:
    width(80)
    row = {"severity": "error", "check": "broker_file", "found": "m " * 60, "why": "w", "fix": "f"}
    for file, shown in (("/a/b.properties, line 7", "/a/b.properties, line 7"), (f"/a{'x' * 99}/b", "…")):
        first, *others = at_terminal([row | {"subject": file}], CHECKS)
        assert shown in first
        assert max(map(len, (first, *others))) <= 80


@pytest.mark.parametrize(("columns", "topic"), [(80, None), (120, "orders"), (400, None)])
def test_a_setting_has_its_commands_at_every_width(columns: int, topic: str | None, width: Any) -> None:
    """Rows of an option that has another value in some commands would look the same without them."""
    width(columns)
    row = {"scope": "option", "setting": "engine", "source": "default", "use": "u " * 60, "topic": None}
    rows = [
        row | {"value": "local", "command": "status, " * 30 + "fetch"},
        row | {"value": "spark", "command": "pipeline run"},
        row | {"value": "neither", "command": None, "topic": topic},
    ]
    lines = at_terminal(rows, SETTINGS)
    text = "\n".join(lines)
    places = [text.index(each) for each in ("local", "status", "fetch", "spark", "pipeline run", "neither")]
    assert places == sorted(places)
    assert "command" in text
    assert max(map(len, lines)) <= columns


def test_colours_follow_from_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = "\n".join(at_terminal([FINDING], FINDINGS))
    assert "\033[31merror\033[0m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = "\n".join(at_terminal([FINDING], FINDINGS))
    assert re.sub("\033\\[[0-9]+m", "", coloured) == plain


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (13_314_398_618, "12.4 GiB"),
        (1 << 63, "8.0 EiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert bytes_text(size_bytes) == text


COLUMNS = st.lists(
    st.tuples(st.sampled_from(Kind), st.integers(0, 9), st.integers(1, 250)), min_size=1, max_size=12
)


@given(COLUMNS, st.integers(20, 250))
def test_what_is_dropped_is_least_important(shape: list[tuple[Kind, int, int]], available: int) -> None:
    columns = [Column(name=str(i), kind=kind, meaning="", heading="") for i, (kind, _, _) in enumerate(shape)]
    ranks, natural = [rank for _, rank, _ in shape], [width for _, _, width in shape]
    fitted = fit(columns, ranks, natural, available)
    kept = [int(column.name) for column in fitted.columns]
    gone = [int(name) for name in fitted.dropped]
    assert sorted(kept + gone) == list(range(len(shape)))
    assert kept == sorted(kept)
    assert all(ranks[i] > 0 for i in gone)
    assert max((ranks[i] for i in kept), default=0) <= min((ranks[i] for i in gone), default=9)
    if total(fitted.widths) > available:
        assert all(ranks[i] == 0 for i in kept)
    if not gone and total(natural) <= available:
        assert list(fitted.widths) == natural
