"""The examples in the help and in the man pages run unchanged except for their paths."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.docs.tree import command_tree

from tests.cli.shell import environment, tierctl
from tests.support.formatted import formatted_node, saved_topics

COMMANDS = [node for node in command_tree().walk() if not node.children]
EXAMPLES = [
    example.command
    for node in COMMANDS
    for example in node.examples
    # tests/docs/test_cluster.py runs these examples.
    if "broker1:9092" not in example.command
]


@pytest.fixture
def places(capture: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    """Return the paths in examples, and the writable folders that replace them in one test."""
    root = capture("tiered-cluster")
    found = {
        "/var/lib/kafka/data": root / "before",
        "s3://archive/tier": root / "before-remote",
        "/srv/kafka": capture("untiered-broker") / "local",
        "/srv/metadata": None,
        "/var/lib/tierctl": None,
        "/srv/caches": None,
        "/srv/warehouse": None,
        "/var/lib/kafka/new": None,
    }
    for number, source in enumerate(found.values()):
        if source is not None:
            shutil.copytree(source, tmp_path / str(number))
    (tmp_path / "0" / "_rlmm_committed_offsets").write_text("0\n1\n3 6\n")
    (tmp_path / "topics.properties").write_text(
        "".join(
            f"{topic}.remote.storage.enable=true\n{topic}.retention.ms=-1\n{topic}.retention.bytes=1000000\n"
            f"{topic}.local.retention.bytes=1\n"
            for topic in ("orders", "ledger")
        )
    )
    (tmp_path / "server.properties").write_text(
        "listeners=PLAINTEXT://:9092\nremote.log.metadata.manager.listener.name=PLAINTEXT\n"
        "remote.log.storage.system.enable=true\nremote.log.storage.manager.class.name=some.Plugin\n"
    )
    return {place: str(tmp_path / str(number)) for number, place in enumerate(found)}


def replaced(command: str, places: dict[str, str]) -> list[str]:
    program, *words = shlex.split(command)
    assert program == "tierctl"
    return [places.get(word, word) for word in words]


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_runs(command: str, places: dict[str, str], tmp_path: Path) -> None:
    args = replaced(command, places)
    if args[0] == "copy":
        # The tier of these examples does not exist yet.
        places["s3://archive/tier"] = str(tmp_path / "new")
        (tmp_path / "new").mkdir()
        Path(places["/srv/metadata"]).mkdir()
        args = replaced(command, places)
    if args[0] == "rebuild" and "--broker-config" not in args:
        args += ["--metadata-partitions", "5"]
    if args[0] == "restore":
        formatted_node(Path(places["/var/lib/kafka/new"]))
        (tmp_path / "topics.yaml").write_text(saved_topics(Path(places["s3://archive/tier"])))
    caches = places["/srv/caches"]
    if caches in args:
        build = ("cache", "build", "--metadata", places["/var/lib/kafka/data"], "--out", caches)
        assert tierctl(*build).code == 0
    if args[0] == "apply":
        plan = ["sweep", *args[2:6], "--log-start-offset", "orders-0=1800", "--plan-out", "plan.json"]
        assert tierctl(*plan, cwd=tmp_path).code == 0
    ran = tierctl(*args, cwd=tmp_path, env=environment(HOME=str(tmp_path)))
    assert ran.code == 0, ran.err
    assert "error" not in ran.err
    assert ran.out or args[:2] == ["offsets", "check"] or (tmp_path / "tier.html").exists()


@pytest.mark.parametrize("node", COMMANDS, ids=lambda node: " ".join(node.path))
def test_every_command_has_two_or_three_examples(node: object) -> None:
    examples = node.examples  # type: ignore[attr-defined]
    assert 2 <= len(examples) <= 3
    words = " ".join(node.path)  # type: ignore[attr-defined]
    assert all(example.command.startswith(f"tierctl {words} ") for example in examples)
    shown = tierctl(*words.split(), "--help", env=environment(COLUMNS="80")).out
    assert max(map(len, shown.splitlines())) <= 80
    unfolded = " ".join(shown.replace("\\\n", " ").split())
    for example in examples:
        assert f"$ {example.command}" in unfolded
