"""Bulk reads have the same result on every kind of Spark."""

import pytest

from tests.cli.shell import Ran, tierctl
from tests.spark.clusters import Engine
from tests.spark.executors.bulk import Capture, within
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt

COMMANDS = {
    "format": ("format", "--style", "json", "--order", "time"),
    "segments": ("segments", "--all", "-o", "json"),
    "verify": ("verify", "--deep", "--now", NOW_MS, "-o", "json"),
    "rebuild": ("rebuild", "-o", "jsonl"),
}
CODES = {"format": 7, "segments": 7, "verify": 7, "rebuild": 0}


@pytest.fixture(scope="module")
def spoilt(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    """Return a tier with a cut log, missing and orphaned objects, and an unreadable record."""
    import shutil

    folder = tmp_path_factory.mktemp("spoilt")
    for name in ("before", "before-remote"):
        shutil.copytree(within(capture, f"tiered-cluster/{name}"), folder / name)
    tier = Spoilt(folder / "before", folder / "before-remote")
    for name in ("log cut", "snapshot gone", "foreign object", "metadata unreadable", "copy dangling"):
        CASES[name].spoil(tier)
    return tier


@pytest.fixture(scope="module")
def here(spoilt: Spoilt) -> dict[str, Ran]:
    return {name: tierctl(*_words(name, spoilt)) for name in COMMANDS}


def _words(name: str, tier: Spoilt) -> tuple[object, ...]:
    command, *more = COMMANDS[name]
    metadata = tier.metadata.with_name("new") if name == "rebuild" else tier.metadata
    remote = ("--remote", tier.remote) if name in {"verify", "rebuild"} else ()
    return (command, "--metadata", metadata, *remote, *more)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_everywhere(engine: Engine, name: str, spoilt: Spoilt, here: dict[str, Ran]) -> None:
    said = engine.tierctl(*_words(name, spoilt))
    assert (said.code, said.out, said.err) == (here[name].code, here[name].out, here[name].err)
    assert said.code == CODES[name]
    assert said.out.strip()
