"""A run of each command that has both engines, with its lasting effects: the cells of the table of engines.

Nothing here imports PySpark, so that the local engine can be tried without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierctl.model import RemotePartitionDeleteState, Uuid
from tierctl.model.events import StoredPartitionState
from tierctl.wire.files import flatfile

from tests.cli.shell import Ran, tierctl
from tests.cli.test_messages import repeat_an_entry
from tests.pipeline.tables import run as write_tables
from tests.spark import recovery
from tests.spark.worlds import NOW_MS, copying, deleting, end_of, marking, sweeping, tiered, untiered
from tests.support.signing import signing_key

Capture = Callable[[str], Path]
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


SCENES: dict[str, Scene] = {
    "copy": copies,
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
    **recovery.SCENES,
}
CODES = {"cache show": 7, "cache verify": 7, "cache compact": 7, "offsets check": 7}
