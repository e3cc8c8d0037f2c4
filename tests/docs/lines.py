"""Find the command lines in running text: code spans of Markdown, text of man pages, and comments."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import tierctl
from tierctl.cli.docs import man
from tierctl.cli.docs.messages import Node, Option, command_tree

from tests.docs.documents import BAD_DAY, CONTRIBUTING, DOCUMENTS, Document

PACKAGE = Path(tierctl.__file__).parent
VARIABLE = "\0"
"""Stands in a text of the code for a part that is known at run time only."""
_SPAN = re.compile(r"`[^`]*`")
_QUOTED = re.compile(r"'(tierctl(?: [\w./:=-]+)*)'")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_PROGRAM = re.compile(r"[a-z][a-z0-9_.-]*|_[A-Z_]+=\S+")
_OPERATORS = frozenset("=<>*/+-")
_INSTALLERS = frozenset({"pip", "pipx"})
_ENDS = ".,;:!?"
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+(?:\.\.\.)?")
_MACRO = re.compile(r"^\.[A-Za-z].*$", re.MULTILINE)
_COMMENT = re.compile(r"^#+ ?", re.MULTILINE)


@cache
def commands() -> Node:
    """Return the command tree."""
    return command_tree()


def in_spans(document: Document) -> Iterator[str]:
    """Yield the code spans of a document that are command lines, and the bold texts that install tierctl.

    A command line is `tierctl`, or two or more words of which the first may be the name of a program, as
    `make docs`. Names of commands of tierctl begin a span of `modes`, and assignments and formulas, such as
    `apply = true`, are no command lines.
    """
    yield from (text for text in document.bold if text.partition(" ")[0] in _INSTALLERS)
    for span in map(_one_line, document.spans):
        first, *others = span.split() or [""]
        if first == "tierctl" or (
            others and _PROGRAM.fullmatch(first) and others[0] not in _OPERATORS and not _is_command(first)
        ):
            yield span


def modes(document: Document) -> Iterator[str]:
    """Yield the code spans that name an option of a command, as `verify --deep`."""
    for span in map(_one_line, document.spans):
        first, *others = span.split() or [""]
        if others and _is_command(first):
            yield f"tierctl {span}"


def in_text(text: str) -> Iterator[str]:
    """Yield each command line of tierctl in plain text.

    It is the name of a command, with the options that follow it, their values, and placeholders in capitals;
    the next other word, or a punctuation mark, ends it. In quotation marks it ends with these.
    """
    text = _one_line(text)
    yield from _QUOTED.findall(text)
    words = _QUOTED.sub("", text).split()
    for i, word in enumerate(words):
        if word.lstrip("(\"`'") == "tierctl" and (found := _line_at(words[i + 1 :])):
            yield f"tierctl {found}"


def pages() -> dict[str, str]:
    """Return the text of every man page of section 1, without the examples, which tests run one by one."""
    found = {}
    for node in commands().walk():
        roff = man.page(replace(node, examples=()))
        body = roff.replace(f"\n.B {man.escaped(' '.join(('tierctl', *node.path)))}\n", "\n")
        text = (
            re.sub(r"\\f[BIR]|\\&", "", body).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
        )
        found[f"{man.name(node)}.1"] = _MACRO.sub(";", text)
    return found


def shared_files() -> dict[str, str]:
    """Return the text of every file that the package installs below share, without comment marks.

    The line `COMMAND=` of an environment file has the words after `tierctl`.
    """
    files = [path for path in sorted((PACKAGE / "share").rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(PACKAGE)): _COMMENT.sub("", path.read_text()).replace("COMMAND=", "tierctl ")
        for path in files
    }


def lines_of_texts() -> dict[str, list[str]]:
    """Return the command lines in running text of every document, page and shared file, each of them once."""
    found = {
        each.name: [*in_spans(each), *in_text(_SPAN.sub("", each.prose))]
        for each in (*DOCUMENTS, BAD_DAY, CONTRIBUTING)
    }
    found |= {name: list(in_text(text)) for name, text in (pages() | shared_files()).items()}
    return {name: list(dict.fromkeys(lines)) for name, lines in found.items() if lines}


@cache
def texts_of_code() -> tuple[str, ...]:
    """Return all texts in the code, with VARIABLE for the parts that are known at run time only."""
    return tuple(
        text for file in sorted(PACKAGE.rglob("*.py")) if "docs" not in file.parts for text in _texts(file)
    )


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Constant(value=str(text)):
                yield text.replace("{}", VARIABLE)
            case ast.JoinedStr(values=parts):
                yield "".join(
                    str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else VARIABLE
                    for part in parts
                )


def node_of(words: list[str]) -> tuple[Node, list[str]]:
    """Return the command, group or program that the first words name, and the other words."""
    node, at = commands(), 0
    while at < len(words) and (below := child(node, words[at])):
        node, at = below, at + 1
    return node, words[at:]


def child(node: Node, word: str) -> Node | None:
    """Return the group or command of that name below a node, or None."""
    return next((each for each in node.children if each.path[-1] == word), None)


def option_of(node: Node, word: str) -> Option | None:
    """Return the option of a command, or of any command of a group, that a word names."""
    found = (option for each in node.walk() for option in each.options if word in option.names)
    return next(found, None)


def _is_command(word: str) -> bool:
    return child(commands(), word) is not None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _line_at(words: list[str]) -> str:
    """Return the command line at the beginning of a text, without `tierctl`; empty if there is none."""
    node, found = commands(), list[str]()
    is_value = False
    for word in words:
        bare = word.rstrip(f"{_ENDS})\"'`") if not word.endswith("...") else word
        below = child(node, bare) if not is_value and node.path == tuple(found) else None
        is_option = (bare.startswith("--") or bool(found)) and _OPTION.fullmatch(bare) is not None
        option = option_of(node, bare) if is_option else None
        if not (below or is_value or is_option or (found and _PLACEHOLDER.fullmatch(bare))):
            break
        node = below or node
        found.append(bare)
        is_value = option is not None and not option.is_flag
        if bare != word:
            break
    if not found and len(words) > 1 and words[1].startswith("--"):
        # The first word is taken for a mistyped command.
        return f"{words[0]} {words[1]}"
    return " ".join(found)
