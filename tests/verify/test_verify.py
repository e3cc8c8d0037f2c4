"""`tierctl verify` finds exactly the damage of each case, and nothing in undamaged tiers."""

import errno
import os
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from Crypto.PublicKey import RSA
from tierctl.checks.objects import StoreAudit, earliest, flag_writers
from tierctl.model import ObjectPart
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.stores.base import RemoteObject

from tests.cli.shell import Ran, tierctl
from tests.support.faults import flip_bit
from tests.verify.cases import (
    CASES,
    CLICKS,
    LEDGER,
    OF_OBJECTS,
    OF_TIERS,
    Case,
    E,
    I,
    S,
    W,
    first,
    junk,
    orphan_of_a_segment,
    update,
    without,
)
from tests.verify.tiers import NOW_MS, Spoilt, made_tier


def verify(metadata: Path, remote: Path | None, *more: object) -> Ran:
    where = ("--metadata", metadata, *(() if remote is None else ("--remote", remote)))
    return tierctl("verify", *where, "-o", "jsonl", *more)


def kinds(said: Ran) -> list[tuple[str, str]]:
    """Return severity and kind of each finding."""
    return [(finding["severity"], finding["check"]) for finding in said.rows]


@pytest.fixture
def tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the paths, at first none, that this user may not open."""
    paths, opened = set[str](), os.open

    def open_file(path: Any, *args: Any, **more: Any) -> int:
        if str(path) in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **more)

    monkeypatch.setattr(os, "open", open_file)
    return paths


@pytest.mark.parametrize(
    "place",
    [
        "tiered-cluster before before-remote before",
        "tiered-cluster after after-remote after",
        "untiered-broker tiered-metadata tiered-remote local",
        "tiered-cluster before before-remote",
    ],
)
def test_a_sound_tier(place: str, capture: Callable[[str], Path]) -> None:
    """tests/cli/test_messages.py has a run without --deep, which makes the other checks, too."""
    name, *parts = place.split()
    folders = [capture(name) / part for part in parts[:2]]
    more = tuple(each for part in parts[2:] for each in ("--log-dir", capture(name) / part))
    said = verify(*folders, "--deep", *more)
    assert (said.code, said.rows, said.err) == (0, [], "")


@pytest.mark.parametrize("stage", ["before", "after"])
def test_an_unclean_election(stage: str, capture: Callable[[str], Path]) -> None:
    root = capture("unclean-leader") / stage
    logs = ("--log-dir", root / "broker-1", "--log-dir", root / "broker-2")
    said = verify(root / "broker-1", root / "remote", "--deep", *logs)
    serious = [f for f in said.rows if f["severity"] != "info"]
    doubled = {f["segment_id"] for f in serious if f["check"] == "doubled_segment"}
    assert said.code == 3
    assert doubled == {"vYb3dxNaR5eobyDFHg903A", "YKjh5jBvR9ebdjZhpxTgaA"}
    divergent = [f["start_offset"] for f in serious if f["check"] == "divergent_segment"]
    assert divergent == ([576, 720, 864, 1012] * 2 if stage == "before" else [])
    assert len(serious) == len(doubled) + len(divergent)
    # Two leaders deleted the same segment; brokers dropped the second pair of events.
    repeated = [f["found"].split()[0] for f in said.rows if f["check"] == "dropped_event"]
    expected = ["DELETE_SEGMENT_STARTED"] * 2 + ["DELETE_SEGMENT_FINISHED"] * 2
    assert repeated == (expected if stage == "after" else [])


def _expected_code(found: list[tuple[str, str]]) -> int:
    if any(kind.startswith(("corrupt", "damaged", "not_understood", "unreadable")) for _, kind in found):
        return 7
    return 3 if any(severity != I for severity, _ in found) else 0


def run_over(tier: Spoilt, *, deep: bool) -> Ran:
    where = (tier.metadata, tier.remote, "--log-dir", tier.metadata, "--now", NOW_MS)
    return verify(*where, *(("--deep", "--threads", 1) if deep else ()))


def require_found(case: Case, found: list[dict[str, Any]], *, deep: bool) -> None:
    expected = case.deeply if deep else case.found
    assert sorted((each["severity"], each["check"]) for each in found) == sorted(expected), found
    assert not expected or any(case.says in each["found"] for each in found)
    assert all(each["fix"] for each in found)


def test_damaged_objects_of_many_segments(tier: Spoilt) -> None:
    """Each case damages another segment, and its findings are about that segment."""
    topics = (CLICKS, "metrics", "orders", LEDGER)
    segments = [s for topic in topics for number in range(3) for s in tier.segments(topic, number)[1:]]
    damaged = list(zip(OF_OBJECTS.values(), segments, strict=True))
    for case, segment in damaged:
        case.spoil(replace(tier, chosen=segment))
    for deep in (True, False):
        said = run_over(tier, deep=deep)
        assert said.code == 7, said.err
        assert len(said.rows) == sum(len(case.deeply if deep else case.found) for case, _ in damaged)
        for case, segment in damaged:
            offsets = range(segment.start_offset, segment.end_offset + 1)
            own = [
                each
                for each in said.rows
                if (each["topic"], each["partition"]) == (segment.topic, segment.partition)
                and each["start_offset"] in offsets
            ]
            require_found(case, own, deep=deep)


WAYS = [
    pytest.param(
        case,
        deep,
        id=f"{name}, deep" if deep else name,
        marks=[pytest.mark.matrix] if deep and not case.deep else [],
    )
    for name, case in OF_TIERS.items()
    for deep in (False, True)
]
"""Each case without and with --deep, which adds checks; `make test` runs both if they differ."""


@pytest.mark.parametrize(("case", "deep"), WAYS)
def test_spoilt(case: Case, deep: bool, tier: Spoilt) -> None:
    case.spoil(tier)
    said = run_over(tier, deep=deep)
    require_found(case, said.rows, deep=deep)
    assert said.code == _expected_code(case.deeply if deep else case.found), said.err


@pytest.mark.parametrize(
    ("removal", "command"),
    [
        (None, "sweep"),
        ("partition marked", "tierctl delete"),
        ("partition begun", "tierctl delete"),
        ("partition not empty", "tierctl delete"),
        ("topic gone", "tierctl delete --find --mark"),
        ("topic recreated", "tierctl delete --find --mark"),
    ],
)
def test_the_advice_names_the_command_that_works(removal: str | None, command: str, tier: Spoilt) -> None:
    """sweep refuses the partitions of deleted topics; delete also resumes the deletes of their segments."""
    CASES["deletion stuck"].spoil(tier)
    if removal is not None:
        CASES[removal].spoil(tier)
    said = verify(tier.metadata, tier.remote, "--log-dir", tier.metadata, "--now", NOW_MS)
    (stuck,) = (finding for finding in said.rows if finding["check"] == "stuck_delete")
    assert command in stuck["fix"]
    assert ("sweep" in stuck["fix"] + stuck["found"]) is (removal is None)


def test_every_finding_beside_bad_objects(tier: Spoilt, forbidden: set[str]) -> None:
    """A folder that can't be listed and an object that can't be opened do not stop other checks."""
    folder, file = tier.object(first(LEDGER)(tier), "").parent, tier.object(first("orders")(tier), ".log")
    forbidden |= {str(folder), str(file)}
    cases = ("log is a pipe", "odd names", "foreign object", "copy dangling", "log directory damaged")
    for name in cases:
        CASES[name].spoil(tier)
    found = ("--log-dir", tier.metadata, "--now", NOW_MS)
    expected = [*(each for name in cases for each in CASES[name].found), (E, "unreadable_object")]
    said = verify(tier.metadata, tier.remote, *found)
    assert sorted(kinds(said)) == sorted(expected), said.rows
    assert said.code == 7
    deep = verify(tier.metadata, tier.remote, *found, "--deep", "--threads", 1)
    assert sorted(kinds(deep)) == sorted([*expected, (E, "unreadable_object")]), deep.rows
    (denied,) = (f for f in deep.rows if f["topic"] == "orders")
    assert (denied["start_offset"], "Permission denied" in denied["found"]) == (
        first("orders")(tier).start_offset,
        True,
    )
    # A store of which this user may read nothing is an error, not a finding about its objects.
    forbidden.add(str(tier.remote / "kafka-tiered-storage"))
    assert verify(tier.metadata, tier.remote, *found).code == 11


def test_an_index_that_may_not_be_read_is_not_missing(tier: Spoilt, forbidden: set[str]) -> None:
    """Each kind of index is one of another segment."""
    found: dict[str, Path] = {}
    for suffix in (".txnindex", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
        files = (each for each in sorted(tier.remote.rglob(f"{LEDGER}-*/*{suffix}")) if each.stat().st_size)
        file = next(each for each in files if each.stem not in found)
        found[file.stem] = file
    forbidden |= set(map(str, found.values()))
    said = verify(tier.metadata, tier.remote, "--now", NOW_MS, "--deep", "--threads", 1)
    assert kinds(said) == [(E, "unreadable_object")] * 5, said.rows


def test_after_a_sweep(tier: Spoilt, tmp_path: Path) -> None:
    """The raised log start is in the state directory; without it, DELETE_SEGMENT_FINISHED is the evidence."""
    configs = tmp_path / "topics.properties"
    configs.write_text("clicks.retention.bytes=2097152\n")
    logs, kept = ("--log-dir", tier.metadata), tmp_path / "state"
    where = ("--metadata", tier.metadata, "--remote", tier.remote, *logs)
    end = first()(tier).start_offset
    settings = ("--topic-configs", configs, "--state-dir", kept, "--max-fraction", "1")
    tierctl("sweep", *where, *settings, "--apply").ok()
    starts = {p: tier.segments(CLICKS, p)[0].start_offset for p in (0, 1)}
    assert starts[0] >= end

    said = verify(tier.metadata, tier.remote, *logs, "--state-dir", kept)
    assert (said.code, kinds(said)) == (0, [])

    for said in (
        verify(tier.metadata, tier.remote, *logs),
        tierctl("segments", "--check", *where, "--topic", CLICKS, "-o", "jsonl"),
    ):
        assert (said.code, {kind for _, kind in kinds(said)}) == (0, {"log_start_behind"})
        assert {f["partition"]: f["end_offset"] + 1 for f in said.rows} == starts
    # A segment that disappeared without a delete event is lost, even next to deleted ones.
    lost = tier.segments(CLICKS)[0]
    tier.append(update(lost, S.DELETE_SEGMENT_STARTED))
    for more in ((), ("--state-dir", kept)):
        said = verify(tier.metadata, tier.remote, *logs, *more, "--topic", CLICKS, "--partition", 0)
        gaps = [(f["start_offset"], f["end_offset"]) for f in said.rows if f["check"] == "gap"]
        assert (said.code, gaps) == (3, [(lost.start_offset, lost.end_offset)])


def test_local_copies_are_compared(tier: Spoilt, writable: Callable[[str], Path]) -> None:
    """A broker that keeps local segments has the same bytes; no CRC covers partition leader epochs."""
    metadata, remote = writable("untiered-broker/tiered-metadata"), writable("untiered-broker/tiered-remote")
    logs = writable("untiered-broker/local")
    assert kinds(verify(metadata, remote, "--deep", "--log-dir", logs)) == []
    log = logs / "bills-0" / f"{600:020d}.log"
    flip_bit(log, -1)
    said = verify(metadata, remote, "--deep", "--log-dir", logs)
    assert (said.code, kinds(said)) == (3, [(E, "differs_from_log")])
    assert str(log) in said.rows[0]["found"]


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        (("--topic", "clicks"), [(W, "orphan"), (E, "missing_object")]),
        (("--topic", "clicks", "--partition", "1"), []),
        (("--topic", "orders"), []),
    ],
)
def test_only_what_is_asked_for(
    narrow: tuple[str, ...], expected: list[tuple[str, str]], tier: Spoilt
) -> None:
    orphan_of_a_segment(tier)
    without(".log")(tier)
    junk(tier)
    assert kinds(verify(tier.metadata, tier.remote, "--now", NOW_MS, *narrow)) == expected


@pytest.mark.parametrize(
    ("of_topic", "narrow", "is_reported"),
    [(CLICKS, (CLICKS,), True), (CLICKS, ("orders",), False), (None, ("orders",), True), (None, (), True)],
)
def test_a_folder_that_cannot_be_listed_concerns_whom_it_may_belong_to(
    of_topic: str | None, narrow: tuple[str, ...], is_reported: bool, tier: Spoilt
) -> None:
    root = tier.remote / "kafka-tiered-storage"
    folder = root / "who-made-this" if of_topic is None else tier.object(first(of_topic)(tier), "").parent
    if of_topic is not None:
        folder.rename(tier.remote / "moved")
    folder.symlink_to(tier.remote / "moved")
    said = verify(tier.metadata, tier.remote, "--now", NOW_MS, *(f"--topic={name}" for name in narrow))
    assert ((E, "unreadable_object") in kinds(said)) is is_reported, said.rows


def test_young_objects_of_no_live_segment_are_reported(tier: Spoilt) -> None:
    """A temporary object has the name of a segment, and a stray file that of none: neither is live."""
    live = first()(tier)
    tier.object(live, ".log.tmp").write_bytes(bytes(8) + b"half")
    junk(tier)
    said = verify(tier.metadata, tier.remote)
    assert sorted(kind for _, kind in kinds(said)) == ["orphan", "temp_leftover"]


def test_without_a_store_metadata_and_logs_are_held_against_each_other(tier: Spoilt) -> None:
    said = verify(tier.metadata, None, "--log-dir", tier.metadata)
    assert (said.code, said.rows) == (0, [])
    assert "without --remote no object is examined" in said.err
    without(".log")(tier)
    assert verify(tier.metadata, None).code == 0
    assert verify(tier.metadata, tier.remote).code == 3


@pytest.mark.matrix
def test_a_million_objects_take_bytes_each() -> None:
    """Twenty thousand segments with five objects each; the listing is generated while it is read."""
    state, listing = made_tier(20_000)

    class Listed:
        def list_objects(self) -> Iterator[RemoteObject]:
            yield from listing()

    tracemalloc.start()
    audit = StoreAudit(state, KafkaLayout())
    assert not list(audit.unaccounted(Listed().list_objects()))
    suspects = list(audit.suspects(earliest(flag_writers(state))))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [suspect.missing for suspect in suspects] == [ObjectPart.OFFSET]
    # 58 stay; the rest is in use while the segments of one user partition are compared.
    assert peak < 20_000 * 110


@pytest.mark.parametrize(
    ("keys", "found"),
    [((), {"not_understood"}), (("other.pem",), {"not_understood"}), (("keys/private.pem",), set())],
)
def test_a_segment_without_its_key_is_not_corrupt(
    keys: tuple[str, ...], found: set[str], capture: Callable[[str], Path], tmp_path: Path
) -> None:
    root = capture("aiven-encrypted")
    (tmp_path / "other.pem").write_bytes(RSA.generate(1024).export_key())
    files = (tmp_path / "other.pem" if "other" in each else root / each for each in keys)
    given = [word for file in files for word in ("--aiven-private-key", file)]
    ran = tierctl(
        *("verify", "--deep", "--metadata", root / "broker-logs", "--remote", root / "bucket"),
        *(*given, "-o", "jsonl"),
    )
    assert ran.code == (7 if found else 0), ran.err
    assert {each["check"] for each in ran.rows} == found
    assert all("the private key 'key1'" in each["found"] for each in ran.rows)
    assert all("--aiven-private-key key1=FILE" in each["found"] for each in ran.rows)


@pytest.mark.parametrize("options", [("--all-log-dirs",), ("--orphan-age", "30d")])
def test_what_decides_only_a_plan_needs_a_plan(options: tuple[str, ...], tmp_path: Path) -> None:
    """Without --plan-out these options would leave the findings as they are."""
    ran = tierctl("verify", "--metadata", tmp_path, "--remote", tmp_path, "--log-dir", tmp_path, *options)
    assert (ran.code, f"{options[0]} needs --plan-out" in ran.err) == (2, True), ran
