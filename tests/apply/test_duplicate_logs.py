"""If one broker has two folders of a partition, no command decides for it, and each reports it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apply.conftest import Ran
from tests.apply.worlds import World
from tests.support.topic_settings import enabled

META = "version=1\nnode.id={}\ncluster.id=c\n"


@pytest.fixture
def twice(tiered: World, tmp_path: Path) -> Callable[[int], tuple[object, ...]]:
    """Return options with two log directories that both have bills-0; broker `node_id` has the second."""
    other = tmp_path / "other"
    shutil.copytree(tiered.logs, other)
    (tiered.logs / "meta.properties").write_text(META.format(1))

    def options(node_id: int) -> tuple[object, ...]:
        (other / "meta.properties").write_text(META.format(node_id))
        return ("--log-dir", tiered.logs, "--log-dir", other)

    return options


@pytest.mark.parametrize("command", ["copy", "sweep"])
def test_nothing_is_planned(
    tierctl: Callable[..., Ran],
    tiered: World,
    twice: Callable[[int], tuple[object, ...]],
    command: str,
) -> None:
    settings = enabled(tiered.logs) if command == "copy" else ("--topic-configs", tiered.logs / "configs")
    ran = tierctl(command, *tiered.where, *twice(1), *settings, "-o", "json")
    assert (ran.code, ran.json["steps"]) == (7, [])
    assert "unreadable: " in ran.err
    assert "bills-0: expected one folder on broker 1 of cluster c, found 2: " in ran.err
    replicas = tierctl(command, *tiered.where, *twice(2), *settings, "-o", "json")
    assert replicas.code == 0
    assert bool(replicas.json["steps"]) == (command == "sweep")
    assert "note: bills-0 has 2 replicas in the log directories: the newest is used" in replicas.err
