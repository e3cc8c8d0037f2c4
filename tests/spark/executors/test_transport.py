"""Work is sent to executors in one way; every result, error and unknown outcome comes back."""

import os
import pickle
import socket
import threading
import time
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
from tierctl import kernel
from tierctl.apply.run_context import SideEffectContext, Stop
from tierctl.errors import (
    CorruptInputError,
    CustomMetadataTooLarge,
    EngineError,
    ExitCode,
    StoreWriteUnknown,
    TierctlError,
    UsageError,
)
from tierctl.spark.executors import task
from tierctl.spark.executors.apply_engine import (
    SideEffectContextSpec,
    SparkEngine,
    opened_side_effect,
    side_effect_result,
    slices,
)
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
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.spark import doings
from tests.spark.doings import POISON, piece
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


LARGE = 1_000_000


def expecting(items: int) -> int:
    kernel.expect(items)
    return items


@pytest.mark.parametrize(
    ("has_numba", "items", "noted"),
    [
        (True, [0], []),
        (True, [0, LARGE, LARGE], ["executors: compiling loops (once per installation): some seconds"]),
        (False, [kernel.LARGE], []),
        (
            False,
            [0, LARGE, LARGE],
            [f"executors: {kernel.WITHOUT_NUMBA}: put it into their Python, or into the archive of submit"],
        ),
    ],
)
def test_why_executors_are_slow_is_noted(
    has_numba: bool, items: list[int], noted: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel, "_forms", kernel._Forms())
    monkeypatch.setattr(kernel, "find_spec", lambda _: has_numba or None)
    monkeypatch.setattr(kernel, "_cache_folder", lambda: tmp_path)
    notes: list[str] = []
    executors = Executors(cast("Any", None), on_note=notes.append)
    executors._report(rows_of(SparkTask(opened=partial(plain, expecting)), items))
    assert [each.removesuffix(" (tierctl-spark(7))") for each in notes] == noted


def rows_of(task: SparkTask, inputs: list[Any]) -> pa.Table:
    table = pa.table({TASKS: pa.array([pickle.dumps(list(enumerate(inputs)))], pa.binary())})
    return pa.Table.from_batches(task(iter(table.to_batches())), schema=RESULTS)


def results_of(task: SparkTask, inputs: list[Any]) -> dict[int, Any]:
    return input_results(rows_of(task, inputs))


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


@pytest.fixture
def spec(tmp_path: Path) -> SideEffectContextSpec:
    return SideEffectContextSpec(remote=TierSpec(tmp_path.as_uri(), layout=KafkaLayout()))


def _bench(
    spec: SideEffectContextSpec, done: list[int] | None = None, stop: Stop | None = None
) -> SideEffectContext:
    advance = [].append if done is None else done.append
    return SideEffectContext(
        remote=open_tier(spec.remote), advance=advance, stop=Stop() if stop is None else stop
    )


def test_answers_come_in_the_order_of_the_pieces(spark: "SparkSession", spec: SideEffectContextSpec) -> None:
    engine, done = SparkEngine(Executors(spark), spec), []
    assert (engine.slots, engine.wave_size, engine.verify_on_driver) == (2, 4, False)
    answers = engine.begin(doings.named, [piece(at) for at in range(30)], _bench(spec, done))()
    assert [answer.custom_metadata for answer in answers] == [str(at).encode() for at in range(30)]
    assert sum(done) == 300
    assert all(answer.begun and answer.error is None for answer in answers)


def test_a_piece_that_kills_its_worker_keeps_no_other(
    spark: "SparkSession", spec: SideEffectContextSpec
) -> None:
    engine = SparkEngine(Executors(spark), spec)
    answers = engine.begin(doings.poisonous, [piece(at) for at in range(6)], _bench(spec))()
    assert [at for at, answer in enumerate(answers) if answer.error is not None] == [POISON]
    error = answers[POISON].error
    assert isinstance(error, StoreWriteUnknown)
    assert error.message.startswith("the outcome of this segment is not known")


