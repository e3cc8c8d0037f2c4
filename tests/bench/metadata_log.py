"""Metadata topics of large clusters, as brokers write them, and the tiers that belong to them.

Events are ordered by time; user partitions roll independently.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Final, Self

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.storage.layouts.kafka import key_stem
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.batches.scan import walk
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint
from tierctl.wire.files.indexes import build_indexes
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.bench import cache

FIRST_MS, LIFETIME_MS = 1_760_000_000_000, 30 * 86_400_000
NOW_MS: Final = FIRST_MS + LIFETIME_MS
RETENTION_MS: Final = int(LIFETIME_MS * 0.998)
"""At NOW_MS it has passed for a few segments of every topic; today it has passed for all."""
PARTITIONS_OF_A_TOPIC = 50
RECORDS_OF_A_SEGMENT = 1000
RECORDS_OF_A_TERM = 40 * RECORDS_OF_A_SEGMENT
"""Another leader begins in the middle of every fortieth segment, which then has two leader epochs."""
EVENTS_OF_A_FILE = 1_000_000
BROKERS = 9
OBJECTS = (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint")

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The content of a metadata log.

    `segments` counts attempts to copy one. `spread` is the sigma of the log-normal distribution of segments
    over user partitions, `between` the average number of other events between the first two of a segment.
    `deleted` is the share of segments that retention deleted; `failed` that of copies that failed, were
    deleted, and were repeated with another id; `custom` that of segments with custom metadata; `lacking` the
    share of each metadata partition's events, newest first, that are not in the log. `doubled` is the share
    of segments that a former leader also copies, under another id, with its events among those of the leader;
    `unclean` that of segments after which a leader without them begins again at their offset; `interrupted`
    that of deletions that do not finish.
    """

    segments: int
    user_partitions: int
    metadata_partitions: int = 50
    spread: float = 0.5
    between: float = 20
    deleted: float = 0
    failed: float = 0
    custom: float = 0
    lacking: float = 0
    doubled: float = 0
    unclean: float = 0
    interrupted: float = 0
    terms: int = 1
    """A term of a leader has 40 segments, divided by this number."""
    events_of_a_batch: int = 1
    segment_bytes: int = 1 << 29
    """The largest size of a segment's log."""

    def small(self) -> Self:
        """Return the same with a few segments, for a row that is only tried out."""
        return replace(self, segments=60, user_partitions=min(self.user_partitions, 6))

    def __str__(self) -> str:
        partitions = f"{self.user_partitions:,} user and {self.metadata_partitions} metadata partitions"
        return f"{self.segments:,} segments, {partitions}"


Event = tuple[int, RemoteLogSegmentState, RemoteLogSegmentMetadata]
"""The time, the state, and the segment that is in it from then on."""


def metadata_log(shape: Shape) -> Path:
    """Return the folder with `__remote_log_metadata-N/` of that shape; it is made once."""

    def make(folder: Path) -> None:
        for number, events in enumerate(histories(shape)):
            own = folder / f"__remote_log_metadata-{number}"
            own.mkdir()
            for base in range(0, len(events), EVENTS_OF_A_FILE):
                _write(own, base, events[base : base + EVENTS_OF_A_FILE], shape)

    return cache.make_once("metadata", make, shape, Path(__file__))


def tier(shape: Shape, *, newest_only: bool = False) -> Path:
    """Return a folder with `remote`, the objects of copied segments, and `topics.properties`.

    With `newest_only` only the newest segment of each user partition has objects.
    """

    def make(folder: Path) -> None:
        topics = set()
        for events in histories(shape):
            last = {segment.segment_id: (state, segment) for _, state, segment in events}
            copied = [segment for state, segment in last.values() if state is FINISHED]
            copied.sort(key=lambda segment: segment.start_offset)
            newest = {segment.topic_id_partition: segment for segment in copied}
            topics |= {segment.topic for segment in copied}
            for segment in newest.values() if newest_only else copied:
                _store(folder / "remote" / key_stem(segment), segment)
        lines = (f"{t}.remote.storage.enable=true\n{t}.retention.ms={RETENTION_MS}\n" for t in sorted(topics))
        (folder / "topics.properties").write_text("".join(lines))

    return cache.make_once(f"tier-{'newest' if newest_only else 'all'}", make, shape, Path(__file__))


def histories(shape: Shape) -> Iterator[list[Event]]:
    """Yield the events of each metadata partition in their order."""
    random = Random(f"{shape.user_partitions} user partitions")
    weights = [random.lognormvariate(0, shape.spread) for _ in range(shape.user_partitions)]
    scale = (shape.segments - shape.user_partitions) / sum(weights)
    ends = [0, *(round(scale * end) for end in accumulate(weights))]
    owners: list[dict[TopicIdPartition, int]] = [{} for _ in range(shape.metadata_partitions)]
    for i, (begin, end) in enumerate(pairwise(ends)):
        topic, partition = divmod(i, PARTITIONS_OF_A_TOPIC)
        topic_id = Uuid.from_bytes(Random(f"topic {topic}").randbytes(16))
        owner = TopicIdPartition(topic_id, f"{'topic.of.a.team'[: 5 + topic % 11]}-{topic:05d}", partition)
        owners[metadata_partition(topic_id, partition, shape.metadata_partitions)][owner] = 1 + end - begin
    for number, own in enumerate(owners):
        yield _history(shape, own, Random(f"metadata partition {number}"))


