"""Tiers with one object that is not understood, and the commands that decide from objects."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tierctl.wire.primitives import crc32c

from tests.cli.shell import Ran, tierctl
from tests.support.amounts import TRIES_ALL
from tests.support.cluster_metadata import make_log_dir
from tests.support.formatted import formatted_dir, formatted_node

Capture = Callable[..., Path]
Change = Callable[[bytes], bytes]
TWIN = "TwinTwinTwinTwinTwinTQ"
NEW_ID = "2QZ5FAXaQrqgUzsReWnweA"
DAY_S = 24 * 3600
TWINNED = 1
"""Number of the set that is stored twice: the second copy, `TWIN`, is not needed."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A captured tier, one of its partitions, another topic whose metadata are kept, and private keys."""

    capture: str
    remote: str
    logs: str
    partition: tuple[str, str]
    other: str
    suffixes: Sequence[str]
    keys: Sequence[str] = ()


AIVEN = Layout(
    capture="aiven-plain",
    remote="bucket",
    logs="broker-logs",
    partition=("sensors", "1"),
    other="audit",
    suffixes=(".log", ".indexes", ".rsm-manifest"),
)
LAYOUTS = {
    "kafka": Layout(
        capture="tiered-cluster",
        remote="before-remote",
        logs="before",
        partition=("payments", "0"),
        other="metrics",
        suffixes=(".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"),
    ),
    "aiven": AIVEN,
    "aiven, encrypted": replace(
        AIVEN, capture="aiven-encrypted", keys=("--aiven-private-key", "key1={root}/keys/private.pem")
    ),
    "aiven, no key": replace(AIVEN, capture="aiven-encrypted"),
}


@dataclass(frozen=True)
class Tier:
    """A copy of a captured tier that a test may change, and everything that the commands need beside it."""

    folder: Path
    root: Path
    layout: Layout
    uri: str = ""
    """Where commands find the tier; empty if in the folder `remote`."""

    @property
    def remote(self) -> Path:
        return self.folder / "remote"

    @cached_property
    def sets(self) -> list[str]:
        """The stems of the names of the partition's objects, by start offset; without the twin's."""
        names = {p.name.partition(".")[0] for p in self._objects}
        return sorted(name for name in names if not name.endswith(TWIN))

    @property
    def _objects(self) -> Iterator[Path]:
        topic, number = self.layout.partition
        kafka, aiven = f"{topic}-{number}-*/0*", f"{topic}-*/{number}/0*"
        return self.remote.rglob(kafka if self.layout.capture == "tiered-cluster" else aiven)

    def leaves_out(self, folder: str, names: list[str]) -> list[str]:
        """Return which entries of a captured folder are those of other topics and partitions."""
        (topic, number), other = self.layout.partition, self.layout.other
        kept = re.compile(rf"{topic}-{number}-.{{22}}|{topic}-.{{22}}|{other}-.*|{number}|kafka.*|tier")
        is_topic = Path(folder).name.startswith(topic)
        return [
            name
            for name in names
            if (Path(folder) / name).is_dir()
            and not (kept.fullmatch(name) and (name == number) is is_topic)
            and other not in folder
        ]

    @cached_property
    def twin(self) -> str:
        return f"{self.sets[TWINNED][:20]}-{TWIN}"

    @property
    def places(self) -> list[str]:
        """The stems of the sets that tests change."""
        twin = [self.twin] if self.has_twin else []
        return [self.sets[0], self.sets[TWINNED], *twin, self.sets[TWINNED + 1], self.sets[-1]]

    @property
    def twins(self) -> list[str]:
        """The ids of the two sets with the same records; the second one is not needed."""
        return [self.sets[TWINNED][21:], TWIN]

    @property
    def has_twin(self) -> bool:
        """Without its key, a set with a twin is not understood, so the whole plan would be empty."""
        return not self.is_sealed

    @property
    def is_sealed(self) -> bool:
        return self.layout.capture == "aiven-encrypted" and not self.layout.keys

    def path(self, stem: str, suffix: str) -> Path:
        (path,) = self.remote.rglob(f"{stem}{suffix}")
        return path

    @contextmanager
    def changed(self, stem: str, mutation: "Mutation") -> Iterator[None]:
        """Change an object during the block; its time stays."""
        path = self.path(stem, mutation.suffix)
        sound, times = path.read_bytes(), path.stat()
        if mutation.change is None:
            path.unlink()
        else:
            path.write_bytes(mutation.change(sound))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            yield
        finally:
            path.write_bytes(sound)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    @property
    def keys(self) -> list[str]:
        return [word.format(root=self.root) for word in self.layout.keys]

    def where(self, *, name: str = "") -> tuple[object, ...]:
        topic, number = self.layout.partition
        return (
            "--remote",
            self.uri or self.remote,
            *self.keys,
            "--topic",
            name or topic,
            "--partition",
            number,
        )

    def run(self, *words: object) -> Ran:
        return tierctl(*words, *self.where(), "--output", "json")


