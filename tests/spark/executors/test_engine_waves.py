"""One wave on Spark: what is heard of each piece, and what is made of those of which nothing is."""

import pickle
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput
from tierctl.apply.stop import Stop
from tierctl.errors import CorruptInputError, StoreWriteUnknown, TierctlError, UsageError
from tierctl.spark.executors.engine import SparkEngine, error_of, steps
from tierctl.spark.executors.worker import BenchSpec, Worker, error_columns
from tierctl.storage import TierSpec, open_tier
from tierctl.storage.layouts.kafka import KafkaLayout

from tests.spark import doings
from tests.spark.doings import POISON, piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def spec(tmp_path: Path) -> BenchSpec:
    return BenchSpec(remote=TierSpec(tmp_path.as_uri(), layout=KafkaLayout()))


def _bench(spec: BenchSpec, done: list[int] | None = None, stop: Stop | None = None) -> SideEffectContext:
    advance = [].append if done is None else done.append
    return SideEffectContext(
        remote=open_tier(spec.remote), advance=advance, stop=Stop() if stop is None else stop
    )


def test_answers_come_in_the_order_of_the_pieces(spark: "SparkSession", spec: BenchSpec) -> None:
    engine, done = SparkEngine(spark, spec), []
    assert (engine.slots, engine.wave_size, engine.verify_on_driver) == (2, 16, False)
    answers = engine.map(doings.named, [piece(at) for at in range(30)], _bench(spec, done))
    assert [answer.custom_metadata for answer in answers] == [str(at).encode() for at in range(30)]
    assert sum(done) == 300
    assert all(answer.begun and answer.error is None for answer in answers)


def test_a_piece_that_kills_its_worker_keeps_no_other(spark: "SparkSession", spec: BenchSpec) -> None:
    engine = SparkEngine(spark, spec)
    answers = engine.map(doings.poisonous, [piece(at) for at in range(6)], _bench(spec))
    assert [at for at, answer in enumerate(answers) if answer.error is not None] == [POISON]
    error = answers[POISON].error
    assert isinstance(error, StoreWriteUnknown)
    assert error.message.startswith("what became of it is not known")


def test_a_wave_that_is_told_to_stop_is_cancelled(
    spark: "SparkSession", spec: BenchSpec, tmp_path: Path
) -> None:
    engine, stop, marks = SparkEngine(spark, spec), Stop(), tmp_path / "marks"
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
    answers = engine.map(do, [piece(at) for at in range(8)], _bench(spec, stop=stop))
    asking.join()
    assert time.monotonic() - begun_s < 60
    assert all(answer.stopped and answer.error is None for answer in answers)
    assert len(list(marks.iterdir())) < 8


def test_executors_that_cannot_work_are_known_before_anything_is_begun(spark: "SparkSession") -> None:
    remote = TierSpec("s4://bucket/folder", layout=KafkaLayout())
    with pytest.raises(UsageError, match="unknown scheme"):
        SparkEngine(spark, BenchSpec(remote=remote)).ready()


def test_speculation_is_refused(spec: BenchSpec) -> None:
    session = SimpleNamespace(conf={"spark.speculation": "true"})
    with pytest.raises(UsageError, match=r"spark\.speculation"):
        SparkEngine(cast("SparkSession", session), spec)


@pytest.mark.parametrize("again", [False, True])
def test_what_a_retried_task_failed_at_is_not_known(spec: BenchSpec, *, again: bool) -> None:
    """The task before it may still be at work somewhere."""
    worker = Worker(do=doings.failing, spec=spec, again=again)
    (row,) = next(worker(iter(steps({7: piece(7)}).to_batches()))).to_pylist()
    assert (row["at"], row["begun"], row["message"]) == (7, True, "full")
    assert row["error"] == ("StoreWriteUnknown" if again else "StoreWriteFailed")


def _errors(kind: type[TierctlError] = TierctlError) -> list[type[TierctlError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _errors(below))]


@pytest.mark.parametrize("kind", _errors())
def test_errors_come_back_as_what_they_were(kind: type[TierctlError]) -> None:
    facts: dict[str, Any] = {"hint": "free space"}
    if issubclass(kind, CorruptInputError):
        facts |= {"expected": "2", "found": "3"}
    error = kind("what happened", **facts)
    found = error_of({"host": "h1", **error_columns(error)})
    assert found is not None
    assert (type(found), found.message, found.exit_code) == (kind, error.message, error.exit_code)
    assert found.hint == "free space; on executor h1"


def test_an_executor_learns_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    tier = TierSpec("s3://bucket/folder", layout="kafka")
    remote = open_tier(tier)
    spec = pickle.dumps(tier.resolved(remote))
    assert b"wJalr" not in spec
    assert b"AKID" not in spec
    # Where the objects are is no secret: of another bucket of that name nobody would know.
    assert b"http://127.0.0.1:9" in spec
    with pytest.raises(UsageError, match="another process"):
        TierSpec("s3://user:pass@bucket/folder").resolved(remote)


def test_pieces_are_rows_of_a_plan() -> None:
    pieces: dict[int, SideEffectInput] = {at: piece(at) for at in range(5)}
    table = steps(pieces, 2)
    assert table.column_names[:7] == [
        *("at", "topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset")
    ]
    assert [batch.num_rows for batch in table.to_batches()] == [3, 2]
