"""Events since a restore: segments that are missing, wrong, deleted, or copied at the wrong offset."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.checks.restored import PublishedLog, SegmentEvent, check_published
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.model.choices import NOT_A_BROKER_ID, Severity
from tierctl.plan.partition_choice import PartitionInputs, decide_partition

from tests.plan.rebuild.sets import PARTITION, object_set

_S = RemoteLogSegmentState
BROKER = 3
LINEAGE = ((0, 0), (4, 150))
SETS = [object_set(n, n * 100, n * 100 + 99, LINEAGE) for n in range(3)]
DIVERGED = object_set(8, 100, 199, ((0, 0), (2, 150)))
"""A copy by another leader at the same offsets."""
NEXT = object_set(9, 300, 399, LINEAGE)
"""The next segment that a broker copies after the restore."""
DECISION = decide_partition(PartitionInputs(partition=PARTITION, sets=[*SETS, DIVERGED]))


def started(which: Any, broker_id: int = NOT_A_BROKER_ID, **changes: Any) -> RemoteLogSegmentMetadata:
    segment: RemoteLogSegmentMetadata = replace(which.segment, broker_id=broker_id, **changes)
    return segment


def then(which: Any, state: _S, broker_id: int = NOT_A_BROKER_ID) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate.of(which.segment, state, broker_id=broker_id, event_timestamp_ms=1)


def finished(which: Any, broker_id: int = NOT_A_BROKER_ID, **changes: Any) -> list[SegmentEvent]:
    return [started(which, broker_id, **changes), then(which, _S.COPY_SEGMENT_FINISHED, broker_id)]


REBUILT: list[SegmentEvent] = [
    *(event for each in SETS for event in finished(each)),
    started(DIVERGED),
    then(DIVERGED, _S.DELETE_SEGMENT_STARTED),
]
LOSER_GONE = [then(DIVERGED, _S.DELETE_SEGMENT_FINISHED, BROKER)]
COPIED = finished(NEXT, BROKER)
DELETED = [then(SETS[0], _S.DELETE_SEGMENT_STARTED, BROKER)]

OK, FAILED, NOT = Severity.OK, Severity.ERROR, Severity.NOT_CHECKED
CASES: dict[str, tuple[Sequence[SegmentEvent], Severity, Severity, Severity, str]] = {
    "rebuilt": (REBUILT, OK, OK, NOT, "not yet: no segment was copied since"),
    "the loser was deleted": ([*REBUILT, *LOSER_GONE], OK, OK, NOT, ""),
    "copied on": ([*REBUILT, *COPIED], OK, OK, OK, "1 segment was copied since, from offset 300 on"),
    "copy began": ([*REBUILT, COPIED[0]], OK, OK, OK, "copied since, from offset 300 on"),
    "deleted": ([*REBUILT, *DELETED], FAILED, OK, NOT, "1 finished segment, offsets 0 to 99, is deleted"),
    "deleted before it was rebuilt": (
        [*finished(NEXT, BROKER), then(NEXT, _S.DELETE_SEGMENT_STARTED, BROKER), *REBUILT],
        OK,
        OK,
        NOT,
        "none of 4 finished segments",
    ),
    "one is missing": (REBUILT[:4], OK, FAILED, NOT, "1 segment of the tier is not finished"),
    "one is not finished": (REBUILT[:5], OK, FAILED, NOT, "1 segment of the tier is not finished"),
    "the loser is finished": (
        [*REBUILT[:6], *finished(DIVERGED)],
        OK,
        FAILED,
        NOT,
        "1 segment is finished that is not of this log",
    ),
    "an epoch is missing": (
        [*finished(SETS[0]), *finished(SETS[1], segment_leader_epochs=((0, 100),)), *REBUILT[4:]],
        OK,
        FAILED,
        NOT,
        "has epoch 0 from 100 in the metadata, epoch 0 from 100, epoch 4 from 150 in the tier",
    ),
    "another end": (
        [*finished(SETS[0], end_offset=98), *REBUILT[2:]],
        OK,
        FAILED,
        NOT,
        "has offsets 0 to 98 in the metadata, 0 to 99 in the tier",
    ),
    "copied below the end": (
        [*REBUILT, *finished(object_set(7, 250, 350, LINEAGE), BROKER)],
        OK,
        OK,
        FAILED,
        "copied from offset 250 on, below 300",
    ),
    "copied above the end": (
        [*REBUILT, *finished(object_set(7, 350, 450, LINEAGE), BROKER)],
        OK,
        OK,
        FAILED,
        "offsets 300 to 349 are not in the tier",
    ),
    "of brokers only": (
        [event for each in SETS for event in finished(each, BROKER)],
        OK,
        OK,
        NOT,
        "no event of tierctl",
    ),
    "deleted by brokers without tierctl": (
        [*(event for each in SETS for event in finished(each, BROKER)), *DELETED],
        FAILED,
        OK,
        NOT,
        "1 finished segment",
    ),
    "nothing": ([], OK, FAILED, NOT, "3 segments of the tier are not finished"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_events_say(case: str) -> None:
    events, deletions, metadata, next_copy, text = CASES[case]
    log: Any = SimpleNamespace(
        subject=str(PARTITION.topic_partition),
        decision=DECISION,
        start_offset=0,
        end_offset=300,
        is_materialised=False,
    )
    published = PublishedLog()
    for event in events:
        published.add(event, own_broker_id=NOT_A_BROKER_ID)
    results = list(check_published(log, published))
    assert [each.severity for each in results] == [deletions, metadata, next_copy]
    assert text in " ".join(each.found for each in results)


@pytest.mark.parametrize(
    ("start", "severity"), [(0, Severity.OK), (100, Severity.ERROR)], ids=["from its start", "a gap"]
)
def test_a_materialised_log_is_copied_from_its_start(start: int, severity: Severity) -> None:
    log: Any = SimpleNamespace(subject=str(PARTITION.topic_partition), start_offset=0, is_materialised=True)
    published = PublishedLog()
    for event in finished(object_set(7, start, 199, LINEAGE), BROKER):
        published.add(event, own_broker_id=NOT_A_BROKER_ID)
    results = list(check_published(log, published))
    assert [each.severity for each in results] == [Severity.OK, severity]


def test_what_was_discarded_may_be_deleted() -> None:
    published = PublishedLog()
    for event in [*REBUILT, *LOSER_GONE, *DELETED]:
        published.add(event, own_broker_id=NOT_A_BROKER_ID)
    assert published.discarded == {DIVERGED.listed.segment_id}
    assert [each.segment_id for each in published.deleted_since] == [SETS[0].listed.segment_id]
