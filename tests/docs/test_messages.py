"""The errors in the man pages are those of the code."""

import re
from functools import cache

import pytest
from tierctl.cli.docs.messages import Message, command_tree, sections

from tests.docs.lines import texts_of_code


def documented() -> dict[str, Message]:
    """Return each message of a man page once, by its text."""
    return {
        row.text: row
        for node in command_tree().walk()
        for section in sections(node)
        for row in section.messages
    }


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
