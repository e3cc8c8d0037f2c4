"""The table of findings: complete rows, each of which some check detects."""

import ast
import pickle
from pathlib import Path

import pytest
from tierctl.checks import findings
from tierctl.checks.findings import FindingKind
from tierctl.cli.app import COMMANDS
from tierctl.errors import NotFoundError
from tierctl.model.choices import Severity


@pytest.mark.parametrize("kind", FindingKind)
def test_every_kind_has_a_meaning_and_advice(kind: FindingKind) -> None:
    assert kind.name.lower() == kind.value == str(kind)
    assert kind.row.severity in Severity
    assert kind.row.why.endswith(".")
    assert kind.row.why[0].isupper()
    assert len(kind.row.fix) > 15
    assert kind.row.command is None or kind.row.command.split()[0] in COMMANDS
    assert pickle.loads(pickle.dumps(kind)) is kind


@pytest.mark.parametrize(
    ("hint", "fix"),
    [
        ("run as the broker's user", "run as the broker's user; verify did not use this log for any check"),
        (None, FindingKind.UNREADABLE_LOG.row.fix),
    ],
)
def test_an_unreadable_log_has_the_next_step_of_its_error(hint: str | None, fix: str) -> None:
    error = NotFoundError("orders-0 can't be read: Permission denied", hint=hint)
    assert findings.unreadable_log(Path("data/orders-0"), error).fix == fix


def test_corruption() -> None:
    corrupt = {kind.value for kind in FindingKind if kind.row.is_corruption}
    assert corrupt == {
        "corrupt_log",
        "corrupt_index",
        "corrupt_metadata",
        "incomplete_history",
        "unreadable_log",
        "unreadable_object",
    }


def test_every_kind_is_detected_by_a_check() -> None:
    """A row that no code of the package uses has no effect."""
    used = {
        node.attr
        for file in Path(findings.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {kind.name for kind in FindingKind} <= used
