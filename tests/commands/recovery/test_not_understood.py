"""Objects that are not understood: no plan gives them up, and no log start follows from their absence."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tierctl.errors import AuthenticationError, RemoteStorageError, TierctlError
from tierctl.storage.stores.local import LocalStore
from tierctl.wire.crc import crc32c

from tests.cli.shell import Ran, tierctl

Capture = Callable[..., Path]
Change = Callable[[bytes], bytes]
PROOF = "bytes"
"""Word in the reason of a set that is given up: its objects are shorter than they state."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One partition of a captured tier, in a copy that a test may change, with its broker's logs."""

    remote: Path
    logs: Path
    partition: tuple[str, str]

    @property
    def sets(self) -> list[str]:
        """The stems of the names of its objects, by start offset."""
        return sorted({path.name.partition(".")[0] for path in self.remote.rglob("0*")})

    def change(self, stem: str, suffix: str, change: Change) -> None:
        (path,) = self.remote.rglob(f"{stem}{suffix}")
        data = change(path.read_bytes())
        # The file is a link to the capture's.
        path.unlink()
        path.write_bytes(data)


CAPTURES = {
    "kafka": ("tiered-cluster", "before-remote", "before", ("payments", "0")),
    "aiven": ("aiven-plain", "bucket", "broker-logs", ("sensors", "1")),
}


def tier_of(capture: Capture, target: Path, layout: str) -> Tier:
    name, remote, logs, partition = CAPTURES[layout]
    topic, number = partition
    folder = f"{topic}-{number}-*" if layout == "kafka" else f"{topic}-*/{number}"
    for path in (capture(name) / remote).rglob(folder):
        copy = target / path.relative_to(capture(name) / remote)
        shutil.copytree(path, copy, copy_function=os.link)
    return Tier(target, capture(name) / logs, partition)


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


KAFKA_CHANGES: dict[str, tuple[str, Change]] = {
    **{f"magic {n} of batch {nth}": (".log", patched(16, n, nth=nth)) for n in (3, 4, 127) for nth in (0, 3)},
    **{f"codec {n}": (".log", patched(22, n, mends_crc=True)) for n in (5, 6, 7)},
    "a bit": (".log", lambda data: patched(200, data[200] ^ 4)(data)),
    "snapshot version": (".snapshot", lambda data: b"\0\7" + data[2:]),
    "epochs version": (".leader_epoch_checkpoint", lambda data: b"7" + data[1:]),
    "an empty epoch file": (".leader_epoch_checkpoint", lambda _: b""),
}


def leaves(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in document.items():
        yield (*path, name), value
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))


def edited(path: tuple[str, ...], value: Any) -> Change:
    """Return the change of one member of a manifest; `...` removes it."""

    def change(data: bytes) -> bytes:
        document = json.loads(data)
        *folders, name = path
        within = document
        for folder in folders:
            within = within[folder]
        if value is ...:
            del within[name]
        else:
            within[name] = value
        return json.dumps(document).encode()

    return change


def others(value: Any) -> list[Any]:
    """Return other values for a member of a manifest."""
    match value:
        case bool():
            return [not value, "yes", ...]
        case int():
            return [value + 1, max(value - 1, 0), -7, 1 << 40, "7", ...]
        case str():
            return ["9", "lz77", 7, ...]
        case dict():
            return [{}, None, ...]
        case _:
            return [{"type": "unknown"}, ...]


def plans_of(tier: Tier) -> dict[str, Ran]:
    """Return the plans that commands decide from the objects, by command."""
    folder = tier.remote.parent
    topic, number = tier.partition
    where = ("--remote", tier.remote, "--topic", topic, "--partition", number, "--output", "json")
    rebuild = ("rebuild", "--metadata", folder / "new", *where)
    log_dir = folder / "broker"
    log_dir.mkdir(exist_ok=True)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    into = ("--log-dir", log_dir, "--as-id", "2QZ5FAXaQrqgUzsReWnweA")
    return {
        "rebuild": tierctl(*rebuild, "--attempts", "1"),
        "rebuild with logs": tierctl(*rebuild, "--log-dir", tier.logs, "--attempts", "1"),
        "restore": tierctl("restore", "--materialise", *where, *into, "--attempts", "1"),
    }


GIVING_UP = {"discard_segment", "delete_segment", "delete_partition", "write_checkpoints"}


def assert_nothing_given_up(
    ran: Ran, wanted: Ran, victim: str, *, exit_codes: tuple[int, ...] = (7,)
) -> None:
    """Assert that `ran` has the plan `wanted`, or that it leaves the partition as it is and says why."""
    said = ran.out + ran.err
    steps, whole = ran.json["steps"], wanted.json["steps"]
    assert {step["action"] for step in steps} & GIVING_UP == set(), said
    spans = [(step["start_offset"], step["end_offset"]) for step in steps]
    if [start for start, _ in spans] == [step["start_offset"] for step in whole]:
        return
    if not steps and "would refuse" in said and "not understood" not in said:
        return
    # A restore has no list of the sets; its reason for a partition names the set.
    reasons = [skip["reason"] for skip in ran.json["skipped"] if skip["segment_id"] in {victim, None}]
    if any(PROOF in reason and "not understood" not in reason for reason in reasons):
        return
    assert victim in said, said
    assert "not understood" in said
    assert ran.code == 7, said
    if spans:
        assert spans[0][0] == whole[0]["start_offset"], said
        assert all(a[1] + 1 == b[0] for a, b in pairwise(spans)), said


