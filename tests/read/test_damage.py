"""Damaged and missing objects: they are reported, and the other records are read."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.read.record_rows import INDEXES, index_rows
from tierctl.read.segment import RemoteSegment, rebuilt_indexes
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES

from tests.read import brute
from tests.read.test_partition_reader import leader_logs
from tests.read.tier import Tier, as_answers
from tests.support.faults import flip_bit
from tests.wire.batches.same import scan

Capture = Callable[[str], Path]


@pytest.fixture
def tier_of(capture: Capture, tmp_path: Path) -> Callable[[str], Tier]:
    """Return a tier with a copy of one partition's objects, for a test to damage."""

    def open_copy(topic: str, name: str = "tiered-cluster", *where: str) -> Tier:
        root = capture(name)
        metadata, remote = where or ("before", "before-remote")
        logs = [] if where else [root / metadata]
        for folder in (root / remote).glob(f"*/{topic}-0-*"):
            shutil.copytree(folder, tmp_path / "remote" / folder.parent.name / folder.name)
        return Tier.of(root / metadata, tmp_path / "remote", *logs)

    return open_copy


def heads(log: Path) -> list[tuple[int, int, int]]:
    """Return (position, first offset, last offset) of every batch."""
    return [(head.position, head.base_offset, head.last_offset) for head in scan(log.read_bytes())]


Answers = list[tuple[int, int, str | None, str | None]]


def everything(tier: Tier, topic: str) -> Answers:
    return as_answers(tier.reader(topic).read())


def without(answers: Answers, first: int, last: int) -> Answers:
    return [answer for answer in answers if not first <= answer[0] <= last]


def test_a_flipped_bit_costs_one_batch_and_is_reported_with_byte_and_offset(
    tier_of: Callable[[str], Tier],
) -> None:
    tier = tier_of("orders")
    healthy = everything(tier, "orders")
    log = tier.object(tier.segments("orders")[1], ".log")
    position, first, last = heads(log)[1]
    flip_bit(log, position + 200)

    assert everything(tier, "orders") == without(healthy, first, last)
    (error,) = tier.problems
    assert isinstance(error, CorruptInputError)
    assert position <= (error.at or -1) < position + 300
    assert tier.segments("orders")[1].segment_id in error.message
    assert error.hint is not None
    assert f"offsets {first} to {last} may be lost" in error.hint


def test_a_flipped_leader_epoch_is_reported_and_costs_nothing(tier_of: Callable[[str], Tier]) -> None:
    tier = tier_of("orders")
    healthy = everything(tier, "orders")
    log = tier.object(tier.segments("orders")[0], ".log")
    position, first, _ = heads(log)[1]
    flip_bit(log, position + 13)

    assert everything(tier, "orders") == healthy
    (error,) = tier.problems
    assert isinstance(error, CorruptInputError)
    assert error.at == position + 12
    assert f"at offset {first}" in error.message


@pytest.mark.parametrize("kept", [0, 1, 100, 50_000, 400_000])
def test_a_cut_segment_object_costs_its_tail(tier_of: Callable[[str], Tier], kept: int) -> None:
    tier = tier_of("clicks")
    healthy = everything(tier, "clicks")
    segment = tier.segments("clicks")[1]
    log = tier.object(segment, ".log")
    batches = heads(log)
    log.write_bytes(log.read_bytes()[:kept])
    ends = [*[position for position, _, _ in batches[1:]], segment.segment_size_in_bytes]
    lost = next(first for (_, first, _), end in zip(batches, ends, strict=True) if end > kept)

    assert everything(tier, "clicks") == without(healthy, lost, segment.end_offset)
    (error,) = tier.problems
    assert isinstance(error, CorruptInputError)
    assert error.hint is not None
    assert f"offsets {lost} to {segment.end_offset} may be lost" in error.hint


def test_a_missing_segment_object_is_not_found_and_the_rest_is_read(tier_of: Callable[[str], Tier]) -> None:
    tier = tier_of("metrics")
    healthy = everything(tier, "metrics")
    segment = tier.segments("metrics")[2]
    tier.object(segment, ".log").unlink()
    assert everything(tier, "metrics") == without(healthy, segment.start_offset, segment.end_offset)
    (error,) = tier.problems
    assert isinstance(error, RemoteResourceNotFound)
    assert f"offsets {segment.start_offset} to {segment.end_offset}" in error.message
    assert error.hint


