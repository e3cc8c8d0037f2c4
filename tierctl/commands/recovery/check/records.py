"""Compare the records that brokers serve with those of the tier, by a scan and by seeks."""

from collections.abc import Iterator
from itertools import zip_longest

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.expected import ExpectedLog
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.record_consumer import NotServedError, RecordConsumer, ServedRecord
from tierctl.model import IsolationLevel
from tierctl.model.progress import Advance, Progress
from tierctl.plan.rebuild.partition import is_not_understood
from tierctl.read.partition_reader import FetchedRecord

_SEEKS = 10
"""Number of seeks per partition besides those around the starts of leader epochs."""
_TRIES = 3
"""Number of attempts to look up an offset by time: a broker under load may answer with no offset."""
_COUNTED = 1000


def check_records(results: Results, log: ExpectedLog, server: Cluster, progress: Progress) -> None:
    """Compare every record of the tier with the records that a consumer of each isolation level receives."""
    for isolation in IsolationLevel:
        if log.is_cut and isolation is IsolationLevel.READ_COMMITTED:
            reason = (
                "read_committed: --until aborts the transactions that are open there, which the tier has not"
            )
            results.not_checked(RestoreCheck.RECORDS, log.name, reason)
            continue
        consumer = server.consumer(isolation)
        try:
            _scan(results, log, isolation, consumer, progress)
        except NotServedError as e:
            results.failed(RestoreCheck.RECORDS, log.name, f"{isolation}: {e.message}")
        except TierctlError as e:
            results.prevented(RestoreCheck.RECORDS, log.name, e)
        finally:
            consumer.close()
    hole = log.decision.choice.hole
    if hole is not None:
        reason = f"no set of objects has offsets {hole.first} to {hole.last}: what is below is not compared"
        results.not_checked(RestoreCheck.RECORDS, log.name, reason)
    for each, why in log.decision.choice.left:
        if is_not_understood(why):
            reason = f"segment {each.listed.segment_id} from offset {each.listed.start_offset}: {why}"
            results.not_understood(RestoreCheck.RECORDS, log.name, reason)


def _scan(
    results: Results,
    log: ExpectedLog,
    isolation: IsolationLevel,
    consumer: RecordConsumer,
    progress: Progress,
) -> None:
    reader = log.reader(isolation)
    start, end = log.start_offset, min(log.end_offset, reader.end_offset)
    with progress.bar(f"comparing {log.name}, {isolation}", unit="offsets", total=end - start) as advance:
        wanted = _counted(reader.read(start, end), start, advance)
        count, fault = difference(wanted, consumer.read(log.name, start, end), epochs=not log.is_materialised)
    # If the tier is damaged, report the damage, and not the difference that follows from it.
    is_understood = not log.is_damaged
    faults = [_problem_text(log.problems)] if log.problems else [fault] if fault else []
    log.problems.clear()
    results.decided(
        RestoreCheck.RECORDS,
        log.name,
        [f"{isolation}: {each}" for each in faults],
        f"{isolation}: {count} records of offsets {start} to {end - 1} are those of the tier",
        is_understood=is_understood,
    )


def _problem_text(problems: list[TierctlError]) -> str:
    more = f", and {len(problems) - 1} more errors" if len(problems) > 1 else ""
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


def check_seeks(results: Results, log: ExpectedLog, server: Cluster) -> None:
    """Compare the first record after each seek, by offset and by time, with the tier's record."""
    consumer = server.consumer(IsolationLevel.READ_UNCOMMITTED)
    faults: list[str] = []
    offsets = seek_offsets(log)
    times: set[int] = set()
    try:
        for offset in offsets:
            mine = next(log.reader().read(offset, log.end_offset), None)
            fault = _seek(log, consumer, offset, mine)
            if fault is not None:
                faults.append(fault)
            if mine is not None and mine.timestamp_ms >= 0:
                times.add(mine.timestamp_ms)
        faults += [fault for each in sorted(times) if (fault := _seek_time(log, server, each)) is not None]
    except (AuthenticationError, MetadataError, NotFoundError) as e:
        results.prevented(RestoreCheck.SEEKS, log.name, e)
        return
    finally:
        consumer.close()
    is_understood = not log.is_damaged
    if log.problems:
        faults = [_problem_text(log.problems)]
        log.problems.clear()
    results.decided(
        RestoreCheck.SEEKS,
        log.name,
        _some(faults),
        f"{len(offsets)} seeks by offset and {len(times)} by time found the records of the tier",
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
    if mine is None or mine.offset >= log.end_offset:
        return None
    found = None
    for _ in range(_TRIES):
        found = server.offset_for_time(log.name, timestamp_ms)
        if found == mine.offset:
            return None
    return f"the first record at {timestamp_ms} ms has offset {found}, expected {mine.offset}"
