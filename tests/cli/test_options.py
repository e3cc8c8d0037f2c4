"""Options that commands share: their order, which declaration wins, and values with parsers and bounds."""

from typing import Annotated, Any

import pytest
import typer
from tierctl.cli.app import Command, new_app
from tierctl.cli.options import with_options
from typer.main import get_command
from typer.testing import CliRunner

Number = Annotated[int, typer.Option("--number", help="A number.")]
Word = Annotated[str, typer.Option("--word", help="A word.")]


def numbers(
    number: Number = 1, other: Annotated[int, typer.Option("--other", help="Another number.")] = 2
) -> None:
    """A group."""


def words(word: Word = "a") -> None:
    """Another group."""


def made(function: Any, *groups: Any) -> Any:
    app = new_app()
    app.command("command", cls=Command)(with_options(*groups)(function))
    return app


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ((numbers, words), ["number", "other", "word", "own"]),
        ((numbers, ..., words), ["number", "other", "own", "word"]),
        ((..., words), ["own", "word"]),
        ((), ["own"]),
    ],
)
def test_the_order_of_options(groups: tuple[object, ...], expected: list[str]) -> None:
    def command(
        ctx: typer.Context, own: Annotated[bool, typer.Option("--own", help="A flag.")] = False
    ) -> None:
        """What it does."""

    found: Any = get_command(made(command, *groups))
    assert [
        param.name for param in found.params if param.name in {"number", "other", "word", "own"}
    ] == expected
    assert found.help == "What it does."


def test_a_command_gets_its_own_and_the_context_has_all() -> None:
    seen = {}

    def command(
        ctx: typer.Context, number: Annotated[int, typer.Option("--number", help="", max=5)] = 3
    ) -> None:
        seen.update(ctx.params, number=number)

    app, runner = made(command, numbers, words), CliRunner()
    assert runner.invoke(app, ["--word", "b", "--other", "7"]).exit_code == 0
    assert seen == {"number": 3, "other": 7, "word": "b"}
    # If a group and the command declare an option, the command's declaration is used.
    assert runner.invoke(app, ["--number", "6"]).exit_code == 2
