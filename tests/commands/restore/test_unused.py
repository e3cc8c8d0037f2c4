"""Recovery commands name every set of objects that they do not use, with the reason, and count them.

Of each topic of the capture, a leader that lost an unclean election copied 5 of the 15 sets.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import tierctl
from tests.support.formatted import formatted_dir, formatted_node, saved_topics

Capture = Callable[..., Path]
TOPICS = ("payouts", "wallets")


@pytest.fixture
def remote(capture: Capture) -> Path:
    return capture("unclean-leader") / "before/remote"


def sets_of(remote: Path, topic: str) -> set[str]:
    return {path.name[21:43] for path in remote.rglob("*.log") if path.parent.name.startswith(topic)}


def published(remote: Path, metadata: Path) -> dict[str, str]:
    """Publish all sets into a new folder; return the action by segment id."""
    ran = tierctl("rebuild", "--metadata", metadata, "--remote", remote, "--apply", "--output", "json").ok()
    return {step["segment_id"]: step["action"] for step in ran.json["steps"]}


def command_of(name: str, remote: Path, tmp_path: Path) -> list[object]:
    metadata, target = tmp_path / "published", tmp_path / "target"
    match name.split(",", maxsplit=1)[0]:
        case "rebuild":
            return ["rebuild", "--metadata", metadata, "--remote", remote]
        case "materialise":
            ids = ["--topic", "payouts", "--as", "new", "--as-id", "AAAAAAAAAAAAAAAAAAAAAQ"]
            source = ["--metadata", metadata] if "with metadata" in name else []
            log_dir = formatted_dir(target)
            return ["restore", "log", "--remote", remote, *source, "--log-dir", log_dir, *ids]
        case "into":
            node = formatted_node(target)
            file = tmp_path / "topics.yaml"
            file.write_text(saved_topics(remote))
            later = ["--publish-later"] if "later" in name else []
            words = ["--topics-file", file, "--deletes-are-denied", *later]
            return ["restore", "into", node, "--log-dir", node, "--remote", remote, *words]
        case "new ids":
            node = node_with_new_topic(remote, metadata, "payouts")
            words = ["--topic", "payouts", "--assume-enabled"]
            return ["restore", "new-ids", "--metadata", node, "--log-dir", node, "--remote", remote, *words]
        case _:
            raise ValueError(name)


def node_with_new_topic(remote: Path, node: Path, topic: str) -> Path:
    """Make `node`, which has metadata, the log directory of a broker that created the lost `topic` again."""
    (node / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    for path in remote.rglob(f"{topic}-*-*/"):
        folder = node / path.name[:-23]
        folder.mkdir()
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: NewIdNewIdNewIdNewIdNQ")
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n99 0\n")
        (folder / f"{0:020d}.log").touch()
    return node


COMMANDS = [
    "rebuild",
    "materialise",
    "materialise, with metadata",
    "into",
    "into, published later",
    "new ids",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_set_is_used_or_named(name: str, remote: Path, tmp_path: Path) -> None:
    actions = published(remote, tmp_path / "published")
    ran = tierctl(*command_of(name, remote, tmp_path), "--output", "json").ok()
    plan: dict[str, Any] = ran.json
    topics = TOPICS[:1] if name.startswith(("materialise", "new ids")) else TOPICS
    losers = {key for topic in topics for key in sets_of(remote, topic)}
    losers &= {key for key, action in actions.items() if action == "discard_segment"}
    assert len(losers) == 5 * len(topics)
    skipped = {skip["segment_id"]: skip["reason"] for skip in plan["skipped"] if skip["segment_id"]}
    planned = {step["segment_id"] for step in plan["steps"]}
    assert losers <= skipped.keys() | planned
    assert all(skipped.values())
    (counted,) = re.findall(r"; (\d+) segments not used", ran.summary) or ["0"]
    assert int(counted) == len(skipped)
    for key in skipped:
        assert key in ran.err
