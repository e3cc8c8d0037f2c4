"""Segments made by hand: valid bytes, and each kind of damage."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tierctl.checks.bytes import check_segment_bytes
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import ControlType, encode_batch, encode_end_transaction_marker
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex, build_indexes

from tests.plan.tier import segment
from tests.wire.batches.same import scan
from tests.wire.batches.samples import Bytes

Indexes = dict[IndexType, bytes | None]


def batch(first: int, count: int = 5, *, epoch: int = 0, producer: int = -1) -> bytes:
    records = [Record(offset, 1000 + offset, b"k", b"v" * 8, ()) for offset in range(first, first + count)]
    return encode_batch(
        records,
        partition_leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(offset: int, kind: ControlType, *, producer: int = 7) -> bytes:
    key, value = encode_end_transaction_marker(kind, 0)
    record = Record(offset, 1000 + offset, key, value, ())
    return encode_batch([record], producer_id=producer, producer_epoch=0, transactional=True, control=True)


ABORTED = (batch(0), batch(5, producer=7), marker(10, ControlType.ABORT), batch(11, 9))
ABORT = TransactionIndex((AbortedTxn(7, 5, 10, 5),))


def made(
    batches: Sequence[bytes] = ABORTED, **change: Any
) -> tuple[RemoteLogSegmentMetadata, bytes, Indexes]:
    """Return a segment with offsets 0 to 19 in epoch 0, one aborted transaction, and its indexes."""
    log = b"".join(batches)
    heads = list(scan(log))
    offsets, times = build_indexes(heads, 0, interval_bytes=30)
    facts = {
        "max_timestamp_ms": max(head.max_timestamp_ms for head in heads),
        "segment_size_in_bytes": len(log),
    }
    metadata = replace(segment(1, 0, 19), **(facts | change))
    indexes: Indexes = {
        IndexType.OFFSET: offsets.data,
        IndexType.TIMESTAMP: times.data,
        IndexType.TRANSACTION: ABORT.encode(),
        IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot([ProducerEntry(7, 0, 4, 9, 4, 1, 0, -1)]),
        IndexType.LEADER_EPOCH: write_leader_epoch_checkpoint([(0, 0)]),
    }
    return metadata, log, indexes


def problems(
    batches: Sequence[bytes] = ABORTED, indexes: Indexes | None = None, **change: Any
) -> list[tuple[str, str]]:
    metadata, log, own = made(batches, **change)
    found = check_segment_bytes(metadata, Bytes(log), own | (indexes or {}))
    return [(str(problem.kind), problem.message) for problem in found]


def test_sound() -> None:
    assert problems() == []


@pytest.mark.parametrize("first", [1, 2])
def test_records_of_1970_are_sound(first: int) -> None:
    """If a batch of one record comes first, the only entry of the time index is all zeros."""
    counts = {0: first, first: 20 - first}
    batches = [encode_batch([Record(at + n, 0, None, b"v") for n in range(counts[at])]) for at in counts]
    no_transactions: Indexes = {T: b"", SNAPSHOT: encode_producer_snapshot([])}
    times = {IndexType.TIMESTAMP: bytes(11) + bytes([first - 1])}
    assert problems(batches, no_transactions | times) == []


T, SNAPSHOT = IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT
EPOCHS_AHEAD = write_leader_epoch_checkpoint([(0, 0), (1, 30)])


def snapshot(last_offset: int) -> bytes:
    return encode_producer_snapshot([ProducerEntry(7, 0, 4, last_offset, 3, 1, 0, -1)])


def aborted(producer: int, first_offset: int) -> bytes:
    return TransactionIndex((AbortedTxn(producer, first_offset, 10, 5),)).encode()


def index(kind: IndexType, data: bytes | None) -> dict[str, Indexes]:
    return {"indexes": {kind: data}}


def allocated(kind: IndexType, size_bytes: int) -> dict[str, Indexes]:
    """Return an index with zeros after its entries: RemoteIndexCache refuses such a time index."""
    return index(kind, (made()[2][kind] or b"") + bytes(size_bytes))


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"batches": (batch(1, 4), *ABORTED[1:])}, "segment_offsets", "holds offsets 1 to 19, the metadata"),
        ({"end_offset": 25}, "segment_offsets", "or a part of its log was lost"),
        ({"batches": (*ABORTED[:3], batch(12, 8))}, "segment_offsets", "the first from 11 to 11"),
        ({"max_timestamp_ms": 5}, "metadata_differs", "1019, the metadata say 5"),
        ({"batches": (*ABORTED[:3], batch(11, 9, epoch=3))}, "epochs_differ", "leader epoch 3"),
        ({"segment_leader_epochs": ((0, 0), (2, 19))}, "epochs_differ", "leader-epoch index says 0 from 0"),
        (index(IndexType.LEADER_EPOCH, EPOCHS_AHEAD), "epochs_differ", "1 from 30"),
        (index(T, b""), "corrupt_index", "from 5 that was aborted at 10 is missing"),
        (index(T, None), "missing_object", "1 transactions were aborted"),
        (index(T, aborted(8, 5)), "corrupt_index", "no aborted transaction for the entry (8, 5, 10, 5)"),
        (index(T, aborted(7, 6)), "corrupt_index", "begins after 5"),
        ({"txn_index_empty": True}, "corrupt_index", "the metadata say that the index is empty"),
        (index(SNAPSHOT, snapshot(25)), "corrupt_index", "wrote last at 25"),
        (
            index(SNAPSHOT, snapshot(3)),
            "corrupt_index",
            "producer 7 wrote last at 3, the log has a batch of it up to 9",
        ),
        (
            index(IndexType.TIMESTAMP, b""),
            "corrupt_index",
            "it has no entry, the log's largest timestamp is 1019",
        ),
        (index(IndexType.OFFSET, None), "missing_object", "no offset index"),
        (allocated(IndexType.OFFSET, 8), "corrupt_index", "nothing after the last entry, found 8 bytes"),
        (allocated(IndexType.TIMESTAMP, 120), "corrupt_index", "after the last entry, found 120 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_not_sound(change: dict[str, Any], kind: str, says: str) -> None:
    found = problems(**change)
    assert {each for each, _ in found} == {kind}, found
    assert any(says in message for _, message in found), found


def test_a_snapshot_may_lack_producers_that_expired() -> None:
    """A marker with a new producer epoch removes the last batch of the producer, too."""
    assert problems(indexes={SNAPSHOT: encode_producer_snapshot([])}) == []
    bumped = encode_producer_snapshot([ProducerEntry(7, 1, -1, -1, 0, 1, 0, -1)])
    assert problems(indexes={SNAPSHOT: bumped}) == []


def test_an_abort_of_a_transaction_that_began_before_the_segment_needs_an_entry_only_if_it_had_records() -> (
    None
):
    committed = (batch(0), batch(5, producer=7), marker(10, ControlType.COMMIT), batch(11, 9))
    assert problems(committed, {T: None}) == []
    only_marker = (batch(0, 10), marker(10, ControlType.ABORT), batch(11, 9))
    assert problems(only_marker, {T: None}) == []


def test_a_marker_that_compaction_removed_ends_no_transaction() -> None:
    empty = encode_batch(
        [],
        base_offset=9,
        last_offset=9,
        max_timestamp_ms=1009,
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    known: Indexes = {SNAPSHOT: encode_producer_snapshot([ProducerEntry(7, 0, 3, 8, 3, 1, 0, -1)])}
    log = (batch(0), batch(5, 4, producer=7), empty, marker(10, ControlType.ABORT), batch(11, 9))
    assert problems(log, known) == []
    missing = problems(log, {**known, T: None})
    assert [kind for kind, _ in missing] == ["missing_object"], missing


def test_a_log_cut_anywhere_is_told_and_never_an_exception() -> None:
    metadata, log, indexes = made()
    for size in range(len(log)):
        found = list(check_segment_bytes(metadata, Bytes(log[:size]), indexes))
        assert [str(problem.kind) for problem in found] == ["size_differs"], size


def test_every_flipped_bit_is_found_or_changes_nothing_that_is_read() -> None:
    metadata, log, indexes = made()
    unseen = []
    for at in range(len(log)):
        for bit in range(8):
            spoilt = log[:at] + bytes([log[at] ^ 1 << bit]) + log[at + 1 :]
            if not list(check_segment_bytes(metadata, Bytes(spoilt), indexes)):
                unseen.append((at, bit))
    assert unseen == []
