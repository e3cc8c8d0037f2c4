"""Sets of objects that a plan does not use: they are named, and given up only beside a sound one."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apply.repairs import a_day_passes, age, copy_objects, rename_segment
from tests.cli.shell import Ran, tierctl
from tests.metadata.topics import topic_in
from tests.support.cluster_metadata import make_log_dir
from tests.support.faults import flip_bit
from tests.support.formatted import formatted_dir, formatted_node, saved_topics
from tests.verify.cases import CLICKS, OTHER
from tests.verify.tiers import Spoilt

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
    make_log_dir(node, 1, cluster_id="other")
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


def test_a_cluster_that_has_tiered_nothing_yet_adopts_the_copied_tier(remote: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(remote, tmp_path / "tier")
    topic_in(tmp_path / "published", writable=True, partition_count=2).close()
    command = command_of("new ids", tier, tmp_path)
    refused = tierctl(*command)
    assert (refused.code, "restore new-ids, with --adopt-tier" in refused.err) == (4, True), refused.err
    planned = tierctl(*command, "--adopt-tier", "--output", "json").ok()
    assert planned.json["steps"]
    assert not list(tier.rglob(".tierctl-identity"))
    tierctl(*command, "--adopt-tier", "--apply").ok()
    assert "restored already" in tierctl(*command).ok().err, "now it is the tier of this cluster"


Plan = dict[str, Any]


@pytest.mark.parametrize("repeated", ["itself", "a link"])
def test_a_repeated_log_directory_is_no_replica(remote: Path, tmp_path: Path, repeated: str) -> None:
    published(remote, tmp_path / "published")
    command = command_of("new ids", remote, tmp_path)
    plain = tierctl(*command, "--output", "json")
    node = tmp_path / "published"
    (tmp_path / "link").symlink_to(node)
    again = tierctl(
        *command, "--log-dir", node if repeated == "itself" else tmp_path / "link", "--output", "json"
    )
    assert again.json["steps"] == plain.json["steps"] != []
    assert (again.code, again.json["skipped"]) == (plain.code, plain.json["skipped"])


def rebuild(tier: Spoilt) -> tuple[Ran, Plan]:
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    ran = tierctl("rebuild", *where, "--topic", CLICKS, "--metadata-partitions", 5, "-o", "json")
    assert ran.out, ran.err
    return ran, ran.json


def verify(tier: Spoilt) -> tuple[Ran, Plan]:
    state, plan = tier.remote.parent / "state", tier.remote.parent / "plan.json"
    state.mkdir()
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    run = ("verify", *where, "--topic", CLICKS, "--state-dir", state, "--plan-out", plan)
    tierctl(*run)
    a_day_passes(state)
    return tierctl(*run), json.loads(plan.read_text())


GIVING_UP = {"discard_segment", "delete_segment"}
PLANNING = {"rebuild": rebuild, "verify": verify}


def _sound(path: Path) -> None:
    del path


SERVING: dict[str, tuple[str, Callable[[Path], None]]] = {
    "sound": (".log", _sound),
    "a damaged batch": (".log", flip_bit),
    "no log": (".log", Path.unlink),
    "a damaged index": (".timeindex", flip_bit),
    "no index": (".index", Path.unlink),
}


@pytest.mark.parametrize("lacks", ["", ".snapshot"], ids=["whole", "no snapshot"])
@pytest.mark.parametrize("case", SERVING)
@pytest.mark.parametrize("command", PLANNING)
def test_a_duplicate_is_given_up_only_beside_a_sound_segment(
    writable: Callable[[str], Path], command: str, case: str, lacks: str
) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    duplicate, finished = copy_objects(tier), tier.segments(CLICKS)[1]
    if lacks:
        tier.object(duplicate, lacks).unlink()
    suffix, damage = SERVING[case]
    damage(tier.object(finished, suffix))
    ran, plan = PLANNING[command](tier)
    given_up = {str(step["segment_id"]) for step in plan["steps"] if step["action"] in GIVING_UP}
    is_sound = case == "sound" or (command == "verify" and case == "no index")
    assert given_up == ({str(OTHER)} if is_sound else set()), ran.err
    if not is_sound:
        assert (ran.code, str(OTHER) in ran.out + ran.err) == (7, True), ran.err
        assert str(finished.segment_id) in ran.out + ran.err


@pytest.mark.parametrize("command", PLANNING)
def test_a_half_set_that_alone_has_its_offsets_stays(writable: Callable[[str], Path], command: str) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    path = tier.object(rename_segment(tier, 1), ".snapshot")
    path.unlink()
    age(list(path.parent.iterdir()))
    ran, plan = PLANNING[command](tier)
    assert (plan["steps"], ran.code) == ([], 7), ran.err
    assert f"{OTHER}: not understood: it has no .snapshot" in ran.out + ran.err
