"""Options in hints: a hint names an option of the command that prints it, or the command that has it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import tierctl
from tierctl.cli.docs.tree import command_tree

PACKAGE = Path(tierctl.__file__).parent
COMMON = 9
"""An option of so many commands names a place that the user has given, as --remote and --log-dir."""
FOREIGN = {"--release-version", "--collector"}
"""Options of kafka-storage and of node_exporter."""
PRINTED_BY = {
    "apply": (),
    "commands/copy": ("copy",),
    "commands/mutation.py": ("sweep",),
    "commands/sweep": ("sweep",),
    "commands/metadata_folder.py": ("copy", "delete", "rebuild", "restore new-ids", "sweep"),
    "commands/change.py": ("apply",),
    "commands/verify": ("verify",),
    "commands/restore/check.py": ("restore check",),
    "checks/restored.py": ("restore check",),
    "checks/served.py": ("restore check",),
    "commands/restore/to_metadata.py": ("rebuild",),
    "commands/restore/hosts.py": ("rebuild", "apply"),
    "commands/restore/new_node.py": ("restore into",),
    "commands/restore/to_node.py": ("restore into",),
    "commands/restore/to_log.py": ("restore log",),
    "commands/restore/left_out.py": ("restore log",),
    "commands/restore/to_ids.py": ("restore new-ids",),
    "commands/insight/what_if.py": ("report",),
    "commands/insight/what_if_facts.py": ("report",),
    "kafka/topic_client.py": ("copy",),
    "cli/display.py": ("apply", "delete"),
    "locallog/formatted_node.py": ("restore into",),
    "pipeline": ("pipeline run",),
    "plan/limits.py": ("sweep",),
    "plan/partition_deletes.py": ("delete",),
    "plan/safety.py": ("copy", "delete", "sweep"),
    "plan/saved.py": ("copy", "sweep"),
    "plan/steps.py": ("copy", "sweep"),
    "report/formatters": ("format",),
    "spark/executors/checked_segments.py": ("verify",),
    "spark/session/submit.py": ("submit",),
}
"""The commands that print the hints of a module or a folder, where its name is not that of its command."""


@cache
def options() -> dict[str, set[str]]:
    """Return each option with the commands that have it."""
    found: dict[str, set[str]] = {}
    for node in command_tree().walk():
        for option in (*node.options, *command_tree().options):
            for name in option.names:
                found.setdefault(name, set()).add(" ".join(node.path))
    return found


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


def is_own(module: str, having: set[str]) -> bool:
    """Return whether the commands that print the hints of a module are among those `having` an option."""
    place = max((each for each in PRINTED_BY if module.startswith(each)), key=len, default=None)
    if place is not None:
        return bool(PRINTED_BY[place]) and having.issuperset(PRINTED_BY[place])
    parts = module.removesuffix(".py").split("/")
    return any(name.partition(" ")[0] in parts for name in having)


def wrong_options(module: str, hint: str) -> Iterator[str]:
    """Yield the options of a hint that its command does not have, and that it does not name another for."""
    for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", hint)) - FOREIGN):
        having = options().get(option, set())
        is_named = any(re.search(rf"(?<![\w-]){name}(?![\w-])", hint) for name in having if name)
        if not (is_named or is_own(module, having) or len(having) >= COMMON):
            yield f"{option}, an option of {', '.join(sorted(having)) or 'no command'}"


def test_a_hint_names_options_that_exist_where_it_is_read() -> None:
    found = list(hints())
    assert sum("--" in text for _, _, text in found) > 100
    wrong = [
        f"{module}, line {line}: {option}: {text}"
        for module, line, text in found
        for option in wrong_options(module, text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "hint", "is_right"),
    [
        ("plan/safety.py", "add --adopt-tier", False),
        ("plan/safety.py", "copy has --adopt-tier", True),
        ("plan/safety.py", "--adopt-tier with --apply", False),
        ("plan/safety.py", "check --remote", True),
        ("commands/fetch.py", "add --rebuild", True),
        ("commands/fetch.py", "add --deep", False),
        ("commands/fetch.py", "tierctl verify --deep", True),
        ("commands/restore/to_ids.py", "add --no-lease", False),
        ("storage/open_tier.py", "add --no-such-option", False),
    ],
)
def test_a_wrong_hint_is_found(module: str, hint: str, is_right: bool) -> None:
    assert list(wrong_options(module, hint)) is not is_right
