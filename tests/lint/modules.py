"""The modules of tierctl, and the nodes of each: every module is parsed and walked once."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import tierctl

ROOT: Final = Path(tierctl.__file__).parent
FILES: Final = sorted(ROOT.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module; the first is the module."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def functions(file: Path) -> tuple[Function, ...]:
    """Return all functions of a module, also those inside classes and functions."""
    return tuple(node for node in nodes(file) if isinstance(node, Function))


def within_package(file: Path) -> str:
    """Return the path of a module below tierctl/."""
    return file.relative_to(ROOT).as_posix()