def test_a_wave_that_is_told_to_stop_is_cancelled(
    spark: "SparkSession", spec: SideEffectContextSpec, tmp_path: Path
) -> None:
    engine, stop, marks = SparkEngine(Executors(spark), spec), Stop(), tmp_path / "marks"
    marks.mkdir()
    engine.ready()

    def ask() -> None:
        while not any(marks.iterdir()):
            time.sleep(0.02)
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    begun_s = time.monotonic()
    do = partial(doings.slow, str(marks))
    answers = engine.begin(do, [piece(at) for at in range(8)], _bench(spec, stop=stop))()
    asking.join()
    assert time.monotonic() - begun_s < 60
    assert all(answer.stopped and answer.error is None for answer in answers)
    assert len(list(marks.iterdir())) < 8


def test_executors_that_cannot_work_are_known_before_anything_is_begun(spark: "SparkSession") -> None:
    remote = TierSpec("s4://bucket/folder", layout=KafkaLayout())
    with pytest.raises(UsageError, match="unknown scheme"):
        SparkEngine(Executors(spark), SideEffectContextSpec(remote=remote)).ready()


def test_speculation_is_refused(spec: SideEffectContextSpec) -> None:
    session = SimpleNamespace(conf={"spark.speculation": "true"})
    with pytest.raises(UsageError, match=r"spark\.speculation"):
        SparkEngine(Executors(cast("SparkSession", session)), spec)


@pytest.mark.parametrize("again", [False, True])
def test_what_a_retried_task_failed_at_is_not_known(spec: SideEffectContextSpec, *, again: bool) -> None:
    """The earlier attempt of the task may still be running on some executor."""
    runner = SparkTask(opened=partial(opened_side_effect, doings.failing, spec), is_retried=again)
    result = side_effect_result(results_of(runner, [piece(7)])[0])
    assert result.error is not None
    assert (result.begun, result.error.message) == (True, "full")
    assert type(result.error).__name__ == ("StoreWriteUnknown" if again else "StoreWriteFailed")
    runner = SparkTask(opened=partial(opened_side_effect, doings.named, spec), is_retried=again)
    assert side_effect_result(results_of(runner, [piece(7)])[0]).is_repeated is again


def _errors(kind: type[TierctlError] = TierctlError) -> list[type[TierctlError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _errors(below))]


@pytest.mark.parametrize("kind", _errors())
def test_errors_come_back_as_what_they_were(kind: type[TierctlError]) -> None:
    facts: dict[str, Any] = {"hint": "free space"}
    if issubclass(kind, CorruptInputError):
        facts |= {"expected": "2", "found": "3"}
    if kind is CustomMetadataTooLarge:
        facts |= {"size_bytes": 200, "limit_bytes": 128}
    error = kind("what happened", **facts)
    found = task.with_host(task.decoded(task.dumps(error), TierctlError), "h1")
    assert (type(found), found.message, found.exit_code) == (kind, error.message, error.exit_code)
    assert found.hint == "free space; on executor h1"
    assert {**vars(found), "hint": ""} == {**vars(error), "hint": ""}


def test_an_executor_learns_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    tier = TierSpec("s3://bucket/folder", layout=KafkaLayout())
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        remote = open_tier(tier)
    spec = pickle.dumps(tier.resolved(remote))
    assert b"wJalr" not in spec
    assert b"AKID" not in spec
    # Credentials may differ, so the same bucket name may be another bucket on executors.
    assert endpoint.encode() in spec
    with pytest.raises(UsageError, match="must not contain"):
        TierSpec("s3://user:pass@bucket/folder").resolved(remote)


def test_a_task_has_consecutive_pieces() -> None:
    """If a copy fails, the later copies of its partition in the task are not started."""
    assert [list(each) for each in slices(range(5), 2)] == [[0, 1, 2], [3, 4]]
    assert [list(each) for each in slices(range(5), 9)] == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("sent", [b"nonsense", task.dumps([1]), pickle.dumps(Path("x")), b""])
def test_what_is_no_result_is_not_known(spec: SideEffectContextSpec, sent: bytes) -> None:
    """No invalid result of an executor may count as a finished side effect."""
    runner = SparkTask(opened=partial(opened_side_effect, doings.failing, spec))
    rows = rows_of(runner, [piece(0)]).to_pylist()
    for is_error in (False, True):
        table = pa.Table.from_pylist([row | {"data": sent, "is_error": is_error} for row in rows])
        result = side_effect_result(input_results(table)[0])
        assert result.begun
        assert isinstance(result.error, StoreWriteUnknown)