def made_tier(capture: Capture, folder: Path, name: str) -> Tier:
    """Copy a captured tier; forget the metadata of the partition, and store one of its sets twice."""
    layout = LAYOUTS[name]
    root = capture(layout.capture)
    tier = Tier(folder, root, layout)
    shutil.copytree(root / layout.remote, tier.remote, ignore=tier.leaves_out)
    tierctl(
        *("rebuild", "--metadata", folder / "metadata", "--remote", tier.remote, *tier.keys),
        *("--topic", layout.other, "--apply"),
    ).ok()
    for path in tier.remote.rglob(".tierctl*"):
        path.unlink()
    tierctl("rebuild", "--metadata", folder / "whole", "--remote", tier.remote, *tier.keys, "--apply").ok()
    for path in tier.remote.rglob(".tierctl*"):
        path.unlink()
    make_log_dir(folder / "metadata", 1, cluster_id="other")
    for path in list(tier._objects):
        if tier.has_twin and path.name.startswith(tier.sets[TWINNED]):
            shutil.copy(path, path.with_name(path.name.replace(path.name[21:43], TWIN)))
    for path in tier._objects:
        age_s = 9 * DAY_S + (DAY_S if TWIN in path.name else 0)
        os.utime(path, (time.time() - age_s,) * 2)
    _with_brokers(tier)
    return tier


def _with_brokers(tier: Tier) -> None:
    folder, layout = tier.folder, tier.layout
    topic, number = layout.partition
    formatted_dir(folder / "stopped")
    formatted_node(folder / "node")
    lines = [f"version: 1\ntopics:\n  {topic}:\n    topic_id: '{topic_id(tier)}'\n    partitions: 2\n"]
    (folder / "topics.yaml").write_text("".join(lines))
    new = folder / "again"
    shutil.copytree(folder / "metadata", new)
    partition = new / f"{topic}-{number}"
    partition.mkdir()
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n99 0\n")
    (partition / "00000000000000000000.log").touch()
    (folder / "server.properties").write_text("rlmm.config.remote.log.metadata.topic.num.partitions=50\n")


def topic_id(tier: Tier) -> str:
    stem = tier.path(tier.sets[0], ".log").parent
    return stem.name[-22:] if tier.layout.capture == "tiered-cluster" else stem.parent.name[-22:]


Plan = dict[str, Any]


def verify(tier: Tier, metadata: str, *more: object) -> tuple[Ran, Plan]:
    folder = tier.folder
    out = folder / "repairs.json"
    out.unlink(missing_ok=True)
    ran = tierctl(
        *("verify", "--metadata", folder / metadata, "--remote", tier.uri or tier.remote, *tier.keys),
        *("--log-dir", tier.root / tier.layout.logs, "--state-dir", folder / f"state-{metadata}"),
        *("--plan-out", out, "--output", "jsonl", *more),
    )
    return ran, json.loads(out.read_text()) if out.exists() else {"steps": [], "skipped": []}


def commands(tier: Tier) -> dict[str, Callable[..., tuple[Ran, Plan]]]:
    """Return the commands that decide from objects, each as a function that returns its result and plan.

    The functions of `rebuild` and `restore` take more options.
    """
    folder, where, quick = tier.folder, tier.where(), ("--attempts", "1", "--output", "json")
    whole = where[:-2]
    logs = ("--log-dir", tier.root / tier.layout.logs)

    def planned(*words: object) -> Callable[..., tuple[Ran, Plan]]:
        def run(*more: str) -> tuple[Ran, Plan]:
            ran = tierctl(*words, *(whole if "into" in words else where), *quick, *more)
            return ran, ran.json if ran.out else {"steps": [], "skipped": []}

        return run

    rebuild = ("rebuild", "--metadata", folder / "new")
    node = ("into", folder / "node", "--log-dir", folder / "node", "--topics-file", folder / "topics.yaml")
    again = ("--metadata", folder / "again", "--log-dir", folder / "again", "--assume-enabled")
    return {
        "rebuild": planned(*rebuild),
        "rebuild with logs": planned(*rebuild, *logs),
        "restore log": planned(*("restore", "log", "--log-dir", folder / "stopped", "--as-id", NEW_ID)),
        "restore into": planned("restore", *node, "--deletes-are-denied"),
        "restore new-ids": planned(
            "restore", "new-ids", *again, "--broker-config", folder / "server.properties"
        ),
        "verify --plan-out": lambda: verify(tier, "metadata"),
        "verify --plan-out, orphan": lambda: verify(tier, "whole"),
        "fetch --rebuild": lambda: _fetch(tier),
    }


def _fetch(tier: Tier) -> tuple[Ran, Plan]:
    ran = tierctl("fetch", "--rebuild", *tier.where(), "--columns", "offset", "-o", "csv", "--no-header")
    return ran, {"steps": [], "skipped": [], "offsets": [int(line) for line in ran.lines]}


