"""The table of findings, each of which some check detects, and when failed copies are one."""

import ast
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.checks import findings
from tierctl.checks.findings import Finding, FindingKind
from tierctl.checks.metadata import KnownTopics, more_dropped_events, without_gone
from tierctl.checks.segments import check_failed_copies
from tierctl.cli.app import COMMANDS
from tierctl.errors import NotFoundError
from tierctl.model import Uuid
from tierctl.model.choices import Severity
from tierctl.plan.decisions import NEEDING_OPERATOR
from tierctl.state.tier_state import FailedCopies, TierState
from tierctl.wire.metadata.values import encode

from tests.cli.shell import tierctl
from tests.state.folding import folded
from tests.state.histories import ORDERS, S, finished, started, updated
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
        others = [row["severity"] for row in every.json if row["check"] != kind]
        serious, info = len(others) - others.count("info"), others.count("info")
        texts = [f"{serious} problem{'s' if serious > 1 else ''}"] if serious else []
        assert (
            f"; {' and '.join([*texts, *([f'{info} info'] if info else [])])} of other kinds" in ran.summary
        )
    assert tierctl(*verify, *(word for kind in kinds for word in ("--kind", kind))).out == every.out
    none = tierctl(*verify, "--kind", "stuck_delete")
    assert (none.code, none.json) == (3, [])
    assert ": no findings of kind stuck_delete; " in none.summary


@pytest.mark.parametrize(
    ("age_s", "age"), [(59, "less than a minute"), (60, "1 minute"), (7_199, "1 hour"), (172_800, "2 days")]
)
def test_one_is_no_plural(age_s: int, age: str, writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    before = {*tier.remote.rglob("*")}
    CASES["foreign object"].spoil(tier)
    for each in {*tier.remote.rglob("*")} - before:
        os.utime(each, (NOW_MS / 1000 - age_s,) * 2)
    verify = ("verify", "--metadata", tier.metadata, "--remote", tier.remote, "--now", NOW_MS, "-o", "json")
    assert f"last written {age} ago" in tierctl(*verify).json[0]["found"]
    assert more_dropped_events(1).found == "1 more event was dropped"


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


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("verify", "--kind", "stuck_delet"), "did you mean stuck_delete?"),
        (("doctor", "--skip", "store_lst"), "did you mean store_list?"),
        (("verify", "--kind", "'x' is not one of 'y'"), "see 'tierctl verify --help'"),
    ],
)
def test_an_unknown_kind_is_an_error(words: tuple[str, ...], hint: str) -> None:
    ran = tierctl(*words, "--metadata", "/none")
    assert ran.code == 2
    assert hint in ran.err


def test_what_needs_an_operator_is_in_the_manual() -> None:
    """The other lists of the pages are made from the registries."""
    page = Path(findings.__file__).parents[2] / "man" / "tierctl-findings.7"
    described = {word.removeprefix("fB") for word in re.findall(r"\w+", page.read_text())}
    assert set(map(str, NEEDING_OPERATOR)) <= described


FAILED = FailedCopies(attempts=3, start_offset=100, since_ms=1000, last_ms=61_000, broker_id=5)


def found(failed: FailedCopies, log_start_offset: int | None = None) -> list[Finding]:
    return list(check_failed_copies(ORDERS, failed, log_start_offset))


@pytest.mark.parametrize(("log_start", "is_found"), [(None, True), (100, True), (101, False)])
def test_offsets_below_the_log_start_are_not_copied(log_start: int | None, is_found: bool) -> None:
    assert bool(found(FAILED, log_start)) == is_found
    assert not list(check_failed_copies(ORDERS, None, log_start))


def test_what_it_says() -> None:
    (finding,) = found(FAILED)
    assert (finding.check, finding.start_offset) == (FindingKind.FAILING_COPIES, 100)
    assert "3 attempts to copy the log from offset 100 on failed since 1970-01-01T00:00:01Z" in finding.found
    assert "in the log of broker 5" in finding.fix
    (finding,) = found(replace(FAILED, broker_id=None))
    assert "the broker that" in finding.fix


def state_with(*, copied: bool) -> TierState:
    events = finished(1, 0, 99) if copied else []
    events += [
        started(2, 100, 199, broker_id=1),
        updated(2, S.DELETE_SEGMENT_STARTED, broker_id=1),
        updated(2, S.DELETE_SEGMENT_FINISHED, broker_id=1),
    ]
    return folded([encode(event) for event in events])


OTHER = frozenset({Uuid.from_bytes(b"another topic id")})


@pytest.mark.parametrize(
    ("known", "copied", "is_found"),
    [
        (None, False, True),
        (KnownTopics({"orders": frozenset({ORDERS.topic_id})}), False, True),
        # The topic may be in the log directories of another broker.
        (KnownTopics({}), True, True),
        (KnownTopics({}), False, False),
        (KnownTopics({}, unreadable=frozenset({"orders"})), False, True),
        (KnownTopics({}, complete=True), True, False),
        (KnownTopics({"orders": OTHER}, complete=True), False, False),
    ],
)
def test_topics_that_are_gone(known: KnownTopics | None, copied: bool, is_found: bool) -> None:
    parts = list(state_with(copied=copied))
    findings = [f for part in parts for f in check_failed_copies(ORDERS, part.failed_copies, None)]
    assert len(findings) == 1
    assert bool(list(without_gone(findings, parts, known))) == is_found
