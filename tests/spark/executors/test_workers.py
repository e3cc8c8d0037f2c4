"""Workers of executors: data that they return, memory and imports, and the probe of each store."""

import importlib.util
import os
import pickle
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.apply.run_context import Stop
from tierctl.errors import AuthenticationError, EngineError, StoreRefused, TierctlError, UsageError
from tierctl.files import replace_durably
from tierctl.spark.executors import task
from tierctl.spark.executors.apply_engine import SideEffectContextSpec, SparkEngine
from tierctl.spark.session.open import own_settings
from tierctl.state.tier_state import TierState
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RetrySettings

from tests.metadata.events import started
from tests.metadata.pictures import picture
from tests.support.lacking_store import BUCKET, Lack, LackingStore


class Hostile:
    """An object whose pickle calls an arbitrary function."""

    def __init__(self, *called: object) -> None:
        self.called = called

    def __reduce__(self) -> tuple[Any, ...]:
        return self.called[0], self.called[1:]


@pytest.mark.parametrize(
    "sent",
    [
        Hostile(os.system, "true"),
        Hostile(eval, "1"),
        Hostile(getattr, "", "join"),
        Hostile(subprocess.Popen, "true"),
        Hostile(replace_durably, Path("x"), b""),
        Path("x"),
        [Hostile(os.system, "true"), bytes(1 << 17)],
    ],
    ids=["system", "eval", "getattr", "Popen", "a function of ours", "a path", "compressed"],
)
def test_only_facts_come_back(sent: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="can't be transferred"):
        task.loads(task.dumps(sent))


@pytest.mark.parametrize("name", task._PACKAGES)
def test_a_package_of_facts_is_there(name: str) -> None:
    """If a package were renamed, results of its classes could not be returned from executors."""
    assert importlib.util.find_spec(f"tierctl.{name}") is not None


def test_facts_come_back() -> None:
    facts = [TierState(), started(0), UsageError("no", hint="yes"), {"a": (1, b"2", None)}, array("q", [1])]
    assert picture(task.loads(task.dumps(facts[0]))) == picture(TierState())
    assert task.loads(task.dumps(facts[1])) == facts[1]
    assert repr(task.loads(task.dumps(facts[2:]))) == repr(facts[2:])


@pytest.mark.parametrize("size_bytes", [0, (1 << 16) - 100, 1 << 16, 3 << 20])
def test_large_values_are_sent_compressed(size_bytes: int) -> None:
    value = array("b", bytes(size_bytes))
    data = task.dumps(value)
    assert task.loads(data) == value
    assert len(data) <= (1 << 16) + 200


@pytest.mark.parametrize("end", [3, 8, 12, 40, -1])
def test_a_damaged_compressed_value_is_an_error(end: int) -> None:
    data = task.dumps(array("q", range(100_000)))
    with pytest.raises(EngineError, match="cannot be decoded"):
        task.decoded(data[:end], object)


FAULTS = """
import resource
import numpy as np

def fill():
    arrays = [np.ones(1 << 20, np.int8) for _ in range(40)]

fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(environment: dict[str, str]) -> int:
    """Return how many pages a new process had to get from the system for arrays of equal size."""
    return int(subprocess.check_output([sys.executable, "-c", FAULTS], env=environment))


def test_freed_memory_is_reused() -> None:
    names = own_settings("spark://h:7077").items()
    assert faults({k.removeprefix("spark.executorEnv."): v for k, v in names}) < 0.1 * faults({})


class Here:
    """The executors of a session, which do their work in this process."""

    session = SimpleNamespace(conf=SimpleNamespace(get=lambda _name, default: default))

    def probe(self, check: Callable[[], None], **_more: Any) -> int:
        check()
        return 1


@pytest.mark.parametrize("is_source", [False, True])
@pytest.mark.parametrize(
    ("lack", "error"), [(Lack.LISTINGS, StoreRefused), (Lack.LISTINGS_FORBIDDEN, AuthenticationError)]
)
def test_a_store_that_refuses_ends_the_run_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, lack: Lack, error: type[TierctlError], is_source: bool
) -> None:
    with LackingStore([lack]) as store:
        store.found(monkeypatch)
        retry = RetrySettings(backoff_ms=1, backoff_max_ms=1)
        refusing = TierSpec(f"s3://{BUCKET}/tier", layout="kafka", retry=retry)
        folder = TierSpec(tmp_path.as_uri(), layout="kafka", retry=retry)
        spec = SideEffectContextSpec(
            remote=folder if is_source else refusing, source=refusing if is_source else None
        )
        engine = SparkEngine(Here(), spec, stop=Stop(), title="copy")  # type: ignore[arg-type]
        with pytest.raises(error) as raised:
            engine.ready()
        assert raised.value.hint
        assert store.count("GET") == 1