def seeks(segment: RemoteLogSegmentMetadata) -> list[int]:
    span = segment.end_offset - segment.start_offset
    return [segment.start_offset + span * part // 10 for part in range(11)]


def check_seeks(tier: Tier, topic: str, segment: RemoteLogSegmentMetadata) -> None:
    expected = [r.answer for r in brute.visible(brute.decode_files(leader_logs(tier, topic, 0)))]
    for offset in seeks(segment):
        wanted = [a for a in expected if offset <= a[0] < offset + 5]
        assert as_answers(tier.reader(topic).read(offset, offset + 5)) == wanted


@pytest.mark.parametrize("index", [IndexType.OFFSET, IndexType.TIMESTAMP])
def test_a_missing_index_costs_nothing(tier_of: Callable[[str], Tier], index: IndexType) -> None:
    tier = tier_of("orders")
    segment = tier.segments("orders")[1]
    tier.object(segment, INDEX_SUFFIXES[index]).unlink()
    check_seeks(tier, "orders", segment)
    check_times(tier, "orders")
    assert tier.problems == []


def check_times(tier: Tier, topic: str) -> None:
    records = brute.decode_files(leader_logs(tier, topic, 0))
    reader = tier.reader(topic)
    first, last = records[0].timestamp_ms, max(r.timestamp_ms for r in records)
    for timestamp_ms in [first - 1, *range(first, last + 1, max((last - first) // 41, 1)), last, last + 1]:
        expected = next((r for r in records if r.timestamp_ms >= timestamp_ms), None)
        found = reader.offset_for_time(timestamp_ms)
        if expected is not None:
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (expected.offset, expected.timestamp_ms)
        else:
            assert found is None or found.offset > records[-1].offset


INDEX_DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut": (".index", lambda data: data[:-3]),
    "not rising": (".index", lambda data: data[8:16] + data[:8] + data[16:]),
    "no position of a batch": (".index", lambda data: data[:7] + bytes([data[7] ^ 8]) + data[8:]),
    "position of a later batch": (".index", lambda data: data[:4] + data[12:16] + data[16:]),
    "position beyond the end": (".index", lambda data: data[:-4] + b"\x7f\xff\xff\xff"),
    "times cut": (".timeindex", lambda data: data[:-5]),
    "times not rising": (".timeindex", lambda data: data[12:24] + data[:12] + data[24:]),
    "no time of its batch": (".timeindex", lambda data: data[:7] + bytes([data[7] ^ 1]) + data[8:]),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_a_damaged_index_costs_nothing_and_is_reported(tier_of: Callable[[str], Tier], damage: str) -> None:
    tier, (suffix, change) = tier_of("orders"), INDEX_DAMAGE[damage]
    second, damaged = tier.segments("orders")[1], set()
    for segment in [second] if suffix == ".index" else tier.segments("orders"):
        path = tier.object(segment, suffix)
        path.write_bytes(change(path.read_bytes()))
        damaged.add(segment.segment_id)
    check_seeks(tier, "orders", second)
    check_times(tier, "orders")
    assert tier.problems
    assert all(isinstance(error, CorruptInputError) for error in tier.problems)
    assert all(any(each in error.message for each in damaged) for error in tier.problems)


@pytest.mark.parametrize("topic", ["payments", "shortlived"])
def test_rebuilt_indexes_are_those_the_broker_wrote(capture: Capture, topic: str) -> None:
    """They are equal if the broker appended batch by batch; a segment does not show its requests."""
    root = capture("tiered-cluster")
    tier = Tier.of(root / "before", root / "before-remote")
    remote = tier.view(topic).remote
    for segment in tier.segments(topic):
        offsets, times = rebuilt_indexes(RemoteSegment(segment, remote))
        assert offsets.data == tier.object(segment, ".index").read_bytes()
        assert times.data == tier.object(segment, ".timeindex").read_bytes()


def committed_of(tier: Tier, topic: str) -> Answers:
    return as_answers(tier.reader(topic, isolation=IsolationLevel.READ_COMMITTED).read())


@pytest.mark.parametrize(
    ("topic", "where"),
    [("payments", ()), ("ledger", ("untiered-broker", "tiered-metadata", "tiered-remote"))],
)
@pytest.mark.parametrize(
    ("lost", "damaged"), [((".txnindex",), True), ((".txnindex", ".snapshot"), False), ((".snapshot",), True)]
)
def test_what_was_aborted_is_known_without_transaction_indexes(
    tier_of: Callable[..., Tier], topic: str, where: tuple[str, ...], lost: tuple[str, ...], damaged: bool
) -> None:
    tier = tier_of(topic, *where)
    healthy = committed_of(tier, topic)
    assert tier.problems == []
    for suffix in lost:
        for path in tier.remote_folder.rglob(f"*{suffix}"):
            if damaged:
                path.write_bytes(path.read_bytes()[:-1])
            else:
                path.unlink()

    assert committed_of(tier, topic) == healthy
    assert bool(tier.problems) is damaged
    reader = tier.reader(topic, isolation=IsolationLevel.READ_COMMITTED)
    for segment in tier.segments(topic)[1:]:
        start = segment.start_offset - 5
        wanted = [a for a in healthy if start <= a[0] < start + 60]
        assert as_answers(reader.read(start, start + 60)) == wanted


@pytest.mark.parametrize(("of", "to"), [(0, 1), (1, 0)], ids=["earlier", "later"])
def test_the_transaction_index_of_another_segment_is_damage(
    of: int, to: int, tier_of: Callable[[str], Tier]
) -> None:
    """A broker refuses that of an earlier one (TransactionIndex.sanityCheck)."""
    tier = tier_of("payments")
    healthy = committed_of(tier, "payments")
    segments = sorted(tier.segments("payments"), key=lambda each: each.start_offset)
    other = tier.object(segments[of], ".txnindex").read_bytes()
    assert other
    tier.object(segments[to], ".txnindex").write_bytes(other)
    assert committed_of(tier, "payments") == healthy
    bound = f"from {segments[to].start_offset}" if of < to else f"up to {segments[to].end_offset}"
    assert [f"expected last offset {bound}" in str(each) for each in tier.problems] == [True]


@pytest.mark.parametrize("damage", ["missing", "of another segment", "torn"])
@pytest.mark.parametrize("stage", ["before", "after"])
def test_the_lineage_is_put_together_from_metadata_when_the_leader_epoch_index_is_lost(
    tier_of: Callable[..., Tier], stage: str, damage: str
) -> None:
    tier = tier_of("wallets", "unclean-leader", f"{stage}/broker-1", f"{stage}/remote")
    healthy = everything(tier, "wallets")
    newest = max(tier.segments("wallets"), key=lambda s: (max(s.segment_leader_epochs), s.end_offset))
    path = tier.object(newest, ".leader_epoch_checkpoint")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"0\n1\n0 0\n" if damage == "of another segment" else b"0\n9\n0 0\n")

    assert everything(tier, "wallets") == healthy
    assert len(tier.problems) == (0 if damage == "missing" else 1)


def test_offsets_that_no_segment_holds_are_reported(tier_of: Callable[[str], Tier]) -> None:
    tier = tier_of("orders")
    healthy = everything(tier, "orders")
    hole = tier.segments("orders")[2]
    tier.move(hole, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert everything(tier, "orders") == without(healthy, hole.start_offset, hole.end_offset)
    (error,) = tier.problems
    assert f"offsets {hole.start_offset} to {hole.end_offset}" in error.message


@pytest.mark.parametrize("index_type", list(IndexType))
def test_indexes_as_rows_have_every_entry(capture: Capture, index_type: IndexType) -> None:
    root = capture("tiered-cluster")
    tier = Tier.of(root / "before", root / "before-remote")
    segment = tier.segments("payments")[1]
    data = tier.object(segment, INDEX_SUFFIXES[index_type]).read_bytes()
    listed = list(index_rows(data, index_type, segment.start_offset))
    sizes = {IndexType.OFFSET: 8, IndexType.TIMESTAMP: 12, IndexType.TRANSACTION: 34}
    if index_type in sizes:
        assert len(listed) == len(data) // sizes[index_type]
    assert listed
    assert all(tuple(row) == INDEXES[index_type].names for row in listed)
