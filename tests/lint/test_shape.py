"""The shape of the code: sizes of folders, files and functions, names, late imports (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.modules import FILES, ROOT, Function, functions, nodes, within_package

FOLDERS = sorted({file.parent for file in FILES})

MODULES_MAX = 31
"""`commands` has one file per command."""
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 50
LATE_IMPORTS_MAX = 60
QUOTED_ANNOTATIONS_MAX = 40
PARAMS_LOOKUPS_MAX = 10


def _relative(path: Path) -> str:
    return path.relative_to(ROOT.parent).as_posix()


@pytest.mark.parametrize("folder", FOLDERS, ids=_relative)
def test_a_folder_has_few_modules_with_names_of_their_own(folder: Path) -> None:
    modules = [file.stem for file in folder.glob("*.py") if file.stem != "__init__"]
    assert len(modules) <= MODULES_MAX
    prefix = f"{folder.name.rstrip('s')}_"
    assert [name for name in modules if name.startswith(prefix)] == []


def test_every_package_says_what_it_is_for() -> None:
    silent = [folder for folder in FOLDERS if not _docstring(folder / "__init__.py")]
    assert [_relative(folder) for folder in silent] == []


def _docstring(file: Path) -> str | None:
    module = nodes(file)[0]
    assert isinstance(module, ast.Module)
    return ast.get_docstring(module)


def test_files_and_functions_are_short() -> None:
    long_files = [_relative(file) for file in FILES if file.read_text().count("\n") > FILE_LINES_MAX]
    long_functions = [
        f"{_relative(file)}:{function.name}"
        for file in FILES
        for function in functions(file)
        if _body_lines(function) > FUNCTION_LINES_MAX
    ]
    assert (long_files, long_functions) == ([], [])


def _body_lines(function: Function) -> int:
    """Return the lines of the body; the docstring does not count."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    body = function.body[1:] if is_docstring else function.body
    end = function.end_lineno or 0
    return end - body[0].lineno + 1 if body else 0


def test_few_imports_stand_inside_functions() -> None:
    late = [f"{_relative(file)}:{node.lineno}" for file in FILES for node in _late_imports(file)]
    assert len(late) <= LATE_IMPORTS_MAX, late


def _late_imports(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    bodies = [(function.lineno, function.end_lineno or 0) for function in functions(file)]
    imports = (node for node in nodes(file) if isinstance(node, ast.Import | ast.ImportFrom))
    return (node for node in imports if any(start <= node.lineno <= end for start, end in bodies))


def test_few_annotations_are_quoted() -> None:
    quoted = [
        f"{_relative(file)}:{annotation.lineno}"
        for file in FILES
        for function in functions(file)
        for annotation in _annotations(function)
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    ]
    assert len(quoted) <= QUOTED_ANNOTATIONS_MAX, quoted


def _annotations(function: Function) -> Iterator[ast.expr | None]:
    arguments = function.args
    yield from (each.annotation for each in [*arguments.args, *arguments.kwonlyargs])
    yield function.returns


def test_only_cli_looks_options_up_by_name() -> None:
    lookups = {
        _relative(file): count for file in FILES if (count := file.read_text().count("ctx.params")) > 0
    }
    assert {file for file in lookups if not file.startswith("tierctl/cli/")} == set()
    assert sum(lookups.values()) <= PARAMS_LOOKUPS_MAX, lookups


SENDERS = {"mapInArrow", "mapInPandas", "mapPartitions", "applyInArrow", "applyInPandas", "parallelize"}
"""What Spark has to send functions to executors."""


def test_work_reaches_executors_in_one_way() -> None:
    """A second way to send work to executors would need every safety rule again; DataFrames only read."""
    senders = {within_package(file) for file in FILES if SENDERS & _names(file)}
    assert senders == {"spark/executors/transport.py", "spark/frames.py"}


def _names(file: Path) -> set[str]:
    attributes = {node.attr for node in nodes(file) if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes(file) if isinstance(node, ast.Name)}


def test_a_run_keeps_the_folders_of_failed_tests_only(pytestconfig: pytest.Config) -> None:
    # Brokers, captures and tiers of all tests together have 24 GB: more than many a disk has left.
    assert pytestconfig.getini("tmp_path_retention_policy") == "failed"
    assert int(pytestconfig.getini("tmp_path_retention_count")) == 1
