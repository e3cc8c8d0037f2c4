"""Executors can only return data, in tierctl's own classes."""

import importlib.util
import os
import pickle
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import EngineError, UsageError
from tierctl.files import replace_durably
from tierctl.spark.executors import task
from tierctl.state.tier_state import TierState

from tests.metadata.events import started
from tests.metadata.pictures import picture


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
    ],
    ids=["system", "eval", "getattr", "Popen", "a function of ours", "a path"],
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
        task.decoded_result(data[:end])


def test_a_hostile_value_is_not_decoded_from_a_compressed_one() -> None:
    data = task.dumps([Hostile(os.system, "true"), bytes(1 << 17)])
    assert data.startswith(b"ZSTD")
    with pytest.raises(pickle.UnpicklingError):
        task.loads(data)
