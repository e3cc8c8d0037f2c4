"""Check what consumers and producers get from the brokers of a restored topic: records, seeks, elections."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from uuid import uuid4

from tierctl.checks.check import Result, decided, fault, incomplete, made, not_checked, prevented
from tierctl.checks.registry import RestoreCheck
from tierctl.checks.restored import ExpectedLog
from tierctl.errors import (
    AuthenticationError,
    MetadataError,
    NotFoundError,
    TierctlError,
)
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.librdkafka import HeldPositions, NotServedError, RecordConsumer, ServedRecord
from tierctl.model import IsolationLevel, TopicPartition
from tierctl.model.progress import Advance, Progress
from tierctl.model.selection import counted
from tierctl.model.times import duration_text
from tierctl.plan.reasons import is_not_understood
from tierctl.read.partition_reader import FetchedRecord

_SEEKS = 10
"""Number of seeks per partition besides those around the starts of leader epochs."""
_TRIES = 3
"""Number of attempts to look up an offset by time: a broker under load may answer with no offset."""
_COUNTED = 1000
_READ_ON = "consumer read on from its position/consumers read on from their positions"


def check_records(log: ExpectedLog, server: Cluster, progress: Progress) -> Iterator[Result]:
    """Compare every record of the tier with the records that a consumer of each isolation level receives."""
    for isolation in IsolationLevel:
        if log.is_cut and isolation is IsolationLevel.READ_COMMITTED:
            reason = (
                "read_committed: --until aborts the transactions that are open there, which the tier has not"
            )
            yield not_checked(RestoreCheck.RECORDS, log.subject, reason)
            continue
        consumer = server.consumer(isolation)
        try:
            yield from _scan(log, isolation, consumer, progress)
        except NotServedError as e:
            yield fault(RestoreCheck.RECORDS, log.subject, f"{isolation}: {e.message}")
        except TierctlError as e:
            yield prevented(RestoreCheck.RECORDS, log.subject, e)
        finally:
            consumer.close()
    hole = log.decision.choice.hole
    if hole is not None and log.start_offset <= hole.last + 1:
        reason = f"no set of objects has offsets {hole.first} to {hole.last}: what is below is not compared"
        fix = "bring the objects back and rebuild: brokers serve nothing that is below"
        yield incomplete(RestoreCheck.RECORDS, log.subject, reason, fix=fix)
    for each, why in log.decision.choice.left:
        if is_not_understood(why):
            reason = f"segment {each.listed.segment_id} from offset {each.listed.start_offset}: {why}"
            yield incomplete(RestoreCheck.RECORDS, log.subject, reason, is_understood=False)


def _scan(
    log: ExpectedLog,
    isolation: IsolationLevel,
    consumer: RecordConsumer,
    progress: Progress,
) -> Iterator[Result]:
    reader = log.reader(isolation)
    start, end = log.start_offset, min(log.end_offset, reader.end_offset)
    with progress.bar(f"comparing {log.name}, {isolation}", unit="offsets", total=end - start) as advance:
        wanted = _counted(reader.read(start, end), start, advance)
        count, found = difference(wanted, consumer.read(log.name, start, end), epochs=not log.is_materialised)
    # If the tier is damaged, report the damage, and not the difference that follows from it.
    is_understood = not log.is_damaged
    faults = [_problem_text(log.problems)] if log.problems else [found] if found else []
    log.problems.clear()
    span = f"of offsets {start} to {end - 1}"
    yield decided(
        RestoreCheck.RECORDS,
        log.subject,
        [f"{isolation}: {each}" for each in faults],
        f"{isolation}: {counted(count, f'record {span} is that/records {span} are those')} of the tier",
        is_understood=is_understood,
    )
    if end < log.end_offset:
        offsets = f"offsets {end} to {log.end_offset - 1}"
        reason = f"{isolation}: {offsets}: a transaction that begins there has no end in the tier"
        yield not_checked(RestoreCheck.RECORDS, log.subject, reason)


def _problem_text(problems: list[TierctlError]) -> str:
    more = f", and {counted(len(problems) - 1, 'more error')}" if len(problems) > 1 else ""
    return f"the tier can't be read: {problems[0].message}{more}"


def _counted(records: Iterator[FetchedRecord], start: int, advance: Advance) -> Iterator[FetchedRecord]:
    done = start
    for record in records:
        yield record
        if record.offset - done >= _COUNTED:
            advance(record.offset - done)
            done = record.offset


def difference(
    wanted: Iterator[FetchedRecord], served: Iterator[ServedRecord], *, epochs: bool
) -> tuple[int, str | None]:
    """Return the number of equal records, and the first difference; None if all are equal.

    With `epochs`, the leader epochs of the batches are compared, too.
    """
    count = 0
    for mine, its in zip_longest(wanted, served):
        if mine is None or (its is not None and its.offset < mine.offset):
            return count, f"offset {its.offset} is served, and is not in the tier"
        if its is None or its.offset > mine.offset:
            return count, f"offset {mine.offset} is in the tier, and is not served"
        names = [name for name, same in _equalities(mine, its, epochs=epochs) if not same]
        if names:
            return count, f"the record at offset {mine.offset} has another {' and another '.join(names)}"
        count += 1
    return count, None


def _equalities(mine: FetchedRecord, its: ServedRecord, *, epochs: bool) -> Iterator[tuple[str, bool]]:
    yield "timestamp", mine.timestamp_ms == its.timestamp_ms
    yield "key", mine.key == its.key
    yield "value", mine.value == its.value
    yield "header", [tuple(header) for header in mine.headers] == [tuple(header) for header in its.headers]
    if epochs and its.leader_epoch is not None:
        yield "leader epoch", mine.leader_epoch == its.leader_epoch


def seek_offsets(log: ExpectedLog) -> list[int]:
    """Return the offsets to seek to: around each epoch's start, at both ends of the log, and some between."""
    around = {start + by for start in log.epoch_starts for by in (-1, 0, 1)}
    step = max((log.end_offset - log.start_offset) // _SEEKS, 1)
    spread = range(log.start_offset, log.end_offset, step)
    wanted = {*around, *spread, log.end_offset - 1}
    return sorted(each for each in wanted if log.start_offset <= each < log.end_offset)


def check_seeks(log: ExpectedLog, server: Cluster) -> Iterator[Result]:
    """Compare the first record after each seek, by offset and by time, with the tier's record."""
    consumer = server.consumer(IsolationLevel.READ_UNCOMMITTED)
    faults: list[str] = []
    offsets = seek_offsets(log)
    times: set[int] = set()
    try:
        for offset in offsets:
            mine = next(log.reader().read(offset, log.end_offset), None)
            missed = _seek(log, consumer, offset, mine)
            if missed is not None:
                faults.append(missed)
            if mine is not None and mine.timestamp_ms >= 0:
                times.add(mine.timestamp_ms)
        faults += [each for each in (_seek_time(log, server, at) for at in sorted(times)) if each is not None]
    except (AuthenticationError, MetadataError, NotFoundError) as e:
        yield prevented(RestoreCheck.SEEKS, log.subject, e)
        return
    finally:
        consumer.close()
    is_understood = not log.is_damaged
    if log.problems:
        faults = [_problem_text(log.problems)]
        log.problems.clear()
    yield decided(
        RestoreCheck.SEEKS,
        log.subject,
        _some(faults),
        f"{counted(len(offsets), 'seek')} by offset and {len(times)} by time found the records of the tier",
        is_understood=is_understood,
    )


def _some(faults: list[str]) -> list[str]:
    return faults if len(faults) <= _TRIES else [*faults[:_TRIES], f"and {len(faults) - _TRIES} more seeks"]


def _seek(log: ExpectedLog, consumer: RecordConsumer, offset: int, mine: FetchedRecord | None) -> str | None:
    try:
        its = consumer.first(log.name, offset)
    except NotServedError as e:
        return f"a seek to {offset} failed: {e.message}"
    found = None if its is None or its.offset >= log.end_offset else its.offset
    wanted = None if mine is None else mine.offset
    return None if found == wanted else f"a seek to {offset} found {found}, expected {wanted}"


def _seek_time(log: ExpectedLog, server: Cluster, timestamp_ms: int) -> str | None:
    mine = log.reader().offset_for_time(timestamp_ms)
    if mine is None or mine.offset >= log.end_offset or _is_passed(log, timestamp_ms, mine.offset):
        return None
    found = None
    for _ in range(_TRIES):
        found = server.offset_for_time(log.name, timestamp_ms)
        if found == mine.offset:
            return None
    return f"the first record at {timestamp_ms} ms has offset {found}, expected {mine.offset}"


def _is_passed(log: ExpectedLog, timestamp_ms: int, offset: int) -> bool:
    """Return whether a broker does not look in the segment of the record that a seek to a time should find.

    It looks in the first segment with as large a timestamp only, and then in its local log
    (RemoteLogManager.findOffsetByTimestamp). That timestamp may be the one of a record below the log start.
    """
    first = log.log.segment_ranges(log.start_offset).get(0)
    return first is not None and first.to_offset < offset and (first.max_timestamp_ms or -1) >= timestamp_ms


_CONSUMERS_MAX = 4
"""Maximum number of consumers; each one holds one position per partition, each in another epoch."""
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class _Position:
    """The offset where a consumer begins, and the offsets of the two records that it must receive."""

    offset: int
    first: int
    following: int


def check_election(
    logs: Sequence[ExpectedLog], cluster: Cluster, progress: Progress, *, timeout_ms: int
) -> Iterator[Result]:
    """Hold positions in several epochs of each partition until its leader epoch rises; then read on.

    A message asks the operator to trigger the election. Partitions whose epoch does not rise within
    `timeout_ms` are not checked.
    """
    positions = {log.name: list(_positions(log)) for log in logs}
    for log in logs:
        if not positions[log.name]:
            reason = "it has no epoch with two records in the tier, so no position can be held"
            yield not_checked(RestoreCheck.ELECTION, log.subject, reason)
    held = {name: each for name, each in positions.items() if each}
    if not held:
        return
    try:
        with ExitStack() as opened:
            yield from _Holding(cluster, progress, held).run(opened, timeout_ms)
    except TierctlError as e:
        for name in held:
            yield prevented(RestoreCheck.ELECTION, str(name), e)


def _positions(log: ExpectedLog) -> Iterator[_Position]:
    """Yield a position in each of up to `_CONSUMERS_MAX` epochs, the oldest and the newest among them."""
    starts = log.epoch_starts
    count = min(len(starts), _CONSUMERS_MAX)
    chosen = {round(number * (len(starts) - 1) / max(count - 1, 1)) for number in range(count)}
    for index in sorted(chosen):
        following = list(islice(log.reader().read(starts[index], log.end_offset), 2))
        if len(following) == 2:
            yield _Position(starts[index], following[0].offset, following[1].offset)


class _Holding:
    """The consumers, and the positions that each of them holds."""

    def __init__(
        self,
        cluster: Cluster,
        progress: Progress,
        positions: Mapping[TopicPartition, Sequence[_Position]],
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._positions = positions
        self._topics = {name.topic for name in positions}
        self._faults: dict[TopicPartition, list[str]] = {name: [] for name in positions}

    def run(self, opened: ExitStack, timeout_ms: int) -> Iterator[Result]:
        before = self._cluster.leaders.current_epochs(self._topics)
        consumers = []
        for number in range(max(map(len, self._positions.values()))):
            mine = {name: each[number] for name, each in self._positions.items() if number < len(each)}
            consumer = self._cluster.consumer(IsolationLevel.READ_UNCOMMITTED)
            opened.callback(consumer.close)
            consumers.append((consumer, mine))
            self._note(consumer.hold({name: each.offset for name, each in mine.items()}), mine, "first")
        self._progress.say(
            f"consumers hold {sum(len(mine) for _, mine in consumers)} positions: now elect new leaders of "
            f"{', '.join(sorted(self._topics))}: restart their brokers one by "
            f"one, or move leaders with kafka-leader-election. Waiting up to {duration_text(timeout_ms)}"
        )
        after = self._await_election(before, [consumer for consumer, _ in consumers], timeout_ms)
        for consumer, mine in consumers:
            elected = {name: each for name, each in mine.items() if name in after and not self._faults[name]}
            if elected:
                self._note(consumer.resume(elected.keys()), elected, "following")
        yield from self._conclude(before, after)

    def _await_election(
        self, before: Mapping[TopicPartition, int], consumers: Sequence[RecordConsumer], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the new epochs of the partitions that elected a leader; poll the consumers meanwhile."""
        deadline = time.monotonic() + timeout_ms / 1000
        after: dict[TopicPartition, int] = {}
        while self._positions.keys() - after.keys() and time.monotonic() < deadline:
            for consumer in consumers:
                consumer.poll()
            try:
                now = self._cluster.leaders.current_epochs(self._topics)
            except TierctlError as e:
                # Brokers that restart do not answer.
                self._progress.detail(f"asking for leader epochs: {e.message}")
                continue
            # If there was no leader before, the epoch of the first elected one proves no election.
            after |= {
                name: now[name] for name in self._positions if now.get(name, -1) > before.get(name, 1 << 31)
            }
            time.sleep(_PAUSE_S)
        return after

    def _note(self, found: HeldPositions, wanted: Mapping[TopicPartition, _Position], which: str) -> None:
        """Record a fault for each partition whose record is missing or is not the expected one."""
        for name, position in wanted.items():
            record = found.get(name)
            expected = position.first if which == "first" else position.following
            missed = _fault(record, expected)
            if missed is not None:
                held = (
                    "" if which == "first" else f", after the election, from position {position.first + 1} on"
                )
                self._faults[name].append(f"{missed}{held}")

    def _conclude(
        self, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
    ) -> Iterator[Result]:
        for name, faults in self._faults.items():
            if name not in after and not faults:
                epoch = before.get(name, "unknown")
                error = MetadataError(
                    "no new leader was elected while the consumers waited: the leader epoch is still "
                    f"{epoch}",
                    hint="restart the brokers, or move the leaders, within --election-timeout",
                )
                yield prevented(RestoreCheck.ELECTION, str(name), error)
                continue
            count = len(self._positions[name])
            yield decided(
                RestoreCheck.ELECTION,
                str(name),
                faults,
                f"{counted(count, _READ_ON)} after leader epoch {before.get(name)} became {after.get(name)}",
            )


def _fault(record: ServedRecord | NotServedError | None, expected: int) -> str | None:
    if isinstance(record, NotServedError):
        return record.message
    found = None if record is None else record.offset
    return None if found == expected else f"offset {found} came, expected {expected}"


VALUE = b"written by tierctl restore check"
_READABLE_S = 30
_READABLE_PAUSE_S = 0.5


def check_producers(partitions: Sequence[TopicPartition], cluster: Cluster) -> Iterator[Result]:
    """Write two records to each partition, by two producers, and read them with read_committed."""
    for transactional_id in (None, f"tierctl-restore-check-{uuid4()}"):
        kind = "an idempotent producer" if transactional_id is None else "a transaction"
        try:
            offsets = cluster.produce(partitions, VALUE, transactional_id=transactional_id)
        except AuthenticationError as e:
            for each in partitions:
                yield prevented(RestoreCheck.PRODUCERS, str(each), e)
            return
        except TierctlError as e:
            for each in partitions:
                yield fault(RestoreCheck.PRODUCERS, str(each), f"{kind}: {e.message}")
            continue
        for each in partitions:
            yield from made(
                [RestoreCheck.PRODUCERS], str(each), partial(_read_back, cluster, each, offsets[each], kind)
            )


def _read_back(cluster: Cluster, partition: TopicPartition, offset: int, kind: str) -> Iterator[Result]:
    faults = _not_served(cluster, partition, offset, kind)
    text = f"{kind} wrote offset {offset}, which read_committed serves"
    yield decided(RestoreCheck.PRODUCERS, str(partition), faults, text)


def _not_served(cluster: Cluster, partition: TopicPartition, offset: int, kind: str) -> list[str]:
    """Return why the record is not served; wait first, because brokers write markers after the commit."""
    consumer = cluster.consumer(IsolationLevel.READ_COMMITTED)
    deadline = time.monotonic() + _READABLE_S
    try:
        while True:
            found = consumer.first(partition, offset)
            if found is not None:
                is_it = (found.offset, found.value) == (offset, VALUE)
                return (
                    [] if is_it else [f"{kind} wrote offset {offset}, read_committed serves {found.offset}"]
                )
            if time.monotonic() > deadline:
                return [f"{kind} wrote offset {offset}, which read_committed does not serve"]
            time.sleep(_READABLE_PAUSE_S)
    finally:
        consumer.close()
