"""Times and durations as operators type them and as they are printed, and reports of long waits."""

import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import UsageError
from tierctl.model import times
from tierctl.model.progress import Progress, SilentProgress, Waits
from tierctl.model.times import (
    TIME_FORMS,
    TimeForm,
    duration_text,
    iso_utc,
    parse_duration_ms,
    parse_duration_s,
    parse_time_ms,
    time_text,
)
from tierctl.report.console import Console

NOW_MS = 1_795_269_600_000
HOUR_MS = 3_600_000


HUGE = ("999999999999999w", "1653439153w4d", "999999999999999d1ms")
"""Durations of more than 18 digits in milliseconds."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "system_clock_ms", lambda: NOW_MS)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("0", 0),
        ("1795269600000", NOW_MS),
        ("-1", -1),
        ("2026-11-21T14:00:00Z", NOW_MS),
        ("2026-11-21T14:00:00", NOW_MS),
        ("2026-11-21 15:00+01:00", NOW_MS),
        ("2026-11-21", NOW_MS - 14 * HOUR_MS),
        ("now", NOW_MS),
        ("-2h", NOW_MS - 2 * HOUR_MS),
        ("2h", NOW_MS - 2 * HOUR_MS),
        ("3d", NOW_MS - 72 * HOUR_MS),
        ("+1d12h", NOW_MS + 36 * HOUR_MS),
        ("1w", NOW_MS - 168 * HOUR_MS),
        ("90s", NOW_MS - 90_000),
        ("250ms", NOW_MS - 250),
    ],
)
def test_times_that_are_accepted(text: str, at_ms: int) -> None:
    assert parse_time_ms(text) == at_ms


@pytest.mark.parametrize(
    "text", ["", "noon", "2h ago", "h", "1.5h", "٣d", "--2h", "2 h", *HUGE, "+999999999999999w"]
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(UsageError, match="not a time") as raised:
        parse_time_ms(text)
    assert raised.value.hint == f"expected {TIME_FORMS}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "1500", "0", "0.5", "-2h", "h", "1.5h", "1h 30m", "tomorrow", *HUGE),
        *("P", "PT", "P1DT", "P1M", "PT1H1D"),
    ],
)
def test_other_texts_are_no_durations(text: str) -> None:
    for parse in (parse_duration_ms, parse_duration_s):
        with pytest.raises(UsageError, match="not a duration"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("500ms", 500),
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("PT2H", 7_200_000),
        ("P3D", 259_200_000),
        ("P1W", 604_800_000),
        ("P1DT1H1M1.5S", 90_061_500),
        ("PT0,25S", 250),
    ],
)
def test_durations_that_are_accepted(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert parse_duration_s(text) == duration_ms / 1000


@given(
    st.from_regex(
        r"[+-]?([0-9]{1,15}(ms|[smhdw])){1,3}", fullmatch=True, alphabet=st.characters(codec="ascii")
    )
)
def test_a_relative_time_is_a_number_of_64_bits_or_refused(text: str) -> None:
    with suppress(UsageError):
        assert abs(parse_time_ms(text)) < 2**63


@given(st.integers(0, 10**13))
def test_durations_are_read_as_they_are_printed(duration_ms: int) -> None:
    assert parse_duration_ms(duration_text(duration_ms)) == duration_ms


@given(st.integers(0, 10**13))
def test_times_are_read_as_they_are_printed(at_ms: int) -> None:
    for form in (TimeForm.ISO, TimeForm.MS):
        assert parse_time_ms(time_text(at_ms, form, now_ms=0)) == at_ms
    assert parse_time_ms(iso_utc(at_ms)) == at_ms // 1000 * 1000


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 s ago"),
        (119_000, "119 s ago"),
        (120_000, "2 min ago"),
        (3 * HOUR_MS, "3 h ago"),
        (47 * HOUR_MS, "47 h ago"),
        (48 * HOUR_MS, "2 d ago"),
        (729 * 24 * HOUR_MS, "729 d ago"),
        (3 * 31_557_600_000, "3 y ago"),
        (-5 * 60_000, "in 5 min"),
    ],
)
def test_ages(age_ms: int, text: str) -> None:
    assert time_text(NOW_MS - age_ms, TimeForm.RELATIVE, now_ms=NOW_MS) == text


@pytest.mark.parametrize("form", TimeForm)
def test_kafkas_minus_one_is_no_time(form: TimeForm) -> None:
    assert time_text(-1, form, now_ms=NOW_MS) == "-1"


def test_iso_is_local_with_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert time_text(NOW_MS, TimeForm.ISO, now_ms=0) == "2026-11-21T19:30:00.000+05:30"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert datetime.fromtimestamp(NOW_MS / 1000, UTC).hour == 14


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_reports_from_two_seconds_on_and_then_at_twice_the_length() -> None:
    clock = Clock()
    waits, lines = Waits(clock_s=clock), list[str]()
    with waits.reported(lines.append), waits.waiting("an answer"):
        for second in range(200):
            clock.now_s = second
            waits.report()
    lengths = [int(line.split()[2]) for line in lines]
    assert lengths[:6] == [2, 4, 8, 16, 32, 64]
    assert {later - earlier for earlier, later in pairwise(lengths[5:])} == {60}
    assert lines[0] == "waiting for 2 s: an answer"


def test_short_waits_inner_waits_and_waits_without_a_reporter_are_silent() -> None:
    clock = Clock()
    waits, lines = Waits(clock_s=clock), list[str]()
    with waits.waiting("nobody is told"):
        clock.now_s += 10
        waits.report()
    with waits.reported(lines.append):
        for _ in range(5):
            with waits.waiting("short"):
                clock.now_s += 1.9
                waits.report()
        assert lines == []
        with waits.waiting("outer"), waits.reported(lambda _: lines.append("twice")), waits.waiting("inner"):
            clock.now_s += 3
            waits.report()
    waits.report()
    assert lines == ["waiting for 3 s: outer"]


def test_each_thread_has_its_own_wait() -> None:
    clock = Clock()
    waits, lines = Waits(clock_s=clock), list[str]()
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with waits.waiting("other"):
            begun.set()
            end.wait()

    thread = threading.Thread(target=other)
    with waits.reported(lines.append), waits.waiting("own"):
        thread.start()
        begun.wait()
        clock.now_s = 2
        waits.report()
        end.set()
        thread.join()
    assert sorted(lines) == ["waiting for 2 s: other", "waiting for 2 s: own"]


def test_a_terminal_without_a_bar_shows_a_wait_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, console = Clock(), Console()
    waits, lines = Waits(clock_s=clock), list[str]()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with waits.reported(lines.append, from_s=lambda: console.waits_from_s):
        for is_terminal, has_bar, expected in (
            (False, False, []),
            (True, True, []),
            (True, False, ["waiting for 1 s: an answer"]),
        ):
            monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown, raising=False)
            bar = console.bar("reading", unit="events") if has_bar else nullcontext()
            with bar, waits.waiting("an answer"):
                clock.now_s += 0.75
                waits.report()
                assert lines == expected


def test_messages_are_kept_and_notes_only_once() -> None:
    silent = SilentProgress()
    progress: Progress = silent
    error = UsageError("wrong")
    for _ in range(2):
        progress.note("a note")
        progress.say("a line")
        progress.problem(error)
        with progress.bar("copy", unit="bytes", total=3) as advance:
            advance(3)
    assert silent.notes == ["a note"]
    assert silent.lines == ["a line", "a line"]
    assert silent.problems == [error, error]
