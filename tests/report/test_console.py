"""Messages at a terminal."""

import sys

import pytest
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
