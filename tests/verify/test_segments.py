"""`segments --check` finds each problem, stalled retention as `sweep` decides it, and nothing else."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tierctl.checks.findings import Finding, FindingKind
from tierctl.checks.segments import (
    LogFacts,
    Retention,
    check_latest_tiered,
    check_offsets,
    check_partition,
    check_segments,
)
from tierctl.model import (
    EpochEntry,
    IndexType,
    LocalLog,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    TopicConfig,
)
from tierctl.model.choices import Severity
from tierctl.model.times import iso_utc
from tierctl.plan.copy import plan_copy
from tierctl.plan.dangling import Dangling
from tierctl.plan.expiry import plan_retention
from tierctl.plan.steps import Action
from tierctl.plan.views import view_of_log
from tierctl.read.partition_reader import ReadablePartition, tiered_partitions
from tierctl.read.readable_log import lineage_from_segments
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import TierState
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint
from tierctl.wire.metadata.values import encode

from tests.plan.tier import DAY_MS, NOW_MS, PARTITION, local_log, segment, tier
from tests.state.folding import cache_of, folded
from tests.state.histories import ORDERS, S, finished, segment_id, started, updated
from tests.support.amounts import examples

K = FindingKind
NOTHING = view_of_log(
    ORDERS, PartitionSegments.of_cache(RemoteLogMetadataCache.empty()), local_log([50], 100, partition=ORDERS)
)
FINE = LogFacts.of(NOTHING, last_stable_offset=90)


@pytest.mark.parametrize(
    ("change", "remote", "broken"),
    [
        ({}, (10, 80), []),
        ({}, (None, None), []),
        ({"last_stable_offset": 100}, (10, 100), []),
        ({"last_stable_offset": 101}, (10, 80), ["Lz (local log end) 100 is below Ly"]),
        ({"local_start_offset": 91}, (10, 80), ["Ly (last stable offset) 90 is below Lx"]),
        ({}, (10, 91), ["Ly (last stable offset) 90 is below Ry"]),
        ({}, (81, 80), ["Ry (remote log end) 80 is below Rx"]),
    ],
    ids=["all hold", "nothing remote", "all equal", "Lz >= Ly", "Ly >= Lx", "Ly >= Ry", "Ry >= Rx"],
)
def test_offsets(change: dict[str, int], remote: tuple[int | None, int | None], broken: list[str]) -> None:
    start, end = remote
    findings = list(check_offsets(ORDERS, replace(FINE, **change), remote_start=start, remote_end=end))
    assert [finding.found.rpartition(" (")[0] for finding in findings] == broken
    assert all((f.check, f.severity, f.topic) == (K.OFFSETS, Severity.ERROR, "orders") for f in findings)


@pytest.mark.parametrize(
    ("latest_tiered", "copied", "log_start", "severity"),
    [
        (79, 79, 10, None),
        (80, 79, 10, Severity.ERROR),
        (0, -1, 0, Severity.ERROR),
        (78, 79, 10, Severity.WARNING),
        # Every tiered segment has expired, and its events are deleted.
        (79, -1, 80, None),
        (79, -1, 79, Severity.ERROR),
    ],
)
def test_latest_tiered(latest_tiered: int, copied: int, log_start: int, severity: Severity | None) -> None:
    found = check_latest_tiered(ORDERS, latest_tiered, copied=copied, log_start_offset=log_start)
    assert [(f.check, f.severity) for f in found] == ([(K.OFFSETS, severity)] if severity else [])


LOG = replace(FINE, lineage=Lineage([(0, 0), (2, 50)]), local_start_offset=60)
WHOLE = [*finished(1, 0, 49), *finished(2, 50, 69, ((2, 50),))]


def told(finding: Finding) -> tuple[FindingKind, Severity, int | None, int | None, int | None]:
    number = None if finding.segment_id is None else int.from_bytes(finding.segment_id.bytes, "big")
    return finding.check, finding.severity, number, finding.start_offset, finding.end_offset


E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741


@pytest.mark.parametrize(
    ("events", "log", "gaps"),
    [
        (WHOLE, LOG, []),
        ([], replace(LOG, local_start_offset=0), []),
        ([], None, []),
        (WHOLE[:2], LOG, [(50, 59)]),
        (WHOLE[2:], LOG, [(0, 49)]),
        (WHOLE[2:], replace(LOG, local_start_offset=None), []),
        ([*finished(1, 0, 19), *finished(2, 30, 69, ((0, 30), (2, 50)))], LOG, [(20, 29)]),
        (
            [*finished(1, 0, 19), *finished(2, 30, 49), *finished(3, 80, 89, ((2, 80),))],
            replace(LOG, local_start_offset=None),
            [(20, 29), (50, 79)],
        ),
    ],
    ids=[
        *("sound", "nothing tiered", "no log", "the tier ends early", "the tier begins late"),
        *("as late as the log may", "hole", "two holes"),
    ],
)
def test_gaps(events: list[MetadataEvent], log: LogFacts | None, gaps: list[tuple[int, int]]) -> None:
    """test_columns.py compares the other findings with those of a plain loop."""
    known = PartitionSegments.of_cache(cache_of(events))
    findings = list(check_segments(ORDERS, known, log and replace(log, segments=known)))
    assert [told(finding) for finding in findings] == [(K.GAP, E, None, *gap) for gap in gaps]


HOUR_MS = 3_600_000
BEGUN = started(1, 0, 9)
BY_1 = "the copy was started by broker 1 "
REPLACED = "; a later copy was made instead"
WENT_ON = "; copying went on, but no finished copy has its offsets"


@pytest.mark.parametrize(
    ("events", "hours", "limit_hours", "severity", "says"),
    [
        ([BEGUN], 0.5, 1, I, BY_1 + "less than 1h ago"),
        ([BEGUN], 1, 1, I, BY_1 + "less than 1h ago"),
        ([BEGUN], 1.1, 1, W, BY_1 + "and never finished"),
        ([BEGUN], 1.1, 36, I, BY_1 + "less than 1d12h ago"),
        ([BEGUN, *finished(2, 0, 9)], 1.1, 1, I, BY_1 + "less than 1d ago" + REPLACED),
        ([BEGUN, *finished(2, 0, 9)], 24.1, 48, W, BY_1 + "and never finished" + REPLACED),
        (
            [BEGUN, *finished(2, 10, 19)], 1.1, 1, I,
            BY_1 + "less than 1d ago" + WENT_ON,
        ),
        # The copies before it, and copies that end below it, did not replace it.
        ([*finished(2, 10, 29), started(1, 20, 39)], 1.1, 1, W, BY_1 + "and never finished"),
        ([started(1, 20, 39), *finished(2, 0, 19)], 1.1, 1, W, BY_1 + "and never finished"),
        (
            [BEGUN, started(2, 0, 9, broker_id=2, event_timestamp_ms=BEGUN.event_timestamp_ms + 1),
             updated(2, S.DELETE_SEGMENT_STARTED), updated(2, S.DELETE_SEGMENT_FINISHED)],
            1.1, 1, I, BY_1 + "less than 1d ago" + WENT_ON,
        ),
        ([replace(BEGUN, broker_id=-1)], 1.1, 1, W, "the copy was started by tierctl and never finished"),
    ],
)  # fmt: skip
def test_unfinished_copies(
    events: list[MetadataEvent], hours: float, limit_hours: int, severity: Severity, says: str
) -> None:
    (part,) = folded([encode(event) for event in events])
    now_ms = BEGUN.event_timestamp_ms + round(hours * HOUR_MS)
    findings = check_segments(ORDERS, part.segments, None, now_ms, limit_hours * HOUR_MS)
    found = [f for f in findings if f.check is K.DANGLING_COPY]
    assert [(f.segment_id, f.severity, f.found) for f in found] == [(segment_id(1), severity, says)]


def test_doubled_segment_is_named_beside_the_one_that_is_read() -> None:
    events = [*finished(1, 0, 19), *finished(2, 20, 49), *finished(3, 0, 19)]
    (finding,) = check_segments(ORDERS, PartitionSegments.of_cache(cache_of(events)), None)
    assert told(finding) == (K.DOUBLED_SEGMENT, W, 1, 0, 19)
    assert str(segment_id(3)) in finding.found


@pytest.mark.parametrize(
    "start",
    [{}, {"is_log_start_known": False}, {"is_log_start_doubtful": True}],
    ids=["known", "unknown", "doubtful"],
)
def test_the_fix_of_a_dangling_copy_is_the_one_that_copy_does_not_refuse(start: dict[str, bool]) -> None:
    """Below a log start that is not known, its objects may be the only ones."""
    state = folded([encode(event) for event in (BEGUN, *finished(2, 10, 29))])
    own = replace(local_log([20, 30], 40, log_start_offset=10, epochs=((0, 10),), partition=ORDERS), **start)
    now_ms = BEGUN.event_timestamp_ms + 48 * HOUR_MS
    (readable,) = tiered_partitions(state, [own], [ORDERS])
    found = check_partition(readable, None, pytest.fail, now_ms=now_ms)
    (advised,) = (each.command for each in found if each.check is K.DANGLING_COPY)
    rule = Dangling(now_ms=now_ms)
    plan = plan_copy(state, [own], {}, assumed_enabled={"orders"}, dangling=rule)
    is_deleted = any(step.action is Action.DELETE_SEGMENT for step in plan.steps)
    assert is_deleted is (not start)
    assert advised == ("copy --clean-dangling" if is_deleted else "verify --plan-out plan.json")


DOUBLED = [
    *(*finished(1, 0, 19), *finished(2, 20, 49), *finished(3, 0, 19), *finished(4, 20, 49, ((2, 20),))),
    *(updated(2, S.DELETE_SEGMENT_STARTED), updated(2, S.DELETE_SEGMENT_FINISHED)),
    *(updated(3, S.DELETE_SEGMENT_STARTED), updated(3, S.DELETE_SEGMENT_FINISHED)),
]
"""Segment 1 was copied again as segment 3, while a later segment of its epoch was there; both are deleted."""


ALWAYS = {"", "--unreferenced-epochs", "--off-lineage"}


def judged(events: list[MetadataEvent], own: LocalLog) -> tuple[Finding, set[str]]:
    """Return the finding about segment 1, and the options of `sweep` with which it is deleted."""
    state = folded([encode(event) for event in events])
    (part,) = state
    log = LogFacts.of(view_of_log(ORDERS, part.segments, own))
    found = {f.segment_id: f for f in check_segments(ORDERS, part.segments, log)}
    return found[segment_id(1)], deleting(state, own)


def deleting(state: TierState, own: LocalLog) -> set[str]:
    """Return the options of `sweep`, "" for none, with which it plans to delete segment 1."""
    found = set()
    for asked in ALWAYS:
        options = {asked[2:].replace("-", "_"): True} if asked else {}
        plan = plan_retention(state, [own], {}, now_ms=1 << 52, **options)
        if segment_id(1) in {step.segment_id for step in plan.steps}:
            found.add(asked)
    return found


DIVERGED = [*finished(1, 40, 99, ((0, 40),)), *finished(2, 50, 99, ((1, 50),))]
"""Segment 1 left the lineage at offset 50."""


@pytest.mark.parametrize(
    ("kind", "epochs", "log_start", "option", "enough"),
    [
        # In the lineage, above and below the log start.
        (K.DOUBLED_SEGMENT, ((0, 0), (2, 20)), 0, None, set()),
        (K.DOUBLED_SEGMENT, ((0, 0), (2, 20)), 19, None, set()),
        (K.DOUBLED_SEGMENT, ((0, 0), (2, 20)), 20, "", ALWAYS),
        # The checkpoint no longer has the epoch.
        (K.DOUBLED_SEGMENT, ((2, 20),), 20, "", ALWAYS),
        (K.DOUBLED_SEGMENT, ((2, 15),), 15, "--unreferenced-epochs", ALWAYS - {""}),
        # The checkpoint still has the epoch, which ends below the log start.
        (K.DOUBLED_SEGMENT, ((0, 0), (1, 5), (2, 15)), 15, "--off-lineage", {"--off-lineage"}),
        (K.DOUBLED_SEGMENT, ((0, 5), (1, 10), (2, 15)), 7, None, set()),
        (K.DIVERGENT_SEGMENT, ((0, 0), (1, 50)), 0, None, set()),
        (K.DIVERGENT_SEGMENT, ((0, 0), (1, 50)), 49, None, set()),
        (K.DIVERGENT_SEGMENT, ((0, 0), (1, 50)), 50, "--off-lineage", {"--off-lineage"}),
        (K.DIVERGENT_SEGMENT, ((1, 50),), 50, "--unreferenced-epochs", ALWAYS - {""}),
        # The log start is raised in the state directory only.
        (K.BELOW_LOG_START, ((0, 0), (1, 50)), 100, "--off-lineage", {"--off-lineage"}),
        (K.BELOW_LOG_START, ((1, 50),), 100, "", ALWAYS),
        (K.BELOW_LOG_START, ((0, 0), (2, 50)), 100, "--off-lineage", {"--off-lineage"}),
        (K.BELOW_LOG_START, (), 100, None, set()),
    ],
)
def test_the_fix_of_a_segment_is_the_sweep_that_deletes_it(
    kind: FindingKind,
    epochs: tuple[tuple[int, int], ...],
    log_start: int,
    option: str | None,
    enough: set[str],
) -> None:
    is_doubled = kind is K.DOUBLED_SEGMENT
    events, bases, end = (DOUBLED, [10, 70], 90) if is_doubled else (DIVERGED, [110], 120)
    own = local_log(bases, end, epochs=epochs, log_start_offset=log_start, partition=ORDERS)
    found, deleted_with = judged(events, own)
    assert (found.check, found.command) == (kind, None if option is None else f"sweep {option}".rstrip())
    if not is_doubled:
        assert ("now" in found.fix) is (option is not None)
        # Without entries in the checkpoint, no log start lets brokers delete it.
        assert ("later leader epoch" in found.fix) is (option is None and bool(epochs))
    assert deleted_with == enough


@pytest.mark.parametrize(
    ("log_start", "fix", "enough"),
    [
        (10, "sweep does not delete it before the leader epochs that were cut are back", set()),
        (20, "sweep deletes it now", ALWAYS),
    ],
)
def test_the_fix_of_a_doubled_segment_beside_a_cut_checkpoint(
    log_start: int, fix: str, enough: set[str]
) -> None:
    copied = [*finished(1, 0, 19), *finished(2, 20, 49), *finished(3, 0, 19)]
    own = local_log([110], 120, epochs=((4, 100),), log_start_offset=log_start, partition=ORDERS)
    found, deleted_with = judged([*copied, *finished(4, 50, 99, ((2, 50),))], own)
    assert (found.check, found.fix) == (K.DOUBLED_SEGMENT, fix)
    assert deleted_with == enough


@dataclass(frozen=True)
class Checkpoint:
    """The leader-epoch index of every segment."""

    entries: tuple[EpochEntry, ...]

    def get(self, _metadata: RemoteLogSegmentMetadata, _kind: IndexType) -> bytes:
        return write_leader_epoch_checkpoint(self.entries)


def advised(state: TierState, entries: tuple[EpochEntry, ...]) -> Iterator[Finding]:
    """Yield the findings without a log, each of whose commands of `sweep` deletes the segment now."""
    (part,) = state
    readable = ReadablePartition(ORDERS, part.cache, ())
    for finding in check_partition(readable, Checkpoint(entries), lambda _: None, now_ms=NOW_MS):
        yield finding
        if finding.command is not None and finding.command.startswith("sweep"):
            asked = {option[2:].replace("-", "_"): True for option in finding.command.split()[1:]}
            lineages = {ORDERS.key: entries}
            plan = plan_retention(state, [], {}, now_ms=1 << 52, lineages=lineages, **asked)
            assert finding.segment_id in {step.segment_id for step in plan.steps}


def test_without_a_log_the_log_starts_where_sweep_starts_it() -> None:
    """The index of the newest segment is that of a checkpoint which was cut."""
    events = [*finished(1, 5, 9), *finished(2, 3, 9, ((1, 3),)), *finished(3, 10, 19, ((2, 10),))]
    state = folded([encode(event) for event in events])
    found = list(advised(state, (EpochEntry(2, 10),)))
    assert [told(finding) for finding in found] == [(K.CUT_EPOCHS, E, None, 3, 9)]


@examples(300)
@given(st.lists(st.tuples(st.integers(0, 2), *[st.integers(0, 9)] * 2), min_size=1, max_size=5), st.data())
def test_without_a_log_sweep_deletes_what_its_fix_says(
    copied: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """The index is that of a checkpoint which lost entries, or began with a raised log start."""
    segments = [finished(n, at, at + more, ((epoch, at),)) for n, (epoch, at, more) in enumerate(copied)]
    state = folded([encode(event) for events in segments for event in events])
    (part,) = state
    newest, known = part.segments.newest(), lineage_from_segments(part.segments)
    without, start = data.draw(st.integers(0, len(known.entries) - 1)), data.draw(st.integers(0, 9))
    entries = Lineage(known.entries[without:]).truncate_from_start(start).entries
    # verify reads no index that is not of its segment.
    assume(newest is not None and Lineage(entries).contains(newest, newest.end_offset + 1))
    deque(advised(state, entries), maxlen=0)


OWN_LOG = local_log([400], 410)
RETENTION_MS = 2 * DAY_MS
OLD_MS = NOW_MS - 10 * DAY_MS


def segments(*times_ms: int) -> list[RemoteLogSegmentMetadata]:
    return [segment(n, 100 * n, 100 * n + 99, max_timestamp_ms=at) for n, at in enumerate(times_ms)]


def checked(state: TierState, config: TopicConfig | None) -> Iterator[Finding]:
    readable = ReadablePartition(PARTITION, state.partitions[PARTITION.key].cache, (OWN_LOG,))
    retention = Retention(NOW_MS, config)
    yield from check_partition(readable, None, pytest.fail, now_ms=NOW_MS, retention=retention)


DAYS = TopicConfig(retention_ms=RETENTION_MS)


@pytest.mark.parametrize(
    ("times_ms", "config", "stalled", "since_ms"),
    [
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), DAYS, 0, OLD_MS + RETENTION_MS),
        ((NOW_MS + 1, OLD_MS + 5, OLD_MS, OLD_MS), DAYS, 0, OLD_MS + RETENTION_MS),
        ((OLD_MS, NOW_MS + 1, OLD_MS + 7, OLD_MS + 9), DAYS, 1, OLD_MS + 7 + RETENTION_MS),
        ((OLD_MS, NOW_MS + 1, NOW_MS, NOW_MS), DAYS, 1, None),
        # Brokers delete a segment without a timestamp, and what follows it.
        ((OLD_MS, 0, NOW_MS, NOW_MS), DAYS, None, None),
        ((-1, OLD_MS, OLD_MS, OLD_MS), DAYS, None, None),
        ((OLD_MS, OLD_MS, NOW_MS, 0), DAYS, None, None),
        ((OLD_MS,) * 4, DAYS, None, None),
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), TopicConfig.from_settings({"retention.ms": "-1"}), None, None),
        # retention.bytes deletes the segment whatever its timestamp is.
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), replace(DAYS, retention_bytes=0), None, None),
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), replace(DAYS, remote_storage_enable=False), None, None),
    ],
)
def test_stalled_retention(
    times_ms: tuple[int, ...], config: TopicConfig, stalled: int | None, since_ms: int | None
) -> None:
    made = segments(*times_ms)
    state = tier(*made)
    found = [each for each in checked(state, config) if each.check is K.STALLED_RETENTION]
    plan = plan_retention(state, [OWN_LOG], {"orders": config}, now_ms=NOW_MS)
    reasons = [skip.reason for skip in plan.skipped if "stalled" in skip.reason]
    said = [reason for reason in reasons if "but brokers do" not in reason]
    assert [finding.found for finding in found] == said
    assert [finding.segment_id for finding in found] == (
        [] if stalled is None else [made[stalled].segment_id]
    )
    if stalled is not None:
        due = "no segment behind it is due yet" if since_ms is None else f"(since {iso_utc(since_ms)})"
        assert due in said[0]
        assert found[0].severity is Severity.WARNING


@pytest.mark.parametrize("config", [None, TopicConfig(), TopicConfig(retention_bytes=1 << 40)], ids=str)
def test_an_age_that_is_not_stated_is_kafkas_default(config: TopicConfig | None) -> None:
    [finding] = checked(tier(*segments(NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS)), config)
    assert (finding.check, finding.severity) == (K.STALLED_RETENTION, Severity.INFO)
    assert f"since {iso_utc(OLD_MS + 7 * DAY_MS)}" in finding.found
    assert "Kafka's default of 604800000 is assumed" in finding.found
