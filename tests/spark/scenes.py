"""A run of each command that has both engines, with its lasting effects: the cells of the table of engines.

RECOVERY has the commands that derive metadata from the objects of a tier.
Nothing here imports PySpark, so that the local engine can be tried without it.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierctl.model import RemotePartitionDeleteState, Uuid
from tierctl.model.events import StoredPartitionState
from tierctl.wire.files import flatfile
from tierctl.wire.metadata.values import decode

from tests.cli.shell import Ran, tierctl
from tests.cli.test_messages import repeat_an_entry
from tests.pipeline.tables import run as write_tables
from tests.read.tier import metadata_values
from tests.spark.worlds import NOW_MS, Capture, copying, deleting, end_of, marking, sweeping, tiered, untiered
from tests.support.formatted import formatted_node, saved_topics
from tests.support.signing import signing_key

Run = Callable[..., Ran]
Scene = Callable[[Run, Capture, Path], Any]
LAST_RUNS = "last-successful-runs.json"
CACHES = "caches"
"""A relative path: executors work in another folder."""


def reading(*words: object) -> Scene:
    """Return a test case that runs one command over a captured tier; {} is the folder of the capture."""

    def scene(run: Run, capture: Capture, folder: Path) -> Any:
        configs = folder / "topics.properties"
        configs.write_text("clicks.retention.bytes=2097152\norders.remote.storage.enable=true\n")
        root = capture("tiered-cluster")
        ran = run(*(str(word).format(root=root, configs=configs) for word in words))
        assert ran.out.strip(), ran
        return ran

    return scene


_METADATA = "--metadata={root}/before"
_TIER = (_METADATA, "--remote={root}/before-remote")
_LOGS = ("--log-dir={root}/before", "--topic-configs={configs}", "--now", NOW_MS, "-o", "json")


def copies(run: Run, capture: Capture, folder: Path) -> Any:
    world = untiered(capture, folder / "world")
    return end_of(run(*copying(world)), world)


def copies_between_tiers(run: Run, capture: Capture, folder: Path) -> Any:
    source, target = tiered(capture, folder / "source"), untiered(capture, folder / "target")
    places = ("--metadata", source.metadata, "--from-remote", source.remote, "--remote", target.remote)
    ran = run("copy", *places, "--to-metadata", target.metadata, "-o", "json", "--apply")
    assert ran.code == 0, ran.err
    return end_of(ran, target)


def sweeps(run: Run, capture: Capture, folder: Path) -> Any:
    world = tiered(capture, folder / "world")
    return end_of(run(*sweeping(world)), world)


def deletes(run: Run, capture: Capture, folder: Path) -> Any:
    world = tiered(capture, folder / "world")
    return end_of(run(*marking(world)), world), end_of(run(*deleting(world)), world)


def applies(run: Run, capture: Capture, folder: Path) -> Any:
    """Carry out a plan that this test made."""
    world = tiered(capture, folder / "world")
    planned = [word for word in sweeping(world) if word != "--apply"]
    assert tierctl(*planned, "--plan-out", folder / "plan").code == 0
    inputs = ("--log-dir", world.logs, "--topic-configs", world.logs / "configs")
    end = end_of(run("apply", folder / "plan", *world.where, *inputs, "-o", "json", "--apply"), world)
    # The time of the run, as of which apply decides again.
    return replace(end, printed=_without("cutoff_ms", end.printed))


def _without(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_without(name, each) for each in value]
    if isinstance(value, dict):
        return {key: _without(name, each) for key, each in value.items() if key != name}
    return value


def cache_folder(capture: Capture, folder: Path, spoil: bool = True) -> None:
    """Make flat files, the first of which is damaged, and committed offsets, one of which is too high."""
    metadata = capture("tiered-cluster") / "after"
    assert tierctl("cache", "build", "--metadata", metadata, "--out", folder / CACHES).code == 0
    (folder / CACHES / "_rlmm_committed_offsets").write_text("0\n2\n0 9999\n3 5\n")
    first, second, *_ = sorted((folder / CACHES).glob("*.rlmcache"))
    repeat_an_entry(second)
    if spoil:
        first.write_bytes(first.read_bytes()[:-3])


def local_files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of every file that does not contain the time of the run."""
    of_topics = ("__remote_log_metadata-", "__cluster_metadata-")
    return {name: data for name, data in files_in(folder).items() if not name.startswith(of_topics)}


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of every file, without the times of runs."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith((".lock", LAST_RUNS))
    }