@pytest.fixture(scope="module")
def wanted(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, Ran]]:
    made: dict[str, Mapping[str, Ran]] = {}

    def plans(layout: str) -> Mapping[str, Ran]:
        if layout not in made:
            folder = tmp_path_factory.mktemp(layout)
            made[layout] = plans_of(tier_of(capture, folder / "remote", layout))
            for ran in made[layout].values():
                assert (ran.code, bool(ran.json["steps"])) == (0, True), ran.err
        return made[layout]

    return plans


@pytest.fixture
def tier(capture: Capture, tmp_path: Path) -> Callable[[str], Tier]:
    """Make the tier of a layout, which the test may change."""
    return lambda layout: tier_of(capture, tmp_path / "remote", layout)


PLACES = {"first": 0, "middle": 2, "last": -1}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", KAFKA_CHANGES)
def test_objects_of_layout_kafka(
    wanted: Callable[[str], Mapping[str, Ran]], tier: Callable[[str], Tier], name: str, place: str
) -> None:
    changed = tier("kafka")
    stem = changed.sets[PLACES[place]]
    changed.change(stem, *KAFKA_CHANGES[name])
    for command, ran in plans_of(changed).items():
        assert_nothing_given_up(ran, wanted("kafka")[command], stem[21:])
        assert "not understood" in ran.out + ran.err


@pytest.mark.parametrize("place", PLACES)
def test_every_member_of_a_manifest(
    wanted: Callable[[str], Mapping[str, Ran]], tier: Callable[[str], Tier], place: str
) -> None:
    changed = tier("aiven")
    stem = changed.sets[PLACES[place]]
    (manifest,) = changed.remote.rglob(f"{stem}.rsm-manifest")
    sound = manifest.read_bytes()
    for path, value in leaves(json.loads(sound)):
        for other in others(value):
            changed.change(stem, ".rsm-manifest", lambda _, p=path, o=other: edited(p, o)(sound))
            for command, ran in plans_of(changed).items():
                try:
                    assert_nothing_given_up(ran, wanted("aiven")[command], stem[21:])
                except AssertionError as e:
                    raise AssertionError(f"{command}: {'.'.join(path)} = {other}: {e}") from e


class Refusing:
    """Let the local store refuse to read the objects that contain one of `names`, as S3 does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Callable[[str], TierctlError]) -> None:
        self.names: tuple[str, ...] = ()
        opened = LocalStore.open

        def refuse(store: LocalStore, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
            if any(name in key for name in self.names):
                raise error(f"reading {key}")
            return opened(store, key, start, end)

        monkeypatch.setattr(LocalStore, "open", refuse)


REFUSALS: dict[str, Callable[[str], TierctlError]] = {
    "permission": lambda doing: AuthenticationError(f"{doing}: AccessDenied", hint="check the rights"),
    "storage class": lambda doing: RemoteStorageError(f"{doing}: InvalidObjectState: it is archived"),
}
SUFFIXES = {
    "kafka": (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"),
    "aiven": (".log", ".indexes", ".rsm-manifest"),
}


@pytest.mark.parametrize(
    ("layout", "suffix"),
    [(layout, each) for layout in SUFFIXES for each in SUFFIXES[layout] if each != ".log"],
)
def test_an_object_that_is_missing_beside_a_log(
    wanted: Callable[[str], Mapping[str, Ran]], tier: Callable[[str], Tier], layout: str, suffix: str
) -> None:
    """The log may have the only copy of its records, whatever is missing beside it."""
    changed = tier(layout)
    for stem in (changed.sets[place] for place in PLACES.values()):
        (path,) = changed.remote.rglob(f"{stem}{suffix}")
        data = path.read_bytes()
        path.unlink()
        for command, ran in plans_of(changed).items():
            assert_nothing_given_up(ran, wanted(layout)[command], stem[21:])
        path.write_bytes(data)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("layout", SUFFIXES)
def test_an_object_that_the_store_refuses(
    wanted: Callable[[str], Mapping[str, Ran]],
    tier: Callable[[str], Tier],
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    refusal: str,
) -> None:
    plans, changed = wanted(layout), tier(layout)
    refusing = Refusing(monkeypatch, REFUSALS[refusal])
    for suffix, place in product(SUFFIXES[layout], PLACES.values()):
        stem = changed.sets[place]
        refusing.names = (f"{stem}{suffix}",)
        for command, ran in plans_of(changed).items():
            assert_nothing_given_up(ran, plans[command], stem[21:])


@pytest.mark.parametrize("layout", SUFFIXES)
def test_a_tier_of_which_nothing_may_be_read(
    tier: Callable[[str], Tier], monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    changed = tier(layout)
    Refusing(monkeypatch, REFUSALS["permission"]).names = (".",)
    for command, ran in plans_of(changed).items():
        assert (ran.code, "AccessDenied" in ran.err) == (11, True), f"{command}: {ran.err}"
