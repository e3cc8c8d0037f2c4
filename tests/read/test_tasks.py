"""All tasks together read the records that one reader reads, and each index once."""

import pickle
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from tierctl.errors import TierctlError
from tierctl.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.read.tasks import ReadTask, TimestampRange, plan_read_tasks, read_task
from tierctl.wire.batches.record_batch import ControlType
from tierctl.wire.batches.records import SCHEMA

from tests.read import brute
from tests.read.test_transactions import LOST, Log, Store, World, committed
from tests.read.tier import Tier
from tests.support.amounts import rest_in_matrix

Capture = Callable[[str], Path]
_S = RemoteLogSegmentState
Answer = tuple[int, int, str | None, str | None]


class CountingStore(Store):
    """Count the reads of transaction indexes."""

    asked: Counter[str]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self.asked[metadata.segment_id, index_type] += 1
        return super().fetch_index(metadata, index_type)


def answers(tasks: list[ReadTask], remote: object, problems: list[TierctlError]) -> list[Answer]:
    tables = []
    for task in pickle.loads(pickle.dumps(tasks)):
        tables += read_task(
            task,
            remote,  # type: ignore[arg-type]
            report=problems.append,
            report_lost=lambda error, _first, _last: problems.append(error),
        )
    rows = pa.Table.from_batches(tables, SCHEMA).to_pylist()
    return [(r["offset"], r["timestamp_ms"], brute.sha(r["key"]), brute.sha(r["value"])) for r in rows]


def world_of(seed: int, lost: str = "nothing") -> tuple[Log, World, CountingStore]:
    rng = random.Random(seed)
    log, world = Log(), World(rng)
    store = CountingStore()
    store.asked = Counter()
    world.store = store
    for _ in range(200):
        log.random_step(rng)
    for segment in log.segments:
        world.copy(segment, [(0, 0)], flagged=False, lost=lost)
    return log, world, store


@pytest.mark.parametrize("split_bytes", [100, 400, 1 << 30])
@pytest.mark.parametrize("seed", rest_in_matrix(range(8), tried=3))
def test_tasks_of_transactions_read_what_one_reader_reads(seed: int, split_bytes: int) -> None:
    log, world, store = world_of(seed)
    view, committed_only = world.view(), (world.fetcher, world.problems.append)
    end = world.reader().end_offset
    expected = [answer for answer in committed(log) if answer[0] < end]
    store.asked.clear()

    tasks = list(plan_read_tasks(view, 0, end, committed_only=committed_only, split_bytes=split_bytes))

    assert max(store.asked.values()) == 1, "an index is fetched once, for however many tasks"
    assert sum(kind is IndexType.TRANSACTION for _, kind in store.asked) <= len(log.segments)
    assert answers(tasks, store, world.problems) == expected
    assert world.problems == []
    starts = [task.first_offset for task in tasks]
    assert starts == sorted(starts)
    assert len(tasks) > len(log.segments) // 2 or split_bytes > 100

    rng = random.Random(seed)
    for _ in range(6):
        first, last = sorted((rng.randrange(end), rng.randrange(end)))
        some = list(
            plan_read_tasks(view, first, last, committed_only=committed_only, split_bytes=split_bytes)
        )
        wanted = [answer for answer in expected if first <= answer[0] < last]
        assert answers(some, store, world.problems) == wanted


@pytest.mark.parametrize("lost", [each for each in LOST if each != "nothing"])
@pytest.mark.parametrize("seed", rest_in_matrix(range(4), tried=2))
def test_indexes_that_are_lost_are_made_up_for(seed: int, lost: str) -> None:
    log, world, store = world_of(seed, lost)
    committed_only = world.fetcher, world.problems.append
    span = world.reader().span()
    tasks = list(plan_read_tasks(world.view(), *span, committed_only=committed_only, split_bytes=300))
    assert answers(tasks, store, world.problems) == committed(log)
    assert world.problems == []


@pytest.mark.parametrize("split_bytes", [100, 1 << 30])
@pytest.mark.parametrize("seed", rest_in_matrix(range(8)))
def test_a_marker_ends_no_reading_up_to_a_time(seed: int, split_bytes: int) -> None:
    """Its time is that of a broker, however old the records are."""
    rng = random.Random(seed)
    log, world = Log(marker_ahead_ms=10**9), World(rng)
    for producer in rng.choices(range(4), k=60):
        log.plain()
        log.write(producer, rng.randint(1, 3))
        log.end(rng.randrange(4), rng.choice([ControlType.ABORT, ControlType.COMMIT]))
    for producer in range(4):
        log.end(producer, ControlType.COMMIT)
    log.roll()
    world.copy(log.segments[0], [(0, 0)], flagged=False, lost="nothing")
    view, committed_only = world.view(), (world.fetcher, world.problems.append)
    for last_ms in range(0, view.end_offset, 61):
        times = TimestampRange(last_ms=last_ms, late_ms=0)
        tasks = plan_read_tasks(
            view, 0, view.end_offset, committed_only=committed_only, times=times, split_bytes=split_bytes
        )
        found = answers(list(tasks), world.store, world.problems)
        wanted = [answer for answer in committed(log) if answer[1] <= last_ms]
        assert [answer for answer in found if answer[1] <= last_ms] == wanted
    assert world.problems == []


@pytest.mark.parametrize("split_bytes", [50_000, 3_000_000])
@pytest.mark.parametrize(("stage", "answer"), [("before", "3-before"), ("after", "5-after")])
def test_large_and_small_tasks_of_a_lineage(
    capture: Capture, stage: str, answer: str, split_bytes: int
) -> None:
    root = capture("unclean-leader") / stage
    tier = Tier.of(root / "broker-1", root / "remote", root / "broker-1", root / "broker-2")
    file = capture("unclean-leader") / "answers" / f"{answer}-payouts-0.jsonl"
    view = tier.view("payouts")
    tasks = list(plan_read_tasks(view, view.log_start_offset, view.end_offset, split_bytes=split_bytes))
    assert answers(tasks, view.remote, tier.problems) == brute.answers(file)
    assert tier.problems == []
    # Sizes are estimated from the share of offsets.
    assert all(task.size_bytes <= 1.6 * split_bytes for task in tasks)


def test_a_hole_is_lost_once_with_its_offsets(capture: Capture) -> None:
    """The middle segment was deleted."""
    root = capture("tiered-cluster")
    tier = Tier.of(root / "before", root / "before-remote")
    segments = tier.segments("orders")
    gone = segments[2]
    tier.move(gone, _S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED)
    view = tier.view("orders")
    for split_bytes in (300_000, 1 << 30):
        tasks = list(plan_read_tasks(view, 0, view.end_offset, split_bytes=split_bytes))
        (lost,) = (lost for task in tasks for lost in task.lost)
        assert (lost.first_offset, lost.last_offset) == (gone.start_offset, gone.end_offset)
        assert f"offsets {gone.start_offset} to {gone.end_offset}" in lost.error.message
        problems: list[TierctlError] = []
        found = [answer[0] for answer in answers(tasks, view.remote, problems)]
        assert [error.message for error in problems] == [lost.error.message]
        assert found == [*range(gone.start_offset), *range(gone.end_offset + 1, view.end_offset)]
    (task,) = plan_read_tasks(view, gone.start_offset + 3, gone.start_offset + 5)
    assert [(lost.first_offset, lost.last_offset) for lost in task.lost] == [
        (gone.start_offset + 3, gone.start_offset + 4)
    ]
    assert task.parts == ()
