"""Write roff, the language of man pages, from plain text and from Markdown."""

from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tierctl.cli.examples import command_lines

_WIDTH: Final = 70
"""The longest command line, so that an indented one fits a terminal of 80 columns."""
_FONTS: Final = {"strong_open": "\\fB", "em_open": "\\fI", "strong_close": "\\fR", "em_close": "\\fR"}


def escaped(text: str) -> str:
    """Return `text` with escapes, so that roff prints it unchanged."""
    found = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{found}" if found.startswith((".", "\\(aq")) else found


def tagged(tag: str, text: str) -> list[str]:
    """Return the lines of a paragraph `text` that hangs below `tag`; both are roff."""
    return [".TP", tag, text]


def from_markdown(text: str) -> Iterator[str]:
    """Yield the roff lines of a page in Markdown: headings of level 2 and 3, paragraphs, lists, code.

    An item of a list that begins with bold text becomes a tag, up to the first colon, with a hanging
    paragraph. Raises ValueError for an element of Markdown that pages do not use.
    """
    # The tokens that close an element are not needed: the next one opens an element of its own.
    tokens = [each for each in MarkdownIt().enable("table").parse(text) if not each.type.endswith("_close")]
    before: Sequence[str] = ()
    for token in tokens:
        match token.type:
            case "inline":
                yield from _inline(token, before)
            case "fence":
                yield from (".PP", ".RS 4", ".nf", *_code(token.content), ".fi", ".RE")
            case "bullet_list_open" | "heading_open" | "paragraph_open" | "list_item_open":
                pass
            case _:
                raise ValueError(f"line {token.map}: {token.type} has no form in man pages")
        before = (*before[-1:], f"{token.type} {token.tag}")


def _inline(token: Token, before: Sequence[str]) -> Iterator[str]:
    """Yield a heading, an item of a list or a paragraph; `before` are the two tokens before its text."""
    if before[-1] == "heading_open h2":
        yield f'.SH "{escaped(token.content.upper())}"'
    elif before[-1] == "heading_open h3":
        yield f'.SS "{escaped(token.content)}"'
    elif before == ("list_item_open li", "paragraph_open p"):
        yield from _item(token)
    else:
        yield from (".PP", _formatted(token))


def _item(token: Token) -> list[str]:
    text = _formatted(token)
    if not text.startswith("\\fB"):
        return [".IP \\(bu 2", text]
    tag, colon, rest = text.partition(": ")
    if not colon:
        raise ValueError(f"line {token.map}: expected a colon after the bold text of an item")
    return tagged(tag, rest)


def _formatted(token: Token) -> str:
    parts = []
    for child in token.children or ():
        match child.type:
            case "text":
                parts.append(child.content.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq"))
            case "code_inline":
                parts.append(f"\\fB{escaped(child.content)}\\fR")
            case "softbreak":
                parts.append(" ")
            case kind if kind in _FONTS:
                parts.append(_FONTS[kind])
            case kind:
                raise ValueError(f"line {token.map}: {kind} has no form in man pages")
    text = "".join(parts)
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text


def _code(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("$ "):
            yield from map(escaped, command_lines(line.removeprefix("$ "), _WIDTH))
        else:
            yield escaped(line) or "\\&"
