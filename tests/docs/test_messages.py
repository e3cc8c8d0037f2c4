"""The errors in the man pages are those of the code, and every page has every exit code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tierctl
from tierctl.cli.docs.man import page
from tierctl.cli.docs.messages import Message, sections
from tierctl.cli.help.node import Node, load_commands
from tierctl.cli.signals import PIPE_CLOSED
from tierctl.errors import ExitCode

SOURCE = Path(tierctl.__file__).parent
VARIABLE = "\0"


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


NODES = list(nodes(load_commands()))


def documented() -> dict[str, Message]:
    """Return each message of a man page once, by its text."""
    return {row.text: row for node in NODES for section in sections(node) for row in section.messages}


@pytest.fixture(scope="module")
def texts() -> str:
    """Return all texts in the code, with VARIABLE for the parts that are known at run time only."""
    found = []
    for file in SOURCE.rglob("*.py"):
        if "docs" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Constant(value=str(text)):
                    found.append(text.replace("{}", VARIABLE))
                case ast.JoinedStr(values=parts):
                    found.append(
                        "".join(
                            str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else VARIABLE
                            for part in parts
                        )
                    )
    return "\n".join(found)


def fixed_parts(text: str) -> list[str]:
    """Return the parts of a documented text that are the same in every error."""
    parts = re.split(r"\.\.\.|;|\b(?:expected|found)\b|\b[A-Z][A-Z_]*\b", text)
    stripped = (part.strip(' :"(),') for part in parts)
    return [part for part in stripped if len(part) >= 8]


@pytest.mark.parametrize("text", documented())
def test_a_documented_error_is_in_the_code(text: str, texts: str) -> None:
    parts = fixed_parts(text)
    assert parts, "no part of the text is fixed"
    assert [part for part in parts if part not in texts] == []


@pytest.mark.parametrize("node", NODES, ids=lambda node: " ".join(node.path) or "tierctl")
def test_every_page_has_every_exit_code(node: Node) -> None:
    text = page(node)
    status = text[text.index(".SH EXIT STATUS") :]
    for code in ExitCode:
        assert f"\\fB{int(code)}\\fR" in status
    assert f"{PIPE_CLOSED}: nobody reads stdout" in status