def patched(at: int, value: int, *, nth: int = 0, mends_crc: bool = False) -> Change:
    """Return the change of one byte in the head of the `nth` batch."""

    def change(data: bytes) -> bytes:
        changed, position = bytearray(data), 0
        for _ in range(nth):
            position += 12 + int.from_bytes(changed[position + 8 : position + 12], "big")
        changed[position + at] = value
        if mends_crc:
            end = position + 12 + int.from_bytes(changed[position + 8 : position + 12], "big")
            crc = crc32c(bytes(changed[position + 21 : end]))
            changed[position + 17 : position + 21] = crc.to_bytes(4, "big")
        return bytes(changed)

    return change


def flipped(at: int) -> Change:
    return lambda data: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@dataclass(frozen=True)
class Mutation:
    """A change of the object of a set that ends with `suffix`; without `change`, it is missing or refused.

    `is_unread` states that the records of the set can't be known afterwards.
    """

    name: str
    suffix: str
    change: Change | None
    is_unread: bool = False


KAFKA_MUTATIONS = [
    *(
        Mutation(f"magic {n} of batch {nth}", ".log", patched(16, n, nth=nth), is_unread=True)
        for n in (3, 127)
        for nth in (0, 3)
    ),
    *(Mutation(f"codec {n}", ".log", patched(22, n, mends_crc=True), is_unread=True) for n in (5, 7)),
    Mutation("a bit", ".log", flipped(200), is_unread=True),
    Mutation("snapshot version", ".snapshot", lambda data: b"\0\7" + data[2:], is_unread=True),
    Mutation("epochs version", ".leader_epoch_checkpoint", lambda data: b"7" + data[1:], is_unread=True),
    Mutation("no epochs", ".leader_epoch_checkpoint", lambda _: b"", is_unread=True),
    Mutation("a bit of the offset index", ".index", flipped(4)),
    Mutation("a bit of the time index", ".timeindex", flipped(3)),
    Mutation("a bit of its last offset", ".timeindex", lambda data: flipped(len(data) - 2)(data)),
    Mutation("a bit of the last position", ".index", lambda data: flipped(len(data) - 4)(data)),
]
AIVEN_MUTATIONS = [
    Mutation("a bit of the indexes", ".indexes", flipped(4)),
    Mutation("a bit of the log", ".log", flipped(300), is_unread=True),
]
Other = Callable[[Any], Any]
"""Returns another value for a member of a manifest; `...` if the member is removed."""


def edited(path: tuple[str, ...], other: Other) -> Change:
    """Return the change of one member of a manifest; a manifest without the member stays."""

    def change(data: bytes) -> bytes:
        document = json.loads(data)
        *folders, name = path
        within = document
        for folder in folders:
            within = within[folder]
        if name not in within:
            return data
        value = other(within.pop(name))
        if value is not ...:
            within[name] = value
        return json.dumps(document).encode()

    return change


def leaves(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in document.items():
        yield (*path, name), value
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))


def _others(value: Any) -> dict[str, Other]:
    """Return what changes a member of a manifest, by name."""
    removed: dict[str, Other] = {"removed": lambda _: ...}
    match value:
        case bool():
            return {"inverted": lambda value: not value, "= 'yes'": lambda _: "yes"} | removed
        case int():
            added = {f"{n:+}": lambda value, n=n: value + n for n in (1, -1, 1 << 40)}
            return added | {"= -7": lambda _: -7, "= '7'": lambda _: "7"} | removed
        case str():
            return {f"= {other!r}": lambda _, other=other: other for other in ("9", "lz77", 7)} | removed
        case dict():
            return {f"= {other}": lambda _, other=other: other for other in ({}, None)} | removed
        case _:
            return {"= an object": lambda _: {"type": "unknown"}} | removed


_ENDS = ("endOffset", "maxTimestampMs")
MUTATION_SHARE = 1 if TRIES_ALL else 8
"""Each command meets one of so many mutations; each mutation meets one of the eight commands."""


def mutations(tier: Tier, turn: int) -> list[Mutation]:
    """Return the mutations of the objects of a tier's sets, as the command of number `turn` meets them.

    Of manifests, every member is changed: those that state ends in every way, the others in one, which
    differs between commands.
    """
    if tier.layout.capture == "tiered-cluster":
        return KAFKA_MUTATIONS
    found = []
    members = leaves(json.loads(tier.path(tier.sets[0], ".rsm-manifest").read_bytes()))
    for number, (path, value) in enumerate(members):
        ways = list(_others(value).items())
        count = len(ways) if path[-1] in _ENDS else 1
        for way in range(number + turn, number + turn + count):
            name, other = ways[way % len(ways)]
            found.append(Mutation(f"{'.'.join(path)} {name}", ".rsm-manifest", edited(path, other)))
    return [*found, *AIVEN_MUTATIONS]


COMMANDS = list(commands(Tier(Path(), Path(), AIVEN)))
