"""Only facts come back from executors, in tierctl's own classes."""

import importlib.util
import os
import pickle
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import UsageError
from tierctl.files import replace_durably
from tierctl.spark.executors import serialization
from tierctl.state.tier import TierState

from tests.metadata.events import started
from tests.metadata.pictures import picture


class Hostile:
    """Pickled, it is a call of anything."""

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
    with pytest.raises(pickle.UnpicklingError, match="does not travel"):
        serialization.loads(serialization.dumps(sent))


@pytest.mark.parametrize("name", serialization._PACKAGES)
def test_a_package_of_facts_is_there(name: str) -> None:
    """One that was renamed would keep its results on the executors."""
    assert importlib.util.find_spec(f"tierctl.{name}") is not None


def test_facts_come_back() -> None:
    facts = [TierState(), started(0), UsageError("no", hint="yes"), {"a": (1, b"2", None)}, array("q", [1])]
    assert picture(serialization.loads(serialization.dumps(facts[0]))) == picture(TierState())
    assert serialization.loads(serialization.dumps(facts[1])) == facts[1]
    assert repr(serialization.loads(serialization.dumps(facts[2:]))) == repr(facts[2:])
