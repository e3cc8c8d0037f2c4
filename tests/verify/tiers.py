"""Captured tiers that a test may damage, and runs of verify over them."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState
from tierctl.storage.stores.base import RemoteObject
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.metadata.topics import segments_at, topic_in
from tests.plan.tier import advance, segment, segment_id

NOW_MS = 4_000_000_000_000


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A tier with its metadata and the log directory of its broker, which may be changed."""

    metadata: Path
    remote: Path
    chosen: RemoteLogSegmentMetadata | None = None
    """The segment that a case damages; None: one of its own choice."""

    def segments(self, topic: str, partition: int = 0) -> list[RemoteLogSegmentMetadata]:
        """Return the segments of one partition by start offset."""
        own = (s for s in segments_at(self.metadata) if (s.topic, s.partition) == (topic, partition))
        return sorted(own, key=lambda s: s.start_offset)

    def object(self, segment: RemoteLogSegmentMetadata, suffix: str) -> Path:
        """Return the file of an object, which may be missing."""
        folder = f"{segment.topic}-{segment.partition}-{segment.topic_id}"
        name = f"{segment.start_offset:020d}-{segment.segment_id}{suffix}"
        return self.remote / "kafka-tiered-storage" / folder / name

    def files(self, segment: RemoteLogSegmentMetadata) -> list[Path]:
        """Return the files of all objects of a segment."""
        return list(self.object(segment, "").parent.glob(f"*{segment.segment_id}*"))

    def copy_objects(self, segment: RemoteLogSegmentMetadata, again: RemoteLogSegmentMetadata) -> list[Path]:
        """Copy the objects of a segment to those of `again`, and return the new files."""
        own, target = self.object(segment, "").name, self.object(again, "")
        target.parent.mkdir(exist_ok=True)
        return [
            shutil.copyfile(path, target.with_name(path.name.replace(own, target.name)))
            for path in self.files(segment)
        ]

    def append(self, *events: MetadataEvent) -> None:
        """Append an event to the metadata log without checks."""
        topic = topic_in(self.metadata, writable=True)
        count = topic.partition_count
        topic.append(
            [
                (metadata_partition(e.topic_id, e.partition, count), encode(e))  # type: ignore[union-attr]
                for e in events
            ]
        )
        topic.close()

    def append_raw(self, partition: int, value: bytes | None) -> None:
        """Append arbitrary bytes, or a record without a value, to the metadata log."""
        topic = topic_in(self.metadata, writable=True)
        topic.append([(partition, value)])  # type: ignore[list-item]
        topic.close()


SUFFIXES = (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")


def made_tier(count: int) -> tuple[TierState, Callable[[], Iterator[RemoteObject]]]:
    """Make a partition of `count` finished segments, and the listing of their objects without one index."""
    partition = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "made", 0)
    state = TierState()
    for number in range(count):
        added = segment(number, number * 10, number * 10 + 9, partition=partition)
        fold_event(replace(added, txn_index_empty=True), state, metadata_partition=0, metadata_offset=number)
        advance(state, added, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)

    def listing() -> Iterator[RemoteObject]:
        folder = f"kafka-tiered-storage/made-0-{partition.topic_id}"
        for number in range(count):
            stem = f"{folder}/{number * 10:020d}-{segment_id(number)}"
            for suffix in SUFFIXES:
                if number != count // 2 or suffix != ".index":
                    yield RemoteObject(stem + suffix, 100, 0)

    return state, listing
