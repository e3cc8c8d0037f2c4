"""One wave on Spark: the result of each input, and the unknown outcome of an input without a result."""

import pickle
import socket
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from tierctl.apply.run_context import SideEffectContext, Stop
from tierctl.errors import (
    CorruptInputError,
    CustomMetadataTooLarge,
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
from tierctl.spark.executors.task import TASKS, SparkTask
from tierctl.spark.executors.transport import Executors, input_results
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.spark import doings
from tests.spark.doings import POISON, piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    tasks = pa.table({TASKS: pa.array([pickle.dumps([(7, piece(7))])], pa.binary())})
    (found,) = input_results(pa.Table.from_batches(runner(iter(tasks.to_batches())))).items()
    result = side_effect_result(found[1])
    assert result.error is not None
    assert (found[0], result.begun, result.error.message) == (7, True, "full")
    assert type(result.error).__name__ == ("StoreWriteUnknown" if again else "StoreWriteFailed")


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
    found = task.with_host(task.decoded_error(task.dumps(error)), "h1")
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
    tasks = pa.table({TASKS: pa.array([pickle.dumps([(0, piece(0))])], pa.binary())})
    rows = pa.Table.from_batches(runner(iter(tasks.to_batches()))).to_pylist()
    for is_error in (False, True):
        table = pa.Table.from_pylist([row | {"data": sent, "is_error": is_error} for row in rows])
        result = side_effect_result(input_results(table)[0])
        assert result.begun
        assert isinstance(result.error, StoreWriteUnknown)
