"""The errors in the man pages are those of the code, and every page has every exit code."""

import re
from collections.abc import Iterator
from functools import cache

import pytest
from tierctl.cli.docs.man import page
from tierctl.cli.docs.messages import Message, sections
from tierctl.cli.docs.tree import Node, command_tree
from tierctl.cli.signals import PIPE_CLOSED
from tierctl.errors import ExitCode

from tests.docs.lines import texts_of_code


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


NODES = list(nodes(command_tree()))


def documented() -> dict[str, Message]:
    """Return each message of a man page once, by its text."""
    return {row.text: row for node in NODES for section in sections(node) for row in section.messages}


@cache
def joined_texts() -> str:
    return "\n".join(texts_of_code())


def fixed_parts(text: str) -> list[str]:
    """Return the parts of a documented text that are the same in every error."""
    parts = re.split(r"\.\.\.|;|\b(?:expected|found)\b|\b[A-Z][A-Z_]*\b", text)
    stripped = (part.strip(' :"(),') for part in parts)
    return [part for part in stripped if len(part) >= 8]


@pytest.mark.parametrize("text", documented())
def test_a_documented_error_is_in_the_code(text: str) -> None:
    texts = joined_texts()
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
