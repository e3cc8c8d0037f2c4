"""Reports of long waits: when they are printed, for which waits, and how often."""

import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import pytest
from tierctl.model.progress import Waits
from tierctl.report.console import Console


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
