"""Work is sent to executors in one way, and results and errors are returned completely."""

import io
import os
import pickle
import threading
import tokenize
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import tierctl
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, EngineError, ExitCode, UsageError
from tierctl.spark.executors.task import RESULTS, SLICE_BYTES, TASKS, SparkTask, plain
from tierctl.spark.executors.transport import (
    Executors,
    InputResult,
    balanced,
    describe_jobs,
    grouped,
    input_results,
    require_usable,
)

from tests.support.amounts import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_a_piece_raises_is_raised_here(spark: "SparkSession") -> None:
    results = Executors(spark).run(refuse_odd, [0, 2, 3, 4])
    assert [next(results), next(results)] == [0, 2]
    with pytest.raises(CorruptInputError, match="number at byte 3: expected even, found 3") as e:
        next(results)
    assert (e.value.at, e.value.expected, e.value.hint) == (3, "even", "add one")


def test_items_are_spread_over_tasks(spark: "SparkSession") -> None:
    executors = Executors(spark)
    found = list(executors.run_spread(count_up, [0, 300], doubled, title="counting"))
    assert len(found) == 4 * executors.slots
    assert all(len(each) > 20 for each in found)
    assert sorted(chain(*found)) == [2 * each for each in range(300)]
    for divide, gather in ((refuse_odd_numbers, doubled), (count_up, refuse_many)):
        with pytest.raises(CorruptInputError, match="expected even, found 3"):
            list(executors.run_spread(divide, [2, 3], gather, title="counting"))


def count_up(number: int) -> Iterator[int]:
    yield from range(number)


def doubled(items: Iterator[int]) -> list[int]:
    return [2 * each for each in items]


def refuse_odd_numbers(number: int) -> Iterator[int]:
    yield 0
    yield refuse_odd(number)


def refuse_many(items: Iterator[int]) -> list[int]:
    return [refuse_odd(each + 3) for each in items]


def refuse_odd(number: int) -> int:
    if number % 2:
        raise CorruptInputError("number", expected="even", found=str(number), at=number, hint="add one")
    return number


def test_large_results_come_whole(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [0, 1, 3 * SLICE_BYTES + 1]
    assert [len(found) for found in Executors(spark).run(zeros, sizes)] == sizes


def zeros(size: int) -> bytes:
    return bytes(size)


def test_results_that_sparks_setting_does_not_allow(spark: "SparkSession") -> None:
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    conf.set(name, "1m")
    try:
        with pytest.raises(EngineError, match=f"bigger than {name}") as e:
            list(Executors(spark).run(noise, [2 << 20, 2 << 20]))
    finally:
        conf.remove(name)
    assert (e.value.exit_code, f"--spark-conf {name}=" in str(e.value.hint)) == (ExitCode.USAGE, True)


def noise(size: int) -> bytes:
    return os.urandom(size)


def test_jobs_are_shown_with_the_command(spark: "SparkSession") -> None:
    tracker = spark.sparkContext.statusTracker()
    # Another test may have used the name.
    before = len(tracker.getJobIdsForGroup("tierctl fetch"))
    assert list(Executors(spark, command="fetch").run(zeros, [1])) == [b"\0"]
    assert len(tracker.getJobIdsForGroup("tierctl fetch")) > before
    shown: list[str | None] = []

    def describe() -> None:
        describe_jobs(spark, Executors(spark, command="copy").titled("wave 3, orders"))
        shown.extend(
            spark.sparkContext.getLocalProperty(f"spark.job{each}") for each in (".description", "Group.id")
        )

    thread = threading.Thread(target=describe)
    thread.start()
    thread.join()
    assert shown == ["tierctl copy: wave 3, orders", "tierctl copy"]


def test_no_result_is_an_error(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without a response must not count as an empty result."""
    executors = Executors(spark)
    collected = Executors._collect

    def shortened(*args: Any, **more: Any) -> pa.Table:
        return collected(*args, **more).slice(0, 1)

    monkeypatch.setattr(Executors, "_collect", shortened)
    with pytest.raises(EngineError, match="no result for input 1 of 3"):
        list(executors.run(refuse_odd, [0, 2, 4]))


@pytest.mark.parametrize("is_retried", [False, True])
def test_a_result_tells_of_an_earlier_attempt(is_retried: bool) -> None:
    found = results_of(SparkTask(opened=partial(plain, refuse_odd), is_retried=is_retried), [8, 9])
    assert [found[number].is_retried for number in (0, 1)] == [is_retried] * 2
    assert (found[0].value, found[0].error) == (8, None)
    assert isinstance(found[1].error, CorruptInputError)
    assert all(result.host for result in found.values())


def results_of(task: SparkTask, inputs: list[Any]) -> dict[int, Any]:
    table = pa.table({TASKS: pa.array([pickle.dumps(list(enumerate(inputs)))], pa.binary())})
    return input_results(pa.Table.from_batches(task(iter(table.to_batches())), schema=RESULTS))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (InputResult(error=UsageError("full", hint="free space"), host="h1"), "full"),
        (InputResult(value="0.0.1", host="h1"), f"has tierctl 0.0.1, not {tierctl.__version__}"),
    ],
)
def test_an_executor_that_cannot_work_is_refused(found: InputResult[str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as e:
        require_usable(found)
    assert "h1" in f"{e.value.message} {e.value.hint}"


def test_slots_are_asked_for_once(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Executors(spark)
    assert executors.slots == 2
    monkeypatch.setattr(executors, "session", cast("SparkSession", SimpleNamespace()))
    assert executors.slots == 2


@examples(50)
@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 6))
def test_pieces_are_spread_evenly(costs: list[int], slots: int) -> None:
    load = [0] * slots
    for slot, cost in zip(balanced(costs, slots), costs, strict=True):
        load[slot] += max(cost, 1)
    assert max(load) - min(load) <= max([1, *costs])


@examples(50)
@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 300))
def test_a_group_ends_when_its_cost_is_reached(costs: list[int], cost_per_group: int) -> None:
    groups = list(grouped(costs, int, cost_per_group))
    assert [cost for group in groups for cost in group] == costs
    assert all(sum(group[:-1]) < cost_per_group for group in groups)
    assert all(sum(group) >= cost_per_group for group in groups[:-1])


def test_there_is_one_transport() -> None:
    """A second way to send work to executors would need every safety rule again; DataFrames only read."""
    senders = {"mapInArrow", "mapInPandas", "mapPartitions", "applyInArrow", "applyInPandas", "parallelize"}
    root = Path(tierctl.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME and token.string in senders
    }
    assert users == {"spark/executors/transport.py", "spark/frames.py"}
