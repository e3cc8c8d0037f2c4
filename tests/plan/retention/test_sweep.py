"""The decisions of RLMExpirationTask and its safety rules, case by case."""

from dataclasses import replace
from typing import Any

import pytest
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemotePartitionDeleteState,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import NextAction
from tierctl.plan.expiry import plan_retention
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.steps import Plan
from tierctl.plan.views import view_of_log
from tierctl.state.tier_state import TierState

from tests.plan.test_partition_deletes import deletion, quarantine
from tests.plan.tier import (
    DAY_MS,
    NOW_MS,
    OTHER_ID,
    PARTITION,
    TOPIC_ID,
    S,
    advance,
    local_log,
    reasons,
    segment,
    segment_id,
    tier,
)

OLD_MS, AHEAD_MS = NOW_MS - 10 * DAY_MS, NOW_MS + DAY_MS
TEN = [segment(n, 100 * n, 100 * n + 99, max_timestamp_ms=OLD_MS) for n in range(10)]
"""Ten segments of 100 bytes and 100 offsets."""

LOG = local_log([1000], 1050)
"""A log that has 100 bytes above the ten segments."""


def numbers(plan: Plan) -> list[int]:
    return [int.from_bytes(step.segment_id.bytes) for step in plan.steps if step.segment_id]


def sweep(state: TierState, config: TopicConfig | None = None, **arguments: Any) -> Plan:
    logs = arguments.pop("logs", [LOG])
    configs = {"orders": config or TopicConfig()}
    return plan_retention(state, logs, configs, **{"now_ms": NOW_MS, **arguments})


@pytest.mark.parametrize(
    ("retention_bytes", "wanted"),
    [
        *((size, []) for size in (-1, 1100, 1099, 1001)),
        *((1000, [0]), (901, [0]), (900, [0, 1]), (100, list(range(10))), (0, list(range(10)))),
    ],
)
def test_size_takes_only_what_lies_wholly_inside_the_excess(retention_bytes: int, wanted: list[int]) -> None:
    """The tier has 1,000 bytes and the log has 100 more; each segment has 100."""
    plan = sweep(tier(*TEN), TopicConfig(retention_bytes=retention_bytes))
    assert numbers(plan) == wanted


@pytest.mark.parametrize(("retention_bytes", "noted"), [(1001, 0), (1000, 1), (901, 1), (900, 2)])
def test_what_brokers_delete_beyond_the_limit_is_noted(retention_bytes: int, noted: int) -> None:
    """Brokers count the 300 bytes below the log start, which sweep deletes; 700 live and 100 local remain."""
    log = replace(LOG, log_start_offset=300)
    plan = sweep(tier(*TEN), TopicConfig(retention_bytes=retention_bytes), logs=[log])
    assert numbers(plan) == [0, 1, 2]
    expected = {0: "", 1: "1 more segment (offsets 300 to 399)", 2: "2 more segments (offsets 300 to 499)"}
    assert expected[noted] in reasons(plan)
    assert ("brokers would delete" in reasons(plan)) is (noted > 0)
    config = TopicConfig(retention_bytes=retention_bytes)
    explained = sweep(tier(*TEN), config, logs=[log], explained=Selection())
    assert explained.steps == plan.steps
    rows = [each for each in explained.decisions(NOW_MS) if each.action is NextAction.DELETE]
    found = {(each.start_offset, each.reason.kind, each.due_ms) for each in rows}
    by = dict.fromkeys((0, 100, 200), ReasonKind.LOG_START_OFFSET)
    by |= {300 + 100 * number: ReasonKind.RETENTION_BYTES for number in range(noted)}
    assert found == {(start, kind, NOW_MS) for start, kind in by.items()}


def with_a_deletion(number: int) -> TierState:
    """Return the tier of ten segments, of which a deletion has begun."""
    state = tier(*TEN)
    advance(state, TEN[number], S.DELETE_SEGMENT_STARTED)
    return state


def with_a_begun_copy() -> TierState:
    """Return the tier of ten segments, of which the copy of the first one has begun."""
    state = tier(*TEN[1:])
    advance(state, TEN[0])
    return state


def of_size(size: int) -> TierState:
    return tier(segment(0, 0, 99, size=size))


