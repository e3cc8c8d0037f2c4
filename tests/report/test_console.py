"""Messages and bars at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tierctl.report import bars
from tierctl.report import console as console_module
from tierctl.report.console import Console

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
