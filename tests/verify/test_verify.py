"""`tierctl verify`: nothing where nothing is wrong, and of every way to spoil a tier exactly what it is."""

import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.cli.main import run
from tierctl.metadata import open_metadata
from tierctl.model import (
    ObjectPart,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Selection,
    TopicPartition,
    Uuid,
)
from tierctl.plan.verify import HINTS
from tierctl.plan.verify_store import StoreAudit
from tierctl.read.verify import Verification
from tierctl.state.invariants import FindingKind
from tierctl.storage import open_remote
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.object_names import segment_object_name
from tierctl.wire.checkpoints import read_offset_checkpoint, write_offset_checkpoint

from tests.verify.tiers import NOW_MS, Spoilt, Verify, made_tier, verifier

S = RemoteLogSegmentState
P = RemotePartitionDeleteState
OTHER = Uuid("AAAAAAAAAAAAAAAAAAAAAQ")
CLICKS, LEDGER = "clicks", "payments"


@pytest.fixture
def verify(capfd: pytest.CaptureFixture[str]) -> Verify:
    return verifier(capfd)


@pytest.fixture
def tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["shallow", "deep"])
@pytest.mark.parametrize(
    "place",
    [
        "tiered-cluster before before-remote before",
        "tiered-cluster after after-remote after",
        "untiered-broker tiered-metadata tiered-remote local",
        "tiered-cluster before before-remote",
    ],
)
def test_a_sound_tier(
    place: str, deep: tuple[str, ...], capture: Callable[[str], Path], verify: Verify
) -> None:
    name, *parts = place.split()
    folders = [capture(name) / part for part in parts[:2]]
    more = tuple(each for part in parts[2:] for each in ("--log-dir", capture(name) / part))
    said = verify(*folders, *deep, *more)
    assert (said.code, said.findings, said.err) == (0, [], "")


@pytest.mark.parametrize("stage", ["before", "after"])
def test_an_unclean_election(stage: str, capture: Callable[[str], Path], verify: Verify) -> None:
    root = capture("unclean-leader") / stage
    logs = ("--log-dir", root / "broker-1", "--log-dir", root / "broker-2")
    said = verify(root / "broker-1", root / "remote", "--deep", *logs)
    serious = [f for f in said.findings if f["severity"] != "info"]
    doubled = {f["segment_id"] for f in serious if f["kind"] == "doubled_segment"}
    assert said.code == 3
    assert doubled == {"vYb3dxNaR5eobyDFHg903A", "YKjh5jBvR9ebdjZhpxTgaA"}
    divergent = [f["start_offset"] for f in serious if f["kind"] == "divergent_segment"]
    assert divergent == ([576, 720, 864, 1012] * 2 if stage == "before" else [])
    assert len(serious) == len(doubled) + len(divergent)
    # Two leaders deleted the same segment; brokers dropped the second pair of events.
    repeated = [f["message"].split()[0] for f in said.findings if f["kind"] == "dropped_event"]
    expected = ["DELETE_SEGMENT_STARTED"] * 2 + ["DELETE_SEGMENT_FINISHED"] * 2
    assert repeated == (expected if stage == "after" else [])