ALL_GOES = TopicConfig(retention_ms=DAY_MS, retention_bytes=0)
BY_TIME = TopicConfig(retention_ms=DAY_MS)
LAST_LOCAL = local_log([800, 900, 1000, 1020], 1050, sizes=[70, 70, 70, 30])
DELETING = with_a_deletion(3), replace(LOG, log_start_offset=300)
OVERLAPPING = tier(TEN[0], segment(2, 50, 149), segment(3, 150, 249)), local_log([250], 260)
ONE_RECORD = (
    tier(*TEN[:9], segment(9, 900, 998), segment(10, 999, 999, size=1)),
    local_log([900, 999, 1000], 1050, sizes=[100, 50, 100]),
)
"""The last copied offset is 999, where a local segment begins and ends."""
UNORDERED = tier(segment(1, 1, 9), segment(3, 0, 9), segment(2, 0, 0))
AHEAD = tier(segment(1, 0, 999, size=1000, max_timestamp_ms=AHEAD_MS))
GOES: dict[str, tuple[TierState, LocalLog, TopicConfig | int, list[int]]] = {
    # The tier, the log, the settings or retention.bytes alone, and the segments in the order of deletes.
    "the limit is met": (of_size(0), LOG, 100, []),
    # RemoteLogRetentionHandler deletes by size only where bytes remain to be deleted.
    "a byte less is in the log": (of_size(1), LOG, 101, []),
    "one byte above the limit": (of_size(1), LOG, 100, [0]),
    "one byte above the limit, and the segment has two": (of_size(2), LOG, 101, []),
    "local segments above the tier count": (tier(*TEN), LAST_LOCAL, 1001, []),
    "other local segments do not": (tier(*TEN), LAST_LOCAL, 1000, [0]),
    # 600 bytes, and 100 bytes of the log.
    "nothing below the log start, or that is being deleted, counts": (*DELETING, 700, [3, 0, 1, 2]),
    "what is left is above the limit": (*DELETING, 600, [3, 0, 1, 2, 4]),
    # 150 bytes instead of 200.
    "offsets that two segments have count once": (*OVERLAPPING, 251, []),
    "and are above the limit": (*OVERLAPPING, 250, [0]),
    "a segment of one record counts once": (*ONE_RECORD, 1002, []),
    "and is above the limit": (*ONE_RECORD, 1001, [0]),
    "a future timestamp does not keep size from deleting": (AHEAD, LOG, ALL_GOES, [1]),
    "begun copies stay": (with_a_begun_copy(), LOG, ALL_GOES, [*range(1, 10)]),
    "what is being deleted is no hole": (with_a_deletion(3), LOG, BY_TIME, [3, 0, 1, 2, *range(4, 10)]),
    "at or above the log end": (tier(*TEN), local_log([0, 100, 200], 250), ALL_GOES, [0, 1]),
    # Brokers forget the first copy of [0, 99] when a second one finishes, and leak it.
    "a segment that another one replaced goes with it": (
        *(tier(*TEN[:2], replace(TEN[0], segment_id=segment_id(50))), local_log([200], 210), 200, [0, 50]),
    ),
    "in the order of offsets and then of ids": (
        *(UNORDERED, replace(LOG, log_start_offset=10), TopicConfig(), [2, 3, 1]),
    ),
}


@pytest.mark.parametrize("case", GOES)
def test_what_goes(case: str) -> None:
    state, log, limit, wanted = GOES[case]
    config = TopicConfig(retention_bytes=limit) if isinstance(limit, int) else limit
    for off_lineage in (False, True):
        assert numbers(sweep(state, config, logs=[log], off_lineage=off_lineage)) == wanted


def test_the_size_is_not_known_when_it_is_not_known_what_is_copied() -> None:
    """KAFKA-20732: every local segment would count as not copied."""
    state = tier(segment(1, 0, 99, (3, 0)))
    [part] = state
    epoch_3 = replace(LOG, leader_epochs=(EpochEntry(3, 0),))
    assert view_of_log(PARTITION, part.segments, LOG).local_only_bytes is None
    assert view_of_log(PARTITION, part.segments, epoch_3).local_only_bytes == 100


@pytest.mark.parametrize(
    ("version", "max_timestamp_ms", "expires"),
    [
        *((version, NOW_MS - DAY_MS, version < "4.3") for version in ("3.9", "4.2", "4.3", "4.4")),
        *(("4.4", at_ms, True) for at_ms in (NOW_MS - DAY_MS - 1, 1)),
        *(("4.4", at_ms, False) for at_ms in (NOW_MS + 1, 0, -1)),
    ],
)
def test_time(version: str, max_timestamp_ms: int, expires: bool) -> None:
    """Kafka before 4.3 compares with `<=`; segments without a timestamp, or with a future one, stay."""
    state = tier(segment(1, 0, 99, max_timestamp_ms=max_timestamp_ms))
    config = TopicConfig(retention_ms=DAY_MS, kafka_version=KafkaVersion.parse(version))
    assert numbers(sweep(state, config)) == ([1] if expires else [])


