"""Commands that derive metadata from the objects of a tier: one run of each, with its lasting effects."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierctl.model import Uuid
from tierctl.wire.metadata.values import decode

from tests.cli.shell import Ran, tierctl
from tests.read.tier import metadata_values
from tests.spark.worlds import NOW_MS, tiered
from tests.support.formatted import formatted_node, saved_topics

Capture = Callable[[str], Path]
Run = Callable[..., Ran]
Scene = Callable[[Run, Capture, Path], Any]

NEW_ID = Uuid("NewIdNewIdNewIdNewIdNQ")
TIERS = {
    "kafka": "tiered-cluster/before-remote",
    "aiven": "aiven-plain/bucket",
    "encrypted": "aiven-encrypted/bucket",
    "two leaders": "unclean-leader/before/remote",
}


def tier_of(capture: Capture, name: str) -> Path:
    """Return the folder of one of TIERS."""
    capture_name, _, part = TIERS[name].partition("/")
    return capture(capture_name) / part


def published(folder: Path) -> tuple[list[tuple[int, int, object]], dict[str, int]]:
    """Return the events in a metadata folder without their times, and the sizes of the logs."""
    events = [
        (number, offset, None if value is None else replace(decode(value), event_timestamp_ms=0))
        for number, offset, value in metadata_values(folder)
    ]
    logs = sorted(folder.glob("__remote_log_metadata-*/*.log"))
    return events, {str(path.relative_to(folder)): path.stat().st_size for path in logs}


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of every file that does not contain the time of the run."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {str(path.relative_to(folder)): path for path in paths}
    return {
        name: path.read_bytes()
        for name, path in named.items()
        if not name.startswith(("__remote_log_metadata-", "__cluster_metadata-")) and path.name != ".lock"
    }


def rebuilds(tier: str, *, with_key: bool = False) -> Scene:
    """Return a test case that publishes the metadata of a tier in a new folder."""

    def scene(run: Run, capture: Capture, folder: Path) -> Any:
        remote, new = tier_of(capture, tier), folder / "new"
        key = next(remote.parent.glob("keys/*private*")) if with_key else None
        keys = () if key is None else ("--aiven-private-key", key)
        ran = run("rebuild", "--metadata", new, "--remote", remote, *keys, "--apply", "-o", "jsonl")
        assert ran.code == 0, ran.err
        assert ("sets are encrypted" in ran.err) is (tier == "encrypted" and not with_key)
        found = published(new)
        assert found[0]
        return ran, found

    return scene


def into(run: Run, capture: Capture, folder: Path) -> Any:
    """Restore topics on a formatted node."""
    words, node = _into(capture, folder)
    ran = run("restore", *words, "--apply", "-o", "jsonl")
    assert ran.code == 0, ran.err
    return ran, published(node), files_in(node)


def _into(capture: Capture, folder: Path) -> tuple[tuple[object, ...], Path]:
    remote, node = tier_of(capture, "kafka"), formatted_node(folder / "node")
    (folder / "topics.yaml").write_text(saved_topics(remote))
    where = ("into", node, "--log-dir", node, "--remote", remote, "--topics-file", folder / "topics.yaml")
    return (*where, "--deletes-are-denied"), node


def new_ids(run: Run, capture: Capture, folder: Path) -> Any:
    """Restore a topic that was created again, under its new id."""
    world = tiered(capture, folder / "world")
    (world.metadata / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    for number in range(3):
        partition = world.metadata / f"payments-{number}"
        shutil.rmtree(partition, ignore_errors=True)
        partition.mkdir()
        (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
        (partition / "leader-epoch-checkpoint").write_text("0\n1\n99 0\n")
        (partition / "00000000000000000000.log").touch()
    partitions = len(list(world.metadata.glob("__remote_log_metadata-*")))
    config = folder / "server.properties"
    config.write_text(f"rlmm.config.remote.log.metadata.topic.num.partitions={partitions}\n")
    where = (*world.where, "--log-dir", world.metadata, "--topic", "payments", "--assume-enabled")
    where = (*where, "--broker-config", config)
    ran = run("restore", "new-ids", *where, "--apply", "-o", "jsonl")
    assert ran.code == 0, ran.err
    objects = world.objects()
    assert any(NEW_ID in name for name in objects)
    return ran, published(world.metadata), files_in(world.metadata), objects


def checks(run: Run, capture: Capture, folder: Path) -> Any:
    """Compare the logs of stopped brokers with those that are derived from the tier."""
    root, listing = capture("tiered-cluster"), folder / "listing"
    where = ("--remote", root / "before-remote", "--log-dir", root / "before")
    ran = run("restore", "check", *where, "--listing-out", listing, "-o", "json")
    assert "leader_epochs" in {row["check"] for row in ran.json if row["severity"] == "ok"}
    return ran, listing.read_bytes()


def applies_rebuild(run: Run, capture: Capture, folder: Path) -> Any:
    """Carry out a plan of `rebuild`."""
    plan, where = folder / "plan", ("--metadata", folder / "new", "--remote", tier_of(capture, "aiven"))
    assert tierctl("rebuild", *where, "--plan-out", plan).code == 0
    ran = run("apply", plan, *where, "--apply", "-o", "jsonl")
    assert ran.code == 0, ran.err
    return ran, published(folder / "new")


def applies_restore(run: Run, capture: Capture, folder: Path) -> Any:
    """Carry out a plan of `restore into`."""
    words, node = _into(capture, folder)
    planned = tierctl("restore", *words, "--plan-out", folder / "plan")
    assert planned.code == 0, planned.err
    where = ("--remote", tier_of(capture, "kafka"), "--log-dir", node)
    ran = run("apply", folder / "plan", *where, "--apply", "-o", "jsonl")
    assert ran.code == 0, ran.err
    return ran, published(node), files_in(node)


def plans_repairs(run: Run, capture: Capture, folder: Path) -> Any:
    """Plan the repairs of objects that no event names."""
    root, plan = capture("tiered-cluster"), folder / "plan"
    where = ("--metadata", root / "after", "--remote", root / "before-remote", "--log-dir", root / "after")
    ran = run("verify", *where, "--now", NOW_MS, "--orphan-age", "24h", "--plan-out", plan, "-o", "json")
    saved = json.loads(plan.read_bytes())
    assert any("orphan" in skip["reason"] for skip in saved["skipped"])
    # The digest covers the time at which the plan was made.
    ran = replace(ran, err=re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", ran.err))
    return ran, {name: saved[name] for name in ("steps", "options", "skipped")}


SCENES: dict[str, Scene] = {
    **{f"rebuild --metadata, {tier}": rebuilds(tier) for tier in ("encrypted", "two leaders")},
    "rebuild --aiven-private-key": rebuilds("encrypted", with_key=True),
    "restore into": into,
    "restore new-ids": new_ids,
    "restore check": checks,
    "apply --plan of rebuild": applies_rebuild,
    "apply --plan of restore": applies_restore,
    "verify --plan-out": plans_repairs,
}
"""Executors list the tier and read its objects in each of them."""