Spoil = Callable[[Spoilt], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to spoil a tier, and what is found then: (severity, kind) without and with --deep."""

    spoil: Spoil
    found: list[tuple[str, str]]
    deep: list[tuple[str, str]] | None = None
    says: str = ""

    @property
    def deeply(self) -> list[tuple[str, str]]:
        return self.found if self.deep is None else self.deep


def _first(topic: str = CLICKS, nth: int = 1) -> Callable[[Spoilt], RemoteLogSegmentMetadata]:
    return lambda tier: tier.segments(topic)[nth]


def _without(suffix: str, topic: str = CLICKS) -> Spoil:
    return lambda tier: tier.object(_first(topic)(tier), suffix).unlink()


def _all_objects_gone(tier: Spoilt) -> None:
    segment = _first()(tier)
    for path in tier.object(segment, "").parent.glob(f"*{segment.segment_id}*"):
        path.unlink()


def _transactions_gone(tier: Spoilt) -> None:
    # Not the first: brokers that never yet said that an index is empty may be too old to say it.
    found = [s for s in tier.segments(LEDGER) if tier.object(s, ".txnindex").exists()]
    tier.object(found[-1], ".txnindex").unlink()


def _changed(suffix: str, change: Callable[[bytes], bytes], topic: str = CLICKS) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        path = tier.object(_first(topic)(tier), suffix)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _flipped(suffix: str, at: int, topic: str = CLICKS) -> Spoil:
    def flip(data: bytes) -> bytes:
        position = at if at >= 0 else len(data) + at
        return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]

    return _changed(suffix, flip, topic)


def _swapped(suffix: str) -> Spoil:
    """Two segments' objects under each other's keys."""

    def spoil(tier: Spoilt) -> None:
        one, other = (tier.object(s, suffix) for s in tier.segments(CLICKS)[1:3])
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)

    return spoil


def _orphan_of_a_segment(tier: Spoilt) -> None:
    segment = _first()(tier)
    for suffix in (".log", ".index", ".timeindex"):
        source = tier.object(segment, suffix)
        shutil.copy(source, tier.object(replace(segment, segment_id=OTHER), suffix))


def _junk(tier: Spoilt) -> None:
    (tier.remote / "kafka-tiered-storage" / "README").write_text("who wrote this?")


def _temporary(tier: Spoilt) -> None:
    segment = _first()(tier)
    tier.object(replace(segment, segment_id=OTHER), ".log.tmp").write_bytes(b"half")


def _misplaced(tier: Spoilt) -> None:
    """An object under its own id, but at an offset that the metadata don't have."""
    segment = _first()(tier)
    tier.object(segment, ".snapshot").rename(
        tier.object(replace(segment, start_offset=segment.start_offset + 1), ".snapshot")
    )


def _update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, at_ms: int = 0, **other: Any
) -> RemoteLogSegmentMetadataUpdate:
    facts: dict[str, Any] = {
        "topic": segment.topic,
        "topic_id": segment.topic_id,
        "partition": segment.partition,
        "segment_id": segment.segment_id,
        "broker_id": 1,
        "event_timestamp_ms": at_ms,
        "state": state,
    }
    return RemoteLogSegmentMetadataUpdate(**(facts | other))


def _published(*states: RemoteLogSegmentState, at_ms: int = 0, nth: int = 1) -> Spoil:
    """Events about a segment; the log starts after the first one when it is that."""

    def spoil(tier: Spoilt) -> None:
        segment = _first(nth=nth)(tier)
        if nth == 0:
            path = tier.metadata / "log-start-offset-checkpoint"
            starts = read_offset_checkpoint(path.read_bytes())
            starts[TopicPartition("clicks", 0)] = segment.end_offset + 1
            path.write_bytes(write_offset_checkpoint(starts))
        tier.append(*(_update(segment, state, at_ms) for state in states))

    return spoil


def _unknown_update(tier: Spoilt) -> None:
    tier.append(_update(_first()(tier), S.COPY_SEGMENT_FINISHED, segment_id=OTHER))


def _begun(at_ms: int) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        segment = _first()(tier)
        begun = replace(
            segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=at_ms, broker_id=1
        )
        tier.append(begun)

    return spoil