def _history(shape: Shape, owners: dict[TopicIdPartition, int], random: Random) -> list[Event]:
    events: list[Event] = []
    events_a_ms = 2 * sum(owners.values()) / LIFETIME_MS
    for owner, count in owners.items():
        copied: deque[RemoteLogSegmentMetadata] = deque()
        interval_ms, number, terms = LIFETIME_MS / count, 0, 0
        for index in range(count):
            began_ms = FIRST_MS + int((index + random.random() / 2) * interval_ms)
            took_ms = int(min(random.expovariate(events_a_ms / shape.between), 0.3 * interval_ms))
            segment = _segment(owner, number, Uuid.from_bytes(random.randbytes(16)), began_ms, shape)
            if terms:
                epochs = ((terms + epoch, offset) for epoch, offset in segment.segment_leader_epochs)
                segment = replace(segment, segment_leader_epochs=tuple(epochs))
            events.append((began_ms, STARTED, segment))
            deleted = segment
            # The last attempt never fails, so that the user partition has a segment.
            if random.random() >= shape.failed or index == count - 1:
                events.append((began_ms + took_ms, FINISHED, segment))
                if shape.doubled and random.random() < shape.doubled:
                    other_id, other_ms = Uuid.from_bytes(random.randbytes(16)), began_ms + took_ms // 2
                    other = replace(segment, segment_id=other_id, event_timestamp_ms=other_ms)
                    events.append((other_ms, STARTED, other))
                    events.append((other_ms + took_ms, FINISHED, other))
                copied.append(segment)
                if shape.unclean and random.random() < shape.unclean:
                    terms += 1
                else:
                    number += 1
                if len(copied) <= max(count * (1 - shape.deleted), 1):
                    continue
                deleted = copied.popleft()
            events.append((began_ms + took_ms, DELETE_STARTED, deleted))
            if not shape.interrupted or random.random() >= shape.interrupted:
                events.append((began_ms + 6 * took_ms // 5, DELETE_FINISHED, deleted))
    events.sort(key=itemgetter(0))
    # The log ends with an event STARTED, so that the last copies are unfinished.
    while events and events[-1][1] is not STARTED:
        events.pop()
    return events[: len(events) - int(shape.lacking * len(events))]


def _segment(
    owner: TopicIdPartition, number: int, segment_id: Uuid, began_ms: int, shape: Shape
) -> RemoteLogSegmentMetadata:
    start = number * RECORDS_OF_A_SEGMENT
    end = start + RECORDS_OF_A_SEGMENT - 1
    return RemoteLogSegmentMetadata(
        topic=owner.topic,
        topic_id=owner.topic_id,
        partition=owner.partition,
        segment_id=segment_id,
        start_offset=start,
        end_offset=end,
        broker_id=start % BROKERS,
        max_timestamp_ms=began_ms - 60_000,
        event_timestamp_ms=began_ms,
        segment_leader_epochs=leader_epochs(start, end, shape.terms),
        segment_size_in_bytes=shape.segment_bytes - number % 100,
        txn_index_empty=True,
    )


def leader_epochs(first_offset: int, last_offset: int, terms: int = 1) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs between two offsets, each with its first offset there."""
    half, records = RECORDS_OF_A_SEGMENT // 2, RECORDS_OF_A_TERM // terms
    first, last = (max(at - half, 0) // records for at in (first_offset, last_offset))
    begins = (term * records + half if term else 0 for term in range(first, last + 1))
    return tuple((term, max(first_offset, begin)) for term, begin in enumerate(begins, first))


def _write(folder: Path, base: int, events: list[Event], shape: Shape) -> None:
    """Write a segment file and its indexes; the first event has the offset `base`."""
    batches: list[bytes] = []
    for first in range(0, len(events), shape.events_of_a_batch):
        records = [
            Record(offset, ms, None, encode(_event(state, segment, ms, shape)))
            for offset, (ms, state, segment) in enumerate(
                events[first : first + shape.events_of_a_batch], base + first
            )
        ]
        broker = events[first][2].start_offset % BROKERS
        batches.append(
            encode_batch(records, producer_id=broker, producer_epoch=0, base_sequence=base + first)
        )
    data = b"".join(batches)
    offsets, times = build_indexes(walk(data), base)  # type: ignore[arg-type]
    for suffix, content in {".log": data, ".index": offsets.data, ".timeindex": times.data}.items():
        (folder / f"{base:020d}{suffix}").write_bytes(content)


def _event(
    state: RemoteLogSegmentState, segment: RemoteLogSegmentMetadata, ms: int, shape: Shape
) -> RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate:
    if state is STARTED:
        return segment
    broker = segment.start_offset % BROKERS
    update = RemoteLogSegmentMetadataUpdate.of(segment, state, broker_id=broker, event_timestamp_ms=ms)
    has_custom = state is FINISHED and segment.segment_id.bytes[0] < 256 * shape.custom
    return replace(update, custom_metadata=bytes(24)) if has_custom else update


def _store(stem: Path, segment: RemoteLogSegmentMetadata) -> None:
    """Write the five objects of a segment as layout `kafka` names them; only leader epochs have content."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    lineage = write_leader_epoch_checkpoint(leader_epochs(0, segment.end_offset))  # type: ignore[arg-type]
    for suffix in OBJECTS:
        with stem.with_suffix(suffix).open("wb") as file:
            file.write(lineage if suffix == ".leader_epoch_checkpoint" else b"-")
            file.truncate(segment.segment_size_in_bytes if suffix == ".log" else None)
