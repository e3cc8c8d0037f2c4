"""Options made from the fields of requests: their order, which declaration wins, parsers and bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tierctl.cli.app import Command
from tierctl.cli.options import with_options
from tierctl.cli.profiles import OptionKeys
from tierctl.cli.run_settings import RunSettings
from tierctl.commands.request import TYPED_ONLY
from tierctl.errors import UsageError
from typer.main import get_command
from typer.testing import CliRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The fields that commands share: each command names those that it has."""

    number: Annotated[int, typer.Option("--number", help="A number.")] = 1
    other: Annotated[int, typer.Option("--other", help="Another number.")] = 2
    folders: Annotated[Sequence[Path], typer.Option("--folder", help="Folders.")] = ()
    clock: int = 5
    """No option."""


def halved(text: str) -> int:
    if not text.isdigit():
        raise UsageError(f"not a number: {text!r}")
    return int(text) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequest(Request):
    """A request of one command, with an option of its own and another default of a shared one."""

    own: Annotated[bool, typer.Option(help="A flag."), TYPED_ONLY] = False
    half: Annotated[int, typer.Option("--half", help="Half.", parser=halved, min=2, max=4)] = 3
    number: Annotated[int, typer.Option("--number", help="At most 5.", max=5)] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Options that belong to no request."""

    word: Annotated[str, typer.Option("--word", help="A word.")] = "a"


def made(function: Any, *parts: Any) -> Any:
    app = typer.Typer(add_completion=False)
    app.command("command", cls=Command)(with_options(*parts)(function))
    return app


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("other", Words), ["other", "word", "extra", "number", "own", "half"]),
        ((("number", "other"), ..., Words), ["number", "other", "extra", "own", "half", "word"]),
        ((), ["extra", "number", "own", "half"]),
    ],
)
def test_the_order_of_options(parts: tuple[Any, ...], expected: list[str]) -> None:
    def command(
        ctx: typer.Context,
        request: OwnRequest,
        extra: Annotated[bool, typer.Option("--extra", help="A flag.")] = False,
    ) -> None:
        """What it does."""

    found: Any = get_command(made(command, *parts))
    names = [option.name for option in found.options]
    assert names[: names.index("profile")] == expected
    assert found.help == "What it does."
    assert found.typed_only == {"own", "help_all"}


def test_a_command_gets_the_request_of_its_options() -> None:
    seen: list[OwnRequest] = []

    def command(ctx: typer.Context, request: OwnRequest) -> None:
        seen.append(request)

    app = made(command, "other", "folders", Words)
    # With a callback the application has its own context, which has the settings of the run, as main's has.
    app.callback()(lambda: None)

    def invoke(*words: str) -> Any:
        settings = RunSettings(keys=OptionKeys(lambda: ()), environ={}, args=[])
        return CliRunner().invoke(app, ["command", *words], obj=settings)

    given = ["--word", "b", "--other", "7", "--folder", "x", "--folder", "y", "--half", "8"]
    assert invoke(*given).exit_code == 0
    assert invoke().exit_code == 0
    assert seen == [OwnRequest(other=7, folders=(Path("x"), Path("y")), half=4), OwnRequest()]
    # The request's own declaration of a shared field is used, with its bounds.
    assert invoke("--number", "6").exit_code == 2
    for value in ("10", "2"):
        assert invoke("--half", value).exit_code == 2
    wrong = invoke("--half", "x").exception
    assert isinstance(wrong, UsageError)
    assert wrong.message == "--half: not a number: 'x'"
