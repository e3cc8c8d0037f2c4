"""The table of findings: complete rows, each of which some check detects, and `verify --kind`."""

import ast
import pickle
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tierctl.checks import findings
from tierctl.checks.findings import FindingKind
from tierctl.checks.registry import DoctorCheck, RestoreCheck
from tierctl.cli.app import COMMANDS
from tierctl.errors import NotFoundError
from tierctl.model.choices import Severity
from tierctl.plan.decisions import NEEDING_OPERATOR

from tests.cli.shell import tierctl
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt


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
        "damaged_log_end",
        "incomplete_history",
        "not_understood",
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


def test_only_findings_of_a_kind_are_printed(writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in ("snapshot gone", "foreign object"):
        CASES[name].spoil(tier)
    verify = ("verify", "--metadata", tier.metadata, "--remote", tier.remote, "--now", NOW_MS, "-o", "json")
    every = tierctl(*verify)
    kinds = {row["check"] for row in every.json}
    assert len(kinds) >= 2
    for kind in kinds:
        ran = tierctl(*verify, "--kind", kind)
        assert ran.json == [row for row in every.json if row["check"] == kind]
        assert ran.code == every.code == 3
        others = len(every.json) - len(ran.json)
        assert f", and {others} of other kinds that are not printed" in ran.summary
    assert tierctl(*verify, *(word for kind in kinds for word in ("--kind", kind))).out == every.out
    none = tierctl(*verify, "--kind", "stuck_delete")
    assert (none.code, none.json) == (3, [])
    assert f"no problems, and {len(every.json)} of other kinds" in none.summary


def test_objects_whose_events_were_lost_are_left_to_rebuild(capture: Callable[[str], Path]) -> None:
    """rebuild says of the same partitions that their objects may be live data."""
    root = capture("finite-metadata")
    where = ("--metadata", root / "after", "--remote", root / "after-remote", "--log-dir", root / "after")
    ran = tierctl("verify", *where, "--now", (root / "now_ms").read_text().strip(), "-o", "json")
    leaked = [row for row in ran.json if row["check"] == "leaked"]
    assert {row["fix"].split(",")[0] for row in leaked} == {"run rebuild first"}
    assert "next: tierctl rebuild --metadata" in ran.summary
    rebuilt = tierctl("rebuild", *where, "--broker-config", root / "server.properties")
    for row in leaked:
        assert row["segment_id"] in rebuilt.out or f"skipped {row['subject']}: the log start" in rebuilt.err


def test_an_unknown_kind_is_an_error() -> None:
    ran = tierctl("verify", "--metadata", "/none", "--kind", "stuck_delet")
    assert ran.code == 2
    assert "did you mean stuck_delete?" in ran.err


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("tierctl-findings.7", [*FindingKind, *NEEDING_OPERATOR]),
        ("tierctl-doctor.1", DoctorCheck),
        ("tierctl-restore-check.1", RestoreCheck),
    ],
)
def test_every_kind_that_is_printed_is_in_the_manual(page: str, printed: Iterable[str]) -> None:
    described = set(re.findall(r"\w+", (Path(findings.__file__).parents[2] / "man" / page).read_text()))
    assert {str(kind) for kind in printed} <= {word.removeprefix("fB") for word in described}