def test_what_time_takes_counts_against_the_excess() -> None:
    """The log is 300 bytes above the limit: two segments expire by age, so size deletes one more."""
    state = tier(*(replace(s, max_timestamp_ms=OLD_MS if at < 2 else NOW_MS) for at, s in enumerate(TEN)))
    plan = sweep(state, TopicConfig(retention_ms=DAY_MS, retention_bytes=800))
    assert [(step.details["breach"], step.start_offset) for step in plan.steps] == [
        ("retention.ms", 0),
        ("retention.ms", 100),
        ("retention.bytes", 200),
    ]


@pytest.mark.parametrize(
    ("raised_to", "wanted"), [(0, []), (99, []), (100, [0]), (250, [0, 1]), (1000, list(range(10)))]
)
def test_the_log_start_offset(raised_to: int, wanted: list[int]) -> None:
    """Without topic settings, only segments wholly below the log start are deleted."""
    raised = {TopicPartition("orders", 0): raised_to}
    plan = plan_retention(tier(*TEN), [LOG], {}, now_ms=NOW_MS, log_start_offsets=raised)
    assert numbers(plan) == wanted
    assert {step.details["new_log_start_offset"] for step in plan.steps} <= {raised_to}
    own = replace(LOG, log_start_offset=raised_to)
    assert numbers(sweep(tier(*TEN), logs=[own])) == wanted


@pytest.mark.parametrize("has_log", [True, False])
def test_a_segment_without_an_end_never_expires(has_log: bool) -> None:
    """One wrong metadata record states the largest offset as the end of the third segment."""
    endless = segment(2, 200, LARGEST_OFFSET, max_timestamp_ms=OLD_MS)
    state = tier(*TEN[:2], endless, *TEN[3:])
    plan = sweep(
        state,
        TopicConfig(retention_ms=DAY_MS),
        logs=[LOG] if has_log else [],
        lineages={PARTITION.key: (EpochEntry(0, 0),)},
        topics=CurrentTopics.of([LOG]),
        explained=Selection(),
    )
    assert numbers(plan)[:2] == [0, 1]
    assert 2 not in numbers(plan)
    assert all(step.details["new_log_start_offset"] <= 1000 for step in plan.steps)
    assert f"not understood: the metadata have a segment that ends at offset {LARGEST_OFFSET}" in reasons(
        plan
    )
    kept = {each.segment_id: each.reason.kind for each in plan.kept}
    assert kept[endless.segment_id] is ReasonKind.NOT_UNDERSTOOD


