"""read_committed over transactions that cross segments, with random missing indexes and snapshots."""

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import pytest
from tierctl.commands.fetch import find_range
from tierctl.errors import RemoteResourceNotFound, TierctlError
from tierctl.model import (
    IndexType,
    IsolationLevel,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.read.partition_reader import PartitionReader
from tierctl.read.readable_log import ReadableLog
from tierctl.read.segment import UncachedIndexes
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import ControlType, encode_batch, encode_end_transaction_marker
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex

from tests.metadata.events import update_of
from tests.plan.tier import segment as made_segment
from tests.read import brute
from tests.read.tier import as_answers
from tests.state.folding import cache_of
from tests.support.amounts import rest_in_matrix

_T, _P = IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT
# Which indexes are lost, with their probabilities.
LOST = {
    "nothing": ((), 0.0),
    "transaction indexes": ((_T,), 1.0),
    "some transaction indexes": ((_T,), 0.4),
    "some": ((_T, _P), 0.3),
    "all": ((_T, _P), 1.0),
}

TIP = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "t", 0)


@dataclass
class Log:
    """Write a log as a broker does: batches, markers, and at each roll the indexes of the segment."""

    epoch: int = 0
    marker_ahead_ms: int = 0
    next_offset: int = 0
    base: int = 0
    data: bytes = b""
    aborted: list[AbortedTxn] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    segments: list[tuple[int, int, bytes, dict[IndexType, bytes]]] = field(default_factory=list)

    def _append(self, records: list[Record], **kwargs: object) -> None:
        batch = encode_batch(records, partition_leader_epoch=self.epoch, **kwargs)  # type: ignore[arg-type]
        self.batches.append((self.next_offset, batch))
        self.data += batch
        self.next_offset = records[-1].offset + 1

    def plain(self) -> None:
        self._append([Record(self.next_offset, self.next_offset, b"p", b"v")])

    def write(self, producer: int, count: int) -> None:
        self.open.setdefault(producer, self.next_offset)
        records = [
            Record(self.next_offset + i, self.next_offset, b"t", bytes([producer])) for i in range(count)
        ]
        self._append(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    def end(self, producer: int, kind: ControlType) -> None:
        first, marker = self.open.pop(producer, None), self.next_offset
        if first is not None and kind is ControlType.ABORT:
            stable = min([marker + 1, *self.open.values()])
            self.aborted.append(AbortedTxn(producer, first, marker, stable))
        key, value = encode_end_transaction_marker(kind, 0)
        record = Record(marker, marker + self.marker_ahead_ms, key, value)
        self._append([record], producer_id=producer, producer_epoch=0, transactional=True, control=True)

    def empty(self, producer: int) -> None:
        """Write the batch of a marker that compaction removed: to Kafka, it ends no transaction."""
        at = self.next_offset
        batch = encode_batch(
            [],
            base_offset=at,
            last_offset=at,
            max_timestamp_ms=at,
            partition_leader_epoch=self.epoch,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.batches.append((at, batch))
        self.data += batch
        self.next_offset += 1

    def roll(self) -> None:
        if not self.data:
            return
        producers = [ProducerEntry(p, 0, 0, 0, 0, 0, 0, self.open.get(p, -1)) for p in range(4)]
        indexes = {
            IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot(producers),
            IndexType.TRANSACTION: TransactionIndex(tuple(self.aborted)).encode(),
        }
        self.segments.append((self.base, self.next_offset - 1, self.data, indexes))
        self.base, self.data, self.aborted = self.next_offset, b"", []

    def random_step(self, rng: random.Random) -> None:
        producer = rng.randrange(4)
        match rng.randrange(13):
            case 0 | 1 | 2 | 3:
                self.write(producer, rng.randint(1, 3))
            case 4 | 5 | 6:
                self.end(producer, ControlType.ABORT)
            case 7:
                self.end(producer, ControlType.COMMIT)
            case 8:
                self.plain()
            case 9:
                self.empty(producer)
            case _:
                self.roll()


@dataclass
class Store:
    """A tier in memory, with only the methods that reading needs."""

    objects: dict[tuple[Uuid, IndexType | None], bytes] = field(default_factory=dict)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        end = None if end_position is None else end_position + 1
        if (metadata.segment_id, None) not in self.objects:
            raise RemoteResourceNotFound("gone")
        return io.BytesIO(self.objects[metadata.segment_id, None][start_position:end])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        data = self.objects.get((metadata.segment_id, index_type))
        if data is None:
            raise RemoteResourceNotFound("gone")
        return io.BytesIO(data)


class World:
    """A tier to which any leader copies segments."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.store, self.events = rng, Store(), list[MetadataEvent]()
        self.problems: list[TierctlError] = []

    def copy(
        self,
        segment: tuple[int, int, bytes, dict[IndexType, bytes]],
        lineage: Sequence[tuple[int, int]],
        *,
        flagged: bool,
        lost: str,
    ) -> None:
        start, end, data, indexes = segment
        epochs = [(epoch, max(begin, start)) for epoch, begin in lineage if begin <= end]
        epochs = [
            e for e, later in zip(epochs, [*epochs[1:], None], strict=True) if not later or later[1] > start
        ]
        started = replace(
            made_segment(0, start, end, *epochs, size=len(data), max_timestamp_ms=end, partition=TIP),
            segment_id=(segment_id := Uuid.from_bytes(self.rng.randbytes(16))),
            txn_index_empty=flagged and not indexes[IndexType.TRANSACTION],
        )
        self.store.objects[segment_id, None] = data
        self.store.objects[segment_id, IndexType.LEADER_EPOCH] = write_leader_epoch_checkpoint(
            [(e, o) for e, o in lineage if o <= end]  # type: ignore[list-item]
        )
        for index_type, index in indexes.items():
            if index and (index_type not in LOST[lost][0] or self.rng.random() >= LOST[lost][1]):
                self.store.objects[segment_id, index_type] = index
        self.events += [started, update_of(started, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)]

    @property
    def fetcher(self) -> UncachedIndexes:
        return UncachedIndexes(self.store)  # type: ignore[arg-type]

    def view(self) -> ReadableLog:
        remote: Any = self.store
        cache, report = cache_of(self.events), self.problems.append
        return ReadableLog.of(TIP, cache, [], remote=remote, fetcher=self.fetcher, report=report)

    def reader(self) -> PartitionReader:
        report = self.problems.append
        return PartitionReader(self.view(), self.fetcher, report, isolation=IsolationLevel.READ_COMMITTED)


def committed(log: Log) -> list[tuple[int, int, str | None, str | None]]:
    """Return the records of the tiered part of a log that are committed by tiered markers."""
    end = log.segments[-1][1] if log.segments else -1
    data = b"".join(batch for offset, batch in log.batches if offset <= end)
    return [record.answer for record in brute.committed(list(brute.decode(data)))]


@pytest.mark.parametrize(("lost", "flagged"), [("nothing", True), *((lost, False) for lost in LOST)])
@pytest.mark.parametrize("seed", rest_in_matrix(range(12), tried=4))
def test_transactions_across_segments(seed: int, lost: str, flagged: bool) -> None:
    rng = random.Random(seed)
    log, world = Log(), World(rng)
    for _ in range(80):
        log.random_step(rng)
    for segment in log.segments:
        world.copy(segment, [(0, 0)], flagged=flagged, lost=lost)

    expected = committed(log)
    assert as_answers(world.reader().read()) == expected
    assert world.problems == []
    if lost in {"some", "all"}:
        return
    for start in range(0, log.segments[-1][1], 7):
        wanted = [a for a in expected if start <= a[0] < start + 9]
        assert as_answers(world.reader().read(start, start + 9)) == wanted, start


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("seed", rest_in_matrix(range(15), tried=5))
def test_transactions_of_a_lineage_that_was_lost_do_not_count(seed: int, lost: str) -> None:
    """The new leader's first segment begins inside a segment of the old leader."""
    rng = random.Random(seed)
    old, new, world = Log(), Log(), World(rng)
    for _ in range(40):
        old.random_step(rng)
    new.__dict__.update(
        next_offset=old.next_offset,
        base=old.next_offset,
        epoch=1,
        open=dict(old.open),
        batches=list(old.batches),
    )
    taken_over = old.next_offset
    if old.data and rng.random() < 0.8:
        for _ in range(15):
            old.random_step(rng)
    old.roll()
    for _ in range(40):
        new.random_step(rng)
    new.plain()
    new.roll()
    for segment in old.segments:
        world.copy(segment, [(0, 0)], flagged=False, lost=lost)
    lineage = [(0, 0), (1, taken_over)] if taken_over else [(1, 0)]
    for segment in new.segments:
        world.copy(segment, lineage, flagged=False, lost=lost)

    assert as_answers(world.reader().read()) == committed(new)
    assert world.problems == []


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
@pytest.mark.parametrize("lost", ["segment", "log and indexes", "marker and transaction index"])
def test_a_transaction_whose_end_can_not_be_read(kind: ControlType, lost: str) -> None:
    """Its records are left out, whether it was committed or not; the others follow."""
    world, log = World(random.Random(1)), Log()
    log.plain()
    log.write(1, 2)
    log.roll()
    log.plain()
    log.end(1, kind)
    if lost == "marker and transaction index":
        damaged = [Record(4, 4, b"", b"")]
        batch = encode_batch(damaged, producer_id=1, producer_epoch=0, transactional=True, control=True)
        log.data = log.data[: -len(log.batches[-1][1])] + batch
    log.roll()
    log.plain()
    log.write(3, 1)
    log.end(3, ControlType.ABORT)
    log.plain()
    log.roll()
    for number, segment in enumerate(log.segments):
        if number != 1 or lost != "segment":
            world.copy(segment, [(0, 0)], flagged=False, lost="nothing")
    if lost != "segment":
        segment_id = world.events[2].segment_id  # type: ignore[union-attr]
        world.store.objects.pop((segment_id, IndexType.TRANSACTION), None)
    if lost == "log and indexes":
        del (
            world.store.objects[segment_id, None],
            world.store.objects[segment_id, IndexType.PRODUCER_SNAPSHOT],
        )
    offsets = [record.offset for record in world.reader().read()]
    assert offsets == [0, *([3] if lost == "marker and transaction index" else []), 5, 8]
    hints = [str(each.hint) for each in world.problems]
    assert any("from offset 1 to 4 are left out" in each for each in hints), hints


@pytest.mark.parametrize("seed", range(40))
def test_no_record_of_an_aborted_transaction_is_read_beside_a_gap(seed: int) -> None:
    rng = random.Random(seed)
    log, world = Log(), World(rng)
    for _ in range(80):
        log.random_step(rng)
    missing = rng.randrange(len(log.segments))
    for number, segment in enumerate(log.segments):
        if number != missing:
            world.copy(segment, [(0, 0)], flagged=False, lost="nothing")
    assert set(as_answers(world.reader().read())) <= set(committed(log))


def test_no_range_by_time_begins_or_ends_at_a_marker() -> None:
    """Markers have the time of the broker, and the records of producers may be older."""
    world, log = World(random.Random(1)), Log(marker_ahead_ms=10**6)
    for _ in range(3):
        log.write(1, 2)
        log.end(1, ControlType.COMMIT)
    log.roll()
    world.copy(log.segments[0], [(0, 0)], flagged=False, lost="nothing")
    log_read, reader = world.view(), world.reader()
    times = (0, 2, 3, 5, 6)
    assert [reader.end_for_time(last_ms, 0) for last_ms in times] == [3, 3, 6, 6, None]
    ranges = [find_range(log_read, reader, from_time_ms=last_ms + 1) for last_ms in times]
    assert [found and found.start_offset for found in ranges] == [3, 3, 6, 6, None]