def _copied_again(change: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata]) -> Spoil:
    """A second copy of a segment, objects and all."""

    def spoil(tier: Spoilt) -> None:
        segment = _first()(tier)
        again = change(replace(segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED))
        for suffix in (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
            shutil.copy(tier.object(segment, suffix), tier.object(again, suffix))
        tier.append(again, _update(again, S.COPY_SEGMENT_FINISHED))

    return spoil


def _marked(state: RemotePartitionDeleteState) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        segment = _first()(tier)
        states = list(P)[: list(P).index(state) + 1]
        tier.append(
            *(
                RemotePartitionDeleteMetadata(
                    topic=segment.topic,
                    topic_id=segment.topic_id,
                    partition=0,
                    broker_id=1,
                    event_timestamp_ms=0,
                    state=each,
                )
                for each in states
            )
        )

    return spoil


def _epochs_changed(tier: Spoilt) -> None:
    segment = _first()(tier)
    path = tier.object(segment, ".leader_epoch_checkpoint")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], f"{int(lines[2].split()[0]) + 7} 0", *lines[3:]][:3]) + "\n")
    count = len(path.read_text().splitlines()) - 2
    path.write_text(path.read_text().replace(f"0\n{lines[1]}\n", f"0\n{count}\n", 1))


def _log_of_another_topic(tier: Spoilt) -> None:
    """The log directory knows the topic under another id."""
    for folder in tier.metadata.glob("clicks-*"):
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER}")


def _log_gone(tier: Spoilt) -> None:
    for folder in tier.metadata.glob("clicks-*"):
        shutil.rmtree(folder)


def _log_unreadable(tier: Spoilt) -> None:
    (tier.metadata / "clicks-1" / "leader-epoch-checkpoint").write_text("what?")


def _high_watermark_too_low(tier: Spoilt) -> None:
    path = tier.metadata / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("clicks 0 5500", "clicks 0 4600"))


E, W, I = "error", "warning", "info"  # noqa: E741
MISSING = [(E, "missing_object")]
ORPHAN = [(W, "orphan")]
INDEX = [(E, "corrupt_index")]
CLEAN: list[tuple[str, str]] = []

CASES = {
    "log gone": Case(_without(".log"), MISSING, says="the store has not its log"),
    "offset index gone": Case(_without(".index"), MISSING, says="offset index"),
    "time index gone": Case(_without(".timeindex"), MISSING, says="time index"),
    "snapshot gone": Case(_without(".snapshot"), MISSING, says="producer snapshot"),
    "leader epochs gone": Case(_without(".leader_epoch_checkpoint"), MISSING, says="leader-epoch index"),
    "transactions gone": Case(_transactions_gone, MISSING, says="transaction index"),
    "everything gone": Case(_all_objects_gone, MISSING, says="none of its objects"),
    "log cut": Case(_changed(".log", lambda d: d[:-100]), [(E, "size_differs")], says="bytes"),
    "log longer": Case(_changed(".log", lambda d: d + b"x"), [(E, "size_differs")]),
    "log empty": Case(_changed(".log", lambda _: b""), [(E, "size_differs")]),
    "record flipped": Case(_flipped(".log", 5000), CLEAN, [(E, "corrupt_log")], says="CRC-32C"),
    "last record flipped": Case(_flipped(".log", -3), CLEAN, [(E, "corrupt_log")]),
    "batch epoch flipped": Case(_flipped(".log", 15), CLEAN, [(E, "epochs_differ")]),
    "offset index flipped": Case(_flipped(".index", 15), CLEAN, INDEX, says="offset index"),
    "offset index cut": Case(_changed(".index", lambda d: d[:-3]), CLEAN, INDEX),
    "time index flipped": Case(_flipped(".timeindex", 7), CLEAN, INDEX, says="timestamp index"),
    "snapshot flipped": Case(_flipped(".snapshot", -1, LEDGER), CLEAN, INDEX, says="producer-snapshot index"),
    "leader epochs changed": Case(_epochs_changed, CLEAN, [(E, "epochs_differ")]),
    "leader epochs no file": Case(
        _changed(".leader_epoch_checkpoint", lambda _: b"what?\n"), CLEAN, INDEX, says="leader-epoch index"
    ),
    "logs swapped": Case(_swapped(".log"), [(E, "size_differs")] * 2),
    "foreign segment": Case(_orphan_of_a_segment, ORPHAN, says="3 objects of"),
    "foreign object": Case(_junk, ORPHAN, says="not that of any segment"),
    "temporary file": Case(_temporary, [(W, "temp_leftover")], says="killed"),
    "object misplaced": Case(_misplaced, [(W, "orphan"), (E, "missing_object")]),
    "deleted, objects there": Case(
        _published(S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED, nth=0),
        ORPHAN,
        says="its segment is DELETE_SEGMENT_FINISHED",
    ),
    "deleted in the middle": Case(
        _published(S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED),
        [(W, "orphan"), (E, "gap")],
    ),
    "deletion stuck": Case(_published(S.DELETE_SEGMENT_STARTED, nth=0), [(W, "stuck_delete")]),
    "deletion under way": Case(
        _published(S.DELETE_SEGMENT_STARTED, at_ms=NOW_MS - 1000, nth=0), [(I, "stuck_delete")]
    ),
    "copy dangling": Case(_begun(0), [(W, "dangling_copy")]),
    "copy under way": Case(_begun(NOW_MS - 1000), [(I, "dangling_copy")]),
    "copied twice": Case(_copied_again(lambda s: s), [(W, "doubled_segment")]),
    "of another leader": Case(
        _copied_again(lambda s: replace(s, segment_leader_epochs=((99, s.start_offset),))),
        [(W, "divergent_segment")],
        [(W, "divergent_segment"), (E, "epochs_differ"), (E, "epochs_differ")],
    ),
    "update of nothing": Case(_unknown_update, [(W, "dropped_event")]),
    "backwards": Case(_published(S.DELETE_SEGMENT_FINISHED), [(W, "dropped_event")], says="was dropped"),
    "metadata unreadable": Case(lambda t: t.append_raw(0, b"\x63what"), [(E, "corrupt_metadata")]),
    "partition marked": Case(_marked(P.DELETE_PARTITION_MARKED), [(W, "unfinished_partition_delete")]),
    "partition begun": Case(_marked(P.DELETE_PARTITION_STARTED), [(W, "unfinished_partition_delete")]),
    "partition not empty": Case(_marked(P.DELETE_PARTITION_FINISHED), [(E, "unfinished_partition_delete")]),
    "topic recreated": Case(_log_of_another_topic, [(W, "recreated_topic")] * 2, says=OTHER),
    "log directory damaged": Case(_log_unreadable, [(E, "unreadable_log")]),
    "topic gone": Case(_log_gone, [(W, "unknown_topic")] * 2),
    "high watermark low": Case(_high_watermark_too_low, [(E, "offsets")] * 2, says="Ry"),
}
"""Every one with the broker's log directory."""