def test_a_log_start_is_only_raised() -> None:
    log = replace(LOG, log_start_offset=300)
    lower = {TopicPartition("orders", 0): 100}
    assert numbers(sweep(tier(*TEN), logs=[log], log_start_offsets=lower)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        (TopicPartition("orders", 0), 1051, "above the high watermark 1050"),
        (TopicPartition("orders", 1), 10, "0 known partitions have this name"),
        (TopicPartition("order", 0), 10, "0 known partitions have this name"),
    ],
)
def test_a_log_start_that_cannot_be(partition: TopicPartition, offset: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sweep(tier(*TEN), log_start_offsets={partition: offset})


def test_a_log_start_needs_to_mean_one_topic() -> None:
    other = TopicIdPartition(OTHER_ID, "orders", 0)
    state = tier(*TEN, segment(30, 0, 99, partition=other))
    raised = {TopicPartition("orders", 0): 100}
    with pytest.raises(UsageError, match="2 known partitions have this name"):
        sweep(state, logs=[], log_start_offsets=raised)
    assert numbers(sweep(state, log_start_offsets=raised)) == [0]


def test_the_log_start_moves_with_each_expiry() -> None:
    plan = sweep(tier(*TEN), TopicConfig(retention_bytes=900))
    assert [step.details["new_log_start_offset"] for step in plan.steps] == [100, 200]
    assert plan.steps[0].details["excess_bytes"] == 200
    assert plan.steps[0].details["segment_size_in_bytes"] == 100


def test_time_facts() -> None:
    [step, *_] = sweep(tier(*TEN), BY_TIME).steps
    assert step.details["cutoff_ms"] == NOW_MS - DAY_MS
    assert step.details["max_timestamp_ms"] == OLD_MS
    assert step.reason == "retention.ms 86400000"


@pytest.mark.parametrize(
    ("epochs", "log_start", "option"),
    [
        (((1, 60),), 60, "--unreferenced-epochs"),
        (((0, 40), (1, 60)), 60, "--off-lineage"),
        (((0, 40), (1, 60)), 59, None),
    ],
)
def test_brokers_delete_a_segment_of_older_leader_epochs_that_sweep_keeps(
    epochs: tuple[tuple[int, int], ...], log_start: int, option: str | None
) -> None:
    """RLMExpirationTask deletes the segments whose leader epochs are all below the first of the log."""
    state = tier(segment(1, 40, 99, (0, 40)), segment(2, 60, 99, (1, 60)))
    logs = [local_log([100], 110, epochs=epochs, log_start_offset=log_start)]
    plan = sweep(state, logs=logs, explained=Selection())
    assert numbers(plan) == []
    is_noted = "brokers would delete 1 more segment (offsets 40 to 99), sweep does not" in reasons(plan)
    found = deleted_by_brokers(plan)
    assert (sorted(found), is_noted) == (([], False) if option is None else ([40], True))
    if option is not None:
        assert f"brokers delete it, sweep does not: it needs {option}" in found[40]
        asked = sweep(state, logs=logs, explained=Selection(), **{option[2:].replace("-", "_"): True})
        assert (numbers(asked), deleted_by_brokers(asked)) == ([1], {})
        assert "brokers would delete" not in reasons(asked)


@pytest.mark.parametrize(("second", "gone"), [(60, True), (70, False)])
def test_brokers_that_go_on_behind_a_hole_also_delete_what_its_leader_epochs_left(
    second: int, gone: bool
) -> None:
    """Segment 9 diverged in epoch 1; brokers delete 0 to 59 and keep 60 to 99, and epoch 2 begins there."""
    state = tier(
        segment(1, 0, 9, (1, 0), max_timestamp_ms=OLD_MS),
        segment(2, 20, 59, (1, 20), max_timestamp_ms=OLD_MS),
        segment(3, 60, 99, *(((1, 60), (2, second)) if second > 60 else ((2, 60),))),
        segment(9, 60, 99, (1, 60)),
    )
    log = local_log([100], 110, epochs=((1, 0), (2, second)))
    plan = sweep(state, BY_TIME, logs=[log], explained=Selection())
    assert numbers(plan) == [1]
    found = {each.segment_id: each for each in plan.kept if each.action is NextAction.DELETE}
    assert found.keys() == {segment_id(2), *([segment_id(9)] if gone else [])}
    assert all("sweep does not: the tier has a hole from 10 to 19" in each.reason for each in found.values())
    assert ("brokers would delete 1 more segment (offsets 60 to 99), sweep does not" in reasons(plan)) is gone


def test_brokers_keep_the_first_of_two_copies_whatever_its_leader_epochs() -> None:
    copies = segment(1, 0, 39), segment(2, 40, 99), segment(3, 0, 39)
    state = tier(*copies, segment(4, 30, 99, (1, 30)))
    log = local_log([100], 130, epochs=((1, 30),), log_start_offset=30)
    kept = sweep(state, logs=[log], explained=Selection()).kept
    assert {each.segment_id: each.action for each in kept} == {
        segment_id(1): NextAction.NONE,
        segment_id(2): NextAction.DELETE,
        segment_id(3): NextAction.DELETE,
        segment_id(4): NextAction.NONE,
    }


def test_begun_deletions_are_resumed_wherever_they_are() -> None:
    state = tier(*TEN, segment(20, 500, 599, (3, 500)))
    for number in (5, 8):
        advance(state, TEN[number], S.DELETE_SEGMENT_STARTED)
    plan = sweep(state, logs=[replace(LOG, leader_epochs=(EpochEntry(0, 0), EpochEntry(3, 1000)))])
    assert numbers(plan) == [5, 8]
    assert {step.details["breach"] for step in plan.steps} == {"resume"}
    assert not any("new_log_start_offset" in step.details for step in plan.steps)


@pytest.mark.parametrize(
    ("version", "number", "epoch", "config", "later"),
    [
        # The run reaches it, stops before it, or its epochs are older than the log's after the run.
        ("4.4", 0, 0, TopicConfig(), None),
        ("4.4", 5, 0, BY_TIME, None),
        ("4.4", 5, 0, TopicConfig(), "retention has reached it"),
        ("4.4", 5, 3, TopicConfig(), "the log has no leader epoch up to 3"),
        ("4.4", 5, 3, BY_TIME, None),
        # Kafka 3.9 deletes it only by a limit.
        ("3.9", 0, 0, TopicConfig(), "retention has reached it"),
        ("3.9", 0, 0, BY_TIME, None),
        ("3.9", 0, 0, TopicConfig(retention_bytes=1000), None),
        ("3.9", 0, 0, TopicConfig(retention_bytes=1001), "retention has reached it"),
    ],
)
def test_brokers_leave_a_begun_deletion_until_their_run_reaches_it(
    version: str, number: int, epoch: int, config: TopicConfig, later: str | None
) -> None:
    state = tier(*(each for at, each in enumerate(TEN) if at != number))
    begun = replace(TEN[number], segment_leader_epochs=((epoch, 100 * number),))
    advance(state, begun, S.DELETE_SEGMENT_STARTED)
    log = replace(LOG, leader_epochs=(EpochEntry(0, 0), EpochEntry(5, 1000)))
    config = replace(config, kafka_version=KafkaVersion.parse(version))
    plan = sweep(state, config, logs=[log], explained=Selection())
    assert numbers(plan)[0] == number
    (row,) = (each for each in plan.decisions(NOW_MS) if each.segment_id == begun.segment_id)
    assert row.reason.facts.get("later") == later
    assert row.reason.endswith("DELETE_SEGMENT_STARTED" if later is None else later)
    is_next = row.action is NextAction.DELETE, row.due_ms == NOW_MS
    assert is_next == (later is None, later is None)


def test_nothing_expires_beyond_a_hole() -> None:
    state = tier(*(s for s in TEN if s.start_offset not in {300, 400}))
    plan = sweep(state, BY_TIME)
    assert numbers(plan) == [0, 1, 2]
    assert "a hole from 300 to 499: nothing beyond it expires in this run" in reasons(plan)
    # An operator can raise the log start: all segments below it are deleted, also beyond holes.
    raised = {TopicPartition("orders", 0): 600}
    found = sweep(state, BY_TIME, log_start_offsets=raised)
    assert numbers(found) == [0, 1, 2, 5, 6, 7, 8, 9]


def deleted_by_brokers(plan: Plan) -> dict[int, str]:
    """Return the start offsets of the segments that brokers delete and `sweep` keeps, with the reasons."""
    return {each.start_offset: str(each.reason) for each in plan.kept if each.action is NextAction.DELETE}


def require_deleted_by_brokers(plan: Plan, starts: list[int], why: str) -> None:
    found = deleted_by_brokers(plan)
    assert sorted(found) == starts
    assert all(why in reason for reason in found.values())


def test_brokers_go_on_behind_a_hole_and_delete_the_unfinished_copy_in_it() -> None:
    """Nobody copies the segment from offset 300 any more: later ones were copied."""
    state = TierState()
    for each in TEN:
        advance(state, each, *([S.COPY_SEGMENT_FINISHED] if each.start_offset != 300 else []))
    plan = sweep(state, BY_TIME, explained=Selection())
    assert numbers(plan) == [0, 1, 2]
    why = "sweep does not: the tier has a hole from 300 to 399"
    require_deleted_by_brokers(plan, [300, 400, 500, 600, 700, 800, 900], why)
    assert "brokers would delete 7 more segments (offsets 300 to 999), sweep does not" in reasons(plan)


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0", "4.4.0"])
def test_brokers_delete_a_segment_without_a_timestamp_and_those_behind_it(version: str) -> None:
    """RemoteLogRetentionHandler compares every largest timestamp with the cutoff."""
    segments = [replace(s, max_timestamp_ms=0 if at == 1 else OLD_MS) for at, s in enumerate(TEN[:3])]
    config = TopicConfig(retention_ms=DAY_MS, kafka_version=KafkaVersion.parse(version))
    plan = sweep(tier(*segments), config, explained=Selection())
    assert numbers(plan) == [0]
    require_deleted_by_brokers(plan, [100, 200], "from offset 100 is 0, which is no time")


def test_brokers_count_every_copy_of_an_offset() -> None:
    """Two segments of 100 bytes have the offsets from 900 on, and the log has 100 bytes more."""
    state = tier(*TEN, segment(20, 900, 999, max_timestamp_ms=OLD_MS))
    plan = sweep(state, TopicConfig(retention_bytes=1000), explained=Selection())
    assert numbers(plan) == [0]
    why = "brokers also count 100 bytes of offsets that several segments have"
    require_deleted_by_brokers(plan, [100], why)


def test_brokers_delete_nothing_behind_a_segment_that_only_a_later_run_deletes() -> None:
    """The excess of their next run, 160 bytes, has the copies from 10 on, not the 90 bytes from 20 on."""
    state = tier(segment(1, 0, 9, size=10))
    advance(state, segment(2, 10, 19, size=60))
    for number, size in ((3, 60), (4, 90), (5, 30), (6, 200)):
        start = 10 * number - 20
        advance(state, segment(number, start, start + 9, size=size), S.COPY_SEGMENT_FINISHED)
    log = local_log([50], 50, epochs=((0, 10),), log_start_offset=10, sizes=[0])
    plan = sweep(state, TopicConfig(retention_bytes=230), logs=[log], explained=Selection())
    assert numbers(plan) == [1, 3, 4, 2]
    assert deleted_by_brokers(plan) == {}
    assert "brokers would delete" not in reasons(plan)


@pytest.mark.parametrize(
    ("version", "number", "epoch", "log_start", "wanted"),
    [
        *(("3.9", 0, 1, 100, [100]), ("3.9", 0, 0, 100, []), ("4.0", 0, 1, 100, []), ("4.4", 0, 1, 100, [])),
        # The copy failed. Of the segments that 3.9 counts, it deletes the oldest, also if that is this one.
        *(("3.9", 5, 1, 0, [0]), ("3.9", 5, 0, 0, []), ("4.0", 5, 1, 0, []), ("3.9", 0, 1, 0, [])),
    ],
)
def test_before_4_0_brokers_count_segments_whose_deletion_has_begun(
    version: str, number: int, epoch: int, log_start: int, wanted: list[int]
) -> None:
    """The deletion of one segment, of `epoch`, did not end; 900 bytes in the tier and 100 here remain."""
    epochs = {number: epoch}
    own = (replace(s, segment_leader_epochs=((epochs.get(at, 1), 100 * at),)) for at, s in enumerate(TEN))
    state = tier(*own)
    advance(state, TEN[number], S.DELETE_SEGMENT_STARTED)
    log = replace(LOG, log_start_offset=log_start, leader_epochs=(EpochEntry(1, log_start),))
    config = TopicConfig(retention_bytes=1000, kafka_version=KafkaVersion.parse(version))
    plan = sweep(state, config, logs=[log], explained=Selection())
    assert numbers(plan) == [number]
    why = "brokers also count 100 bytes of segments whose deletion has begun"
    require_deleted_by_brokers(plan, wanted, why)


@pytest.mark.parametrize(("version", "held_by"), [("3.9", segment_id(0)), ("4.4", None)])
def test_before_4_0_segments_behind_a_begun_deletion_wait_until_it_expires(
    version: str, held_by: str | None
) -> None:
    """It is young; sweep stops at a hole from 300 on, and brokers of 4.0 on do not."""
    state = tier(*(each for each in TEN[1:] if each.start_offset != 300))
    advance(state, replace(TEN[0], max_timestamp_ms=NOW_MS), S.DELETE_SEGMENT_STARTED)
    config = replace(BY_TIME, kafka_version=KafkaVersion.parse(version))
    plan = sweep(state, config, explained=Selection())
    assert numbers(plan) == [0, 1, 2]
    (row,) = (each for each in plan.kept if each.start_offset == 400)
    assert row.reason.facts.get("held_by") == held_by
    assert row.due_ms == (NOW_MS if held_by is None else NOW_MS + DAY_MS)


@pytest.mark.parametrize(
    ("version", "local", "last", "wanted"),
    [
        ("4.3", [999], 999, [0]),
        ("4.3", [998], 998, []),
        ("4.3", [], 999, []),
        ("3.9", [900, 999], 999, [0]),
        ("4.4", [999], 999, []),
        # The replica rolled its segments at other offsets than the leader that copied them.
        ("4.3", [900], 999, []),
        ("4.3", [999], 998, [0]),
    ],
)
def test_before_4_4_brokers_count_the_local_segment_from_the_last_copied_offset_on(
    version: str, local: list[int], last: int, wanted: list[int]
) -> None:
    """The tier has 1,000 bytes, 100 from offset `last` on; the log has segments at `local` and 1000."""
    state = tier(*TEN[:9], segment(9, 900, last - 1, size=0), segment(10, last, 999))
    log = local_log([*local, 1000], 1050)
    config = TopicConfig(retention_bytes=1100, kafka_version=KafkaVersion.parse(version))
    plan = sweep(state, config, logs=[log], explained=Selection())
    assert numbers(plan) == []
    why = "brokers also count 100 bytes of the local segment from the last copied offset on"
    require_deleted_by_brokers(plan, wanted, why)


def test_without_a_log_brokers_delete_at_least_what_the_tier_has_above_the_limit() -> None:
    plan = sweep(
        tier(*TEN),
        TopicConfig(retention_bytes=850),
        logs=[],
        lineages={PARTITION.key: (EpochEntry(0, 0),)},
        topics=CurrentTopics.of([LOG]),
        explained=Selection(),
    )
    assert plan.steps == ()
    assert sorted(deleted_by_brokers(plan)) == [0]
    kept = [str(each.reason) for each in plan.kept if each.action is NextAction.NONE]
    assert len(kept) == 9
    assert all("the size of the log is not known without its local part" in reason for reason in kept)


def test_with_cut_leader_epochs_brokers_still_apply_the_limits() -> None:
    """Epoch 1, from offset 500 on, was cut from the checkpoint."""
    state = tier(
        *(replace(s, segment_leader_epochs=((int(at > 4), s.start_offset),)) for at, s in enumerate(TEN))
    )
    log = replace(LOG, leader_epochs=(EpochEntry(0, 0), EpochEntry(2, 1000)))
    plan = sweep(state, TopicConfig(retention_bytes=450), logs=[log], explained=Selection())
    assert plan.steps == ()
    assert "the leader epochs of the log were cut" in deleted_by_brokers(plan)[0]


@pytest.mark.parametrize(("retention_bytes", "wanted"), [(0, [0, 20, 45]), (150, [0, 45]), (-1, [])])
def test_with_cut_leader_epochs_brokers_delete_what_the_log_start_leaves_behind(
    retention_bytes: int, wanted: list[int]
) -> None:
    """[45, 52] is of epoch 0; brokers that delete [0, 19] have none older than 5 any more."""
    state = tier(
        segment(1, 0, 19, (0, 0), (2, 6), (5, 7)), segment(2, 20, 39, (5, 20)), segment(3, 45, 52, (0, 45))
    )
    log = local_log([60], 65, epochs=((0, 0), (2, 6), (5, 7)), sizes=[50])
    plan = sweep(state, TopicConfig(retention_bytes=retention_bytes), logs=[log], explained=Selection())
    assert plan.steps == ()
    require_deleted_by_brokers(plan, wanted, "sweep does not: the leader epochs of the log were cut")


def test_a_hole_nobody_is_waiting_beyond_is_not_mentioned() -> None:
    state = tier(*(s for s in TEN if s.start_offset != 300))
    assert sweep(state, TopicConfig(retention_bytes=800)).skipped == ()


def test_what_another_segment_can_be_read_for_is_no_hole() -> None:
    """[100, 199] of epoch 0 diverged at 150; the new leader's copies begin there."""
    diverged = segment(2, 100, 199, (0, 100), max_timestamp_ms=OLD_MS)
    state = tier(TEN[0], diverged, segment(3, 150, 249, (4, 150), max_timestamp_ms=OLD_MS))
    log = local_log([250], 260, epochs=((0, 0), (4, 150)))
    assert numbers(sweep(state, BY_TIME, logs=[log])) == [0, 3]
    plan = sweep(state, BY_TIME, logs=[log], off_lineage=True)
    assert numbers(plan) == [0, 3, 2]


def test_without_a_log_time_expires_and_size_does_not() -> None:
    state = tier(*(replace(s, max_timestamp_ms=OLD_MS if at < 2 else NOW_MS) for at, s in enumerate(TEN)))
    plan = sweep(state, ALL_GOES, logs=[], lineages={(TOPIC_ID, 0): (EpochEntry(0, 0),)})
    assert numbers(plan) == [0, 1]
    assert "retention.bytes deletes nothing" in reasons(plan)
    nothing = sweep(state, ALL_GOES, logs=[])
    assert numbers(nothing) == []
    assert "no leader epochs are known" in reasons(nothing)


def _marked(state: TierState) -> None:
    deletion(state, PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)


def _recreated(partition: int) -> LocalLog:
    return replace(LOG, topic_id_partition=TopicIdPartition(OTHER_ID, "orders", partition))


def _later_leader(state: TierState) -> None:
    advance(state, segment(40, 1000, 1010, (9, 1000)))


@pytest.mark.parametrize(
    ("change", "config", "logs", "reason"),
    [
        (quarantine, ALL_GOES, [LOG], "could not be understood"),
        (_marked, ALL_GOES, [LOG], "is being deleted (DELETE_PARTITION_MARKED)"),
        (_later_leader, ALL_GOES, [LOG], "latest leader epoch is 0, the tier knows epoch 9"),
        (None, replace(ALL_GOES, cleanup_policy=frozenset({"compact"})), [LOG], "cleanup.policy=compact"),
        (None, replace(ALL_GOES, remote_storage_enable=False), [LOG], "remote.storage.enable=false"),
        (None, ALL_GOES, [replace(LOG, leader_epochs=())], "no leader epochs are known"),
        (None, ALL_GOES, [_recreated(0)], f"recreated: the log directories know it as {OTHER_ID}"),
        (None, ALL_GOES, [LOG, _recreated(3)], "2 topics of this name"),
    ],
)
def test_what_is_not_certain_is_not_deleted(
    change: Any, config: TopicConfig, logs: list[Any], reason: str
) -> None:
    state = tier(*TEN)
    if change:
        change(state)
    plan = sweep(state, config, logs=logs, off_lineage=True, unreferenced_epochs=True)
    assert plan.steps == ()
    assert reason in reasons(plan)


@pytest.mark.parametrize(("skew_ms", "refused"), [(300_000, False), (300_001, True)])
@pytest.mark.parametrize(
    ("is_now_given", "message", "hint"),
    [
        (False, "the clock is at", "set the clock of this machine, or of the broker that wrote the event"),
        (True, "--now is at", "name a later --now, or leave it out"),
    ],
)
def test_clock_skew(skew_ms: int, refused: bool, is_now_given: bool, message: str, hint: str) -> None:
    state = tier(segment(1, 0, 99, event_timestamp_ms=NOW_MS + skew_ms))
    if refused:
        with pytest.raises(SafetyRefusal, match=message) as e:
            sweep(state, is_now_given=is_now_given)
        assert e.value.hint == hint
    else:
        assert numbers(sweep(state, is_now_given=is_now_given)) == []


def test_segments_of_another_topic_of_the_same_name_are_untouched() -> None:
    other = [replace(s, topic_id=OTHER_ID, segment_id=segment_id(100 + at)) for at, s in enumerate(TEN)]
    plan = sweep(tier(*TEN, *other), ALL_GOES)
    assert {step.topic_id for step in plan.steps} == {PARTITION.topic_id}
    assert "the topic was recreated" in reasons(plan)


@pytest.mark.parametrize(
    ("first_ms", "wrong"),
    [(-1, "-1 is no time"), (0, "0 is no time"), (AHEAD_MS, f"{iso_utc(AHEAD_MS)} is in the future")],
)
def test_a_segment_that_stalls_retention_is_named(first_ms: int, wrong: str) -> None:
    segments = [replace(s, max_timestamp_ms=first_ms if at == 0 else OLD_MS + at) for at, s in enumerate(TEN)]
    config = TopicConfig(retention_ms=DAY_MS)
    plan = sweep(tier(*segments), config)
    assert numbers(plan) == []
    [note] = [skip.reason for skip in plan.skipped if "stalled" in skip.reason]
    since, stalling = iso_utc(OLD_MS + 1 + DAY_MS), segments[0].segment_id
    assert f"retention.ms is stalled (since {since}) by segment {stalling}" in note
    assert f"from offset 0: its largest timestamp {wrong}" in note


def test_no_stall_is_reported_where_retention_goes_on() -> None:
    ordinary = [replace(s, max_timestamp_ms=NOW_MS) for s in TEN]
    behind = [replace(s, max_timestamp_ms=-1 if at == 5 else NOW_MS) for at, s in enumerate(TEN)]
    for segments in (ordinary, behind):
        plan = sweep(tier(*segments), BY_TIME)
        assert not [skip for skip in plan.skipped if "stalled" in skip.reason]
