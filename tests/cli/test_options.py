"""Options that commands share: their order, the arguments of a command, and which declaration wins."""

from typing import Annotated

import click
import pytest
from click.testing import CliRunner
from tierctl.cli.declare import add, option
from tierctl.cli.options import with_options

Number = Annotated[int, option("--number", help="A number.")]
Word = Annotated[str, option("--word", help="A word.")]


def numbers(number: Number = 1, other: Annotated[int, option("--other", help="Another number.")] = 2) -> None:
    """A group."""


def words(word: Word = "a") -> None:
    """Another group."""


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
    def command(ctx: click.Context, own: Annotated[bool, option("--own", help="A flag.")] = False) -> None:
        """What it does."""

    group = click.Group()
    add(group, "command", with_options(*groups)(command))  # type: ignore[arg-type]
    found = group.commands["command"]
    assert [
        param.name for param in found.params if param.name in {"number", "other", "word", "own"}
    ] == expected
    assert found.help == "What it does."


def test_a_command_gets_its_own_and_the_context_has_all() -> None:
    seen = {}

    @with_options(numbers, words)
    def command(ctx: click.Context, number: Annotated[int, option("--number", help="", max=5)] = 3) -> None:
        seen.update(ctx.params, number=number)

    group = click.Group()
    add(group, "command", command)
    app, runner = group.commands["command"], CliRunner()
    assert runner.invoke(app, ["--word", "b", "--other", "7"]).exit_code == 0
    assert seen == {"number": 3, "other": 7, "word": "b"}
    # If a group and the command declare an option, the command's declaration is used.
    assert runner.invoke(app, ["--number", "6"]).exit_code == 2