def _expected_code(found: list[tuple[str, str]]) -> int:
    if any(kind.startswith(("corrupt", "unreadable")) for _, kind in found):
        return 7
    return 3 if any(severity != I for severity, _ in found) else 0


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_spoilt(name: str, deep: bool, tier: Spoilt, verify: Verify) -> None:
    case = CASES[name]
    case.spoil(tier)
    more = ("--deep", "--threads", 1) if deep else ()
    said = verify(tier.metadata, tier.remote, "--log-dir", tier.metadata, "--now", NOW_MS, *more)
    expected = case.deeply if deep else case.found
    assert sorted(said.kinds) == sorted(expected), said.findings
    assert said.code == _expected_code(expected), said.err
    if expected:
        assert any(case.says in finding["message"] for finding in said.findings)
        assert all(finding["hint"] for finding in said.findings)


def test_local_copies_are_compared(tier: Spoilt, writable: Callable[[str], Path], verify: Verify) -> None:
    """A broker that keeps its copies has the same bytes; partition leader epochs are in no CRC."""
    metadata, remote = writable("untiered-broker/tiered-metadata"), writable("untiered-broker/tiered-remote")
    logs = writable("untiered-broker/local")
    assert verify(metadata, remote, "--deep", "--log-dir", logs).kinds == []
    log = logs / "bills-0" / f"{600:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    said = verify(metadata, remote, "--deep", "--log-dir", logs)
    assert (said.code, said.kinds) == (3, [(E, "differs_from_log")])
    assert str(log) in said.findings[0]["message"]


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        (("--topic", "clicks"), [(W, "orphan"), (E, "missing_object")]),
        (("--topic", "clicks", "--partition", "1"), []),
        (("--topic", "orders"), []),
    ],
)
def test_only_what_is_asked_for(
    narrow: tuple[str, ...], expected: list[tuple[str, str]], tier: Spoilt, verify: Verify
) -> None:
    _orphan_of_a_segment(tier)
    _without(".log")(tier)
    _junk(tier)
    assert verify(tier.metadata, tier.remote, "--now", NOW_MS, *narrow).kinds == expected