def shows_parts(run: Run, _capture: Capture, folder: Path) -> Any:
    """Show a file that is read in two parts, the last of which is damaged."""
    header = flatfile.FlatFileHeader(
        topic="orders", topic_id=Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), metadata_topic_offset=9
    )
    state = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    records = [StoredPartitionState(epoch=at, event_timestamp_ms=1, state=state) for at in range(33_000)]
    (folder / "orders.flat").write_bytes(
        b"".join(flatfile.written(header, map(flatfile.encode_entry, records)))[:-1]
    )
    ran = run("cache", "show", "orders.flat", "-o", "jsonl", cwd=folder)
    assert len(ran.lines) == 33_001, ran
    # Not what stderr has: only one of the processes may have to compile kernels.
    return ran.code, ran.out


def over_caches(*words: object, spoil: bool = True) -> Scene:
    """Return a test case that runs one command over a folder of caches and returns its files."""

    def scene(run: Run, capture: Capture, folder: Path) -> Any:
        cache_folder(capture, folder, spoil)
        metadata = capture("tiered-cluster") / "before"
        ran = run(*(str(word).format(metadata=metadata) for word in words), cwd=folder)
        assert ran.out.strip(), ran
        return ran, files_in(folder / CACHES)

    return scene


def builds(run: Run, capture: Capture, folder: Path) -> Any:
    where = ("cache", "build", "--metadata", capture("tiered-cluster") / "after", "-o", "json")
    kept = ("--state-dir", "state", "--out", "kept")
    ran = [run(*where, *kept, cwd=folder), run(*where, "--out", "flat", cwd=folder)]
    assert [each.code for each in ran] == [0, 0]
    return ran, files_in(folder)


def changes_of_tables(run: Run, capture: Capture, folder: Path) -> Any:
    """Calculate a change of all topics from the pipeline's tables; the result equals that of the topic."""
    root, configs, tables = capture("tiered-cluster"), folder / "topics.properties", folder / "tables"
    configs.write_text("clicks.retention.bytes=2097152\norders.retention.ms=172800000\n")
    metadata = ("--metadata", root / "before")
    write_tables(root / "before", tables, now_ms=NOW_MS)
    found = []
    for logs in ((), ("--log-dir", root / "before")):
        change = ("report", "--what-if", "*.retention.ms=2d", "--what-if", "*.retention.bytes=1M")
        where = ("--remote", root / "before-remote", *logs, "--topic-configs", configs, "--now", NOW_MS)
        asked = (
            *change,
            *where,
            "--price-per-gb-month",
            23,
            "--price-per-1000-requests",
            0.005,
            "-o",
            "json",
        )
        ran = run(*asked, "--warehouse", tables)
        of_topic = tierctl(*asked, *metadata)
        assert (ran.out, ran.code) == (of_topic.out, of_topic.code)
        assert len(ran.json) == 6
        found.append(ran)
    return found


def restores(run: Run, capture: Capture, folder: Path) -> Any:
    """Write local logs, one without the records of a key; return their files and a list."""
    broker, remote = folder / "broker", capture("tiered-cluster") / "before-remote"
    broker.mkdir()
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    (folder / "keys").write_text("1\nnobody\n")
    lists = ("--left-out", folder / "lists", "--sign-with", signing_key(folder / "key.pem"))
    ran = []
    for topic, new_id, more in (
        ("orders", "AAAAAAAAAAAAAAAAAAAAAQ", ("--without-keys", folder / "keys", *lists)),
        ("payments", "AAAAAAAAAAAAAAAAAAAAAg", ("--until", "payments-0=1234")),
    ):
        where = ("log", "--remote", remote, "--topic", topic, "--log-dir", broker)
        ran.append(run("restore", *where, "--as-id", new_id, *more, "--apply", "-o", "jsonl"))
        assert ran[-1].code == 0, ran[-1].err
    rows = [
        line for path in sorted(folder.glob("lists/*.jsonl")) for line in path.read_text().splitlines()[1:]
    ]
    assert rows
    return [each.out for each in ran], files_in(broker), rows


