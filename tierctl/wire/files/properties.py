"""Java .properties files, as Kafka's own settings are written.

Source: java.util.Properties.load: ISO 8859-1 with \\uXXXX, comments with # or !, keys ended by '=', ':' or a
blank, lines continued by a backslash at the end.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tierctl.errors import CorruptInputError

_BLANKS = " \t\f"
_SEPARATORS = "=:" + _BLANKS
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)


class Property(NamedTuple):
    """One setting and the number of the line it begins on."""

    key: str
    value: str
    line: int


def parse_properties(data: bytes) -> list[Property]:
    """The settings in file order; a repeated key counts last. CorruptInputError for a broken \\u escape."""
    return [_split(text, line) for text, line in _logical_lines(data.decode("latin-1"))]


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with their continuations joined, without comments and blank lines."""
    parts: list[str] = []
    first = 1
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not parts:
            first = number
            if not line or line[0] in "#!":
                continue
        if _continues(line):
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line]), first
        parts = []
    if parts:
        yield "".join(parts), first


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(text: str, line: int) -> Property:
    end = 0
    while end < len(text) and text[end] not in _SEPARATORS:
        end += 2 if text[end] == "\\" else 1
    rest = text[end:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescape(text[:end], line), _unescape(rest, line), line)


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise CorruptInputError(
                f"properties, line {line}", expected="\\u and four hexadecimal digits", found=repr(text[:200])
            )
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(replace, text)