def test_without_a_store_metadata_and_logs_are_held_against_each_other(tier: Spoilt, verify: Verify) -> None:
    said = verify(tier.metadata, None, "--log-dir", tier.metadata)
    assert (said.code, said.findings) == (0, [])
    assert "without --remote no object is looked at" in said.err
    _without(".log")(tier)
    assert verify(tier.metadata, None).code == 0
    assert verify(tier.metadata, tier.remote).code == 3


def test_a_tier_that_is_not_there_is_no_clean_one(tier: Spoilt, verify: Verify) -> None:
    said = verify(tier.metadata, tier.remote / "elsewhere")
    assert (said.code, said.findings) == (5, [])
    assert "there is no tier at" in said.err


@pytest.mark.parametrize("fmt", ["table", "json", "jsonl", "csv"])
def test_every_format(fmt: str, tier: Spoilt, capsys: pytest.CaptureFixture[str]) -> None:
    _without(".log")(tier)
    code = run(["verify", "--metadata", str(tier.metadata), "--remote", str(tier.remote), "--output", fmt])
    out = capsys.readouterr().out
    assert code == 3
    assert "missing_object" in out
    assert "the store has not its log" in out


def test_every_kind_has_a_hint() -> None:
    assert HINTS.keys() == set(FindingKind)


class Racing:
    """A store whose listing something happens after."""

    def __init__(self, remote: RemoteStorageManager, then: Callable[[], None]) -> None:
        self._remote = remote
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    def list_objects(self) -> Iterator[RemoteObject]:
        yield from self._remote.list_objects()
        self._then()


def _verified(tier: Spoilt, then: Callable[[], None]) -> list[str]:
    manager = open_metadata(tier.metadata.as_uri())
    verification = Verification(
        refresh=manager.refresh,
        was_deleted=lambda _: False,
        selection=Selection(),
        now_ms=time.time_ns() // 1_000_000,
        remote=Racing(open_remote(tier.remote.as_uri()), then),  # type: ignore[arg-type]
    )
    try:
        return [str(finding.kind) for finding in verification.findings()]
    finally:
        manager.close()


def test_what_is_copied_or_deleted_meanwhile_is_no_finding(tier: Spoilt) -> None:
    first = _first(nth=0)(tier)
    again = replace(
        first, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=time.time_ns() // 1_000_000
    )
    tier.object(again, ".log").write_bytes(b"half")
    tier.object(first, ".log").unlink()
    assert _verified(tier, lambda: None) == ["missing_object", "orphan"]

    def copy_and_delete() -> None:
        tier.append(again, _update(first, S.DELETE_SEGMENT_STARTED, at_ms=time.time_ns() // 1_000_000))

    assert _verified(tier, copy_and_delete) == ["stuck_delete", "dangling_copy"]


def test_a_million_objects_take_bytes_each() -> None:
    """Twenty thousand segments and a listing of five objects each, made as it is read."""
    state, listing = made_tier(20_000)

    class Listed:
        def list_objects(self) -> Iterator[RemoteObject]:
            yield from listing()

    tracemalloc.start()
    audit = StoreAudit(state)
    for listed in Listed().list_objects():
        name = segment_object_name(listed.key)
        assert name is not None
        assert audit.add(name, listed.size_bytes)
    suspects = list(audit.suspects())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [suspect.missing for suspect in suspects] == [ObjectPart.OFFSET]
    assert peak < 20_000 * 60
