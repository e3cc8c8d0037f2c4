"""Options in hints exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tierctl
from tierctl.cli.docs.tree import command_tree

PACKAGE = Path(tierctl.__file__).parent
FOREIGN = {"--release-version", "--collector"}
"""Options of kafka-storage and of node_exporter."""


def text_of(node: ast.expr, constants: dict[str, str]) -> str:
    """Return the text of an expression; what is known at run time only is left out."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, constants) for part in parts)
        case ast.FormattedValue(value=value):
            return text_of(value, constants)
        case ast.Name(id=name):
            return constants.get(name, "")
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return f"{text_of(left, constants)} {text_of(right, constants)}"
        case _:
            return ""


def constants_of(tree: ast.Module, known: dict[str, str]) -> dict[str, str]:
    """Return the texts that a module assigns to names, and those `known`, by name."""
    found = dict(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = text_of(node.value, found)
    return found


@cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of the code, parsed, by their paths in the package."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if "docs" not in path.parts]
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in files}


def hints() -> Iterator[tuple[str, int, str]]:
    """Yield each argument `hint` in the code: the module, the line, and the text."""
    public: dict[str, str] = {}
    for tree in modules().values():
        public |= {k: v for k, v in constants_of(tree, {}).items() if k.isupper() and not k.startswith("_")}
    for module, tree in modules().items():
        constants = constants_of(tree, public)
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                yield module, node.value.lineno, text_of(node.value, constants)


def test_a_hint_names_options_that_exist() -> None:
    """The command lines in hints, which also name commands, are those of test_lines.py."""
    known = {name for node in command_tree().walk() for option in node.options for name in option.names}
    found = [
        (module, line, set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))) for module, line, text in hints()
    ]
    assert sum(bool(options) for _, _, options in found) > 100
    assert [each for each in found if each[2] - known - FOREIGN] == []
