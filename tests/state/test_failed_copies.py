"""Copies that were begun and withdrawn count as failed until one that reaches their offset has finished."""

import pytest
from tierctl.model import MetadataEvent, RemotePartitionDeleteState
from tierctl.model.events import dialect_of
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import encode

from tests.state.folding import folded, restored
from tests.state.histories import S, deletion, started, updated
from tests.state.histories import finished as copied

pytestmark = pytest.mark.usefixtures("both_forms")

Event = MetadataEvent
BEGUN_MS = 1_700_000_100_000


def withdrawn(number: int, start: int, end: int, *, at: int = 0, **facts: object) -> list[Event]:
    """Return the events of a copy that was begun `at` ms after BEGUN_MS and failed."""
    begun = started(number, start, end, event_timestamp_ms=BEGUN_MS + at, **facts)
    is_kip405 = begun.broker_id is None
    later = {"broker_id": begun.broker_id, **({"leader_epoch": 3} if is_kip405 else {})}
    states = S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED
    return [begun, *(updated(number, state, **later) for state in states)]


OTHER_LEADER = {"broker_id": 2, "epochs": ((1, 100),)}
CASES: dict[str, tuple[list[Event], tuple[object, ...] | None]] = {
    "nothing failed": ([*copied(1, 0, 99), *copied(2, 100, 199)], None),
    "once": (withdrawn(1, 0, 99), (1, 0, 0, 0, 1)),
    "its deletion is not finished": (withdrawn(1, 0, 99)[:2], (1, 0, 0, 0, 1)),
    "still running": ([started(1, 0, 99)], None),
    "again and again": (
        [*copied(1, 0, 99), *(e for n in (2, 3, 4) for e in withdrawn(n, 100, 199, at=n))],
        (3, 100, 2, 4, 1),
    ),
    "until one succeeds": ([*withdrawn(1, 0, 99), *withdrawn(2, 0, 99), *copied(3, 0, 99)], None),
    "until one that is longer succeeds": ([*withdrawn(1, 50, 99), *copied(2, 0, 199)], None),
    "the next segment fails": (
        [*withdrawn(1, 0, 99), *copied(2, 0, 99), *withdrawn(3, 100, 199, at=9)],
        (1, 100, 9, 9, 1),
    ),
    "an older one succeeds": ([*withdrawn(2, 100, 199), *copied(1, 0, 99)], (1, 100, 0, 0, 1)),
    "by two brokers": (
        [*withdrawn(1, 100, 199), *withdrawn(2, 100, 180, at=5, **OTHER_LEADER)],
        (2, 100, 0, 5, 2),
    ),
    "by tierctl": (withdrawn(1, 0, 99, broker_id=-1), None),
    "by tierctl, never withdrawn": ([started(n, 0, 99, broker_id=-1) for n in (1, 2, 3)], None),
    "in the KIP's own format": (withdrawn(1, 0, 99, broker_id=None, leader_epoch=3), (1, 0, 0, 0, None)),
    "a dangling copy is cleaned up later": (
        [started(1, 0, 99), *copied(2, 0, 99), *copied(3, 100, 199), *withdrawn(1, 0, 99)[1:]],
        None,
    ),
    "tierctl cleans up what a broker began": (
        [*copied(1, 0, 99), *withdrawn(2, 100, 199)[:1], updated(2, S.DELETE_SEGMENT_STARTED, broker_id=-1)],
        None,
    ),
    "a dangling copy was the last attempt": ([*copied(1, 0, 99), *withdrawn(2, 100, 199)], (1, 100, 0, 0, 1)),
    "after an unclean election": (
        [*copied(1, 0, 99), *copied(2, 100, 199), *withdrawn(3, 100, 150, **OTHER_LEADER)],
        (1, 100, 0, 0, 2),
    ),
    "the other lineage goes on": (
        [*copied(1, 0, 99), *withdrawn(2, 150, 199), *copied(3, 100, 180, broker_id=2, epochs=((1, 100),))],
        None,
    ),
    "begun again, never withdrawn (before Kafka 4)": (
        [*copied(1, 0, 99), *(started(n, 100, 199, event_timestamp_ms=BEGUN_MS + n) for n in (2, 3, 4))],
        (2, 100, 2, 3, 1),
    ),
    "begun again, and finished": ([started(1, 0, 99), started(2, 0, 99), *copied(3, 0, 99)], None),
    "two copies at once": ([started(1, 0, 99), started(2, 100, 199)], None),
    "retention deletes copied segments": (
        [*copied(1, 0, 99), updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)],
        None,
    ),
    "the partition is deleted": (
        [*withdrawn(1, 0, 99), deletion(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)],
        None,
    ),
}


def failed(state: TierState) -> tuple[object, ...] | None:
    """Return the failed copies with times after BEGUN_MS."""
    (part,) = state.partitions.values()
    found = part.failed_copies
    if found is None:
        return None
    times = found.since_ms - BEGUN_MS, found.last_ms - BEGUN_MS
    return (found.attempts, found.start_offset, *times, found.broker_id)


@pytest.mark.parametrize("name", CASES)
def test_which_copies_failed(name: str) -> None:
    events, expected = CASES[name]
    values = [encode(event, dialect_of(event)) for event in events]
    assert failed(folded(values)) == expected
    for cut in range(1, len(values)):
        state = folded(values, chunks=[cut], between=restored)
        assert failed(state) == expected, f"continued from a snapshot after {cut} events"
