"""When copies that failed are a finding: not below the log start, and not of topics that no longer exist."""

from dataclasses import replace

import pytest
from tierctl.checks.findings import Finding, FindingKind
from tierctl.checks.metadata import KnownTopics, without_gone
from tierctl.checks.segments import check_failed_copies
from tierctl.model import Uuid
from tierctl.state.tier_state import FailedCopies, TierState
from tierctl.wire.metadata.values import encode

from tests.state.folding import folded
from tests.state.histories import ORDERS, S, finished, started, updated

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