def besides_spark(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of doctor without those about Spark, of which none may be a fault."""
    about_spark = [each for each in rows if each["check"].startswith("spark_")]
    assert {each["severity"] for each in about_spark} <= {"ok", "not_checked"}
    return [each for each in rows if each not in about_spark]


def checks_files(run: Run, capture: Capture, folder: Path) -> Any:
    del folder
    root = capture("tiered-cluster")
    where = (f"--metadata={root}/before", f"--remote={root}/before-remote", f"--log-dir={root}/before")
    ran = run("doctor", *where, "-o", "json")
    return ran.code, besides_spark(ran.json)


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
    return ran, published(node), local_files_in(node)


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
    return ran, published(world.metadata), local_files_in(world.metadata), objects


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
    return ran, published(node), local_files_in(node)


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


RECOVERY: dict[str, Scene] = {
    **{f"rebuild --metadata, {tier}": rebuilds(tier) for tier in ("encrypted", "two leaders")},
    "rebuild --aiven-private-key": rebuilds("encrypted", with_key=True),
    "restore into": into,
    "restore new-ids": new_ids,
    "restore check": checks,
    "apply --plan of rebuild": applies_rebuild,
    "apply --plan of restore": applies_restore,
    "verify --plan-out": plans_repairs,
}
"""Commands that derive metadata: executors list the tier and read its objects in each of them."""

SCENES: dict[str, Scene] = {
    "copy": copies,
    "copy --from-remote": copies_between_tiers,
    "sweep": sweeps,
    "delete": deletes,
    "apply": applies,
    "restore log": restores,
    "format": reading("format", _METADATA, "--style", "json"),
    "segments": reading("segments", *_TIER, "-o", "json"),
    "fetch": reading("fetch", *_TIER, "--topic=payments", "--partition=0", "-o", "jsonl"),
    "fetch --erase-report": reading("fetch", *_TIER, "--erase-report", "1", "-o", "jsonl"),
    "verify": reading("verify", *_TIER, "--deep", *_LOGS),
    "status": reading("status", *_TIER, *_LOGS),
    "explain": reading("explain", "orders", 1, *_TIER, *_LOGS),
    "report": reading("report", *_TIER, *_LOGS, "--show", "growth", "-o", "json"),
    "report --what-if": changes_of_tables,
    "cache show": over_caches("cache", "show", CACHES, "-o", "json"),
    "cache show --epoch": over_caches(
        "cache", "show", CACHES, "--epoch", "0", "--offset", "500", "-o", "json"
    ),
    "cache show --limit": shows_parts,
    "cache verify": over_caches("cache", "verify", CACHES, "-o", "json"),
    "cache build": builds,
    "cache compact": over_caches("cache", "compact", CACHES, "-o", "json", "--apply"),
    "offsets show": over_caches("offsets", "show", "--log-dir", CACHES, "-o", "json"),
    "offsets check": over_caches(
        "offsets", "check", "--log-dir", CACHES, "--metadata={metadata}", "-o", "json"
    ),
    "offsets repair": over_caches(
        "offsets", "repair", "--log-dir", CACHES, "--metadata={metadata}", "-o", "json", "--apply"
    ),
    "doctor": checks_files,
    "fetch --rebuild": reading("fetch", "--rebuild", "--remote={root}/before-remote", "-o", "jsonl"),
    **RECOVERY,
}
CODES = {"cache show": 7, "cache verify": 7, "cache compact": 7, "offsets check": 7}
