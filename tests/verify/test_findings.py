"""The table of findings: complete rows, each of which some check detects."""

import ast
import pickle
from pathlib import Path

import pytest
from tierctl.checks import findings
from tierctl.checks.findings import FindingKind
from tierctl.cli.app import COMMANDS
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


def test_corruption() -> None:
    corrupt = {kind.value for kind in FindingKind if kind.row.is_corruption}
    assert corrupt == {
        "corrupt_log",
        "corrupt_index",
        "corrupt_metadata",
        "incomplete_history",
        "unreadable_log",
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


def test_the_man_page_lists_every_kind() -> None:
    page = (Path(findings.__file__).parents[2] / "man" / "tierctl-findings.7").read_text()
    listed = page.partition('.SH "FINDINGS"\n')[2].partition("\n.SH")[0]
    named = [line for line in listed.splitlines() if line.startswith("\\fB")]
    assert named == [f"\\fB{kind.value}\\fR \\fI{kind.row.severity}\\fR" for kind in FindingKind]
