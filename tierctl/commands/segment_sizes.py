"""The sizes of topics in the tier, for `segments --sizes`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tierctl.commands.histories import read_selected
from tierctl.commands.resources import Resources
from tierctl.metadata.deleted_segments import deleted_segments
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.read.partitions import illegal_name_error
from tierctl.state.sizes import SegmentSizes, sizes_by_partition
from tierctl.storage.base import RemoteStorageManager


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """The remote segments of one topic id, summed up by state."""

    topic: str
    topic_id: Uuid
    partitions: int
    segments: int
    """Segments in state COPY_SEGMENT_FINISHED: brokers count no others as size (KAFKA-17062)."""
    log_bytes: int
    copying_segments: int
    """Segments in state COPY_SEGMENT_STARTED."""
    copying_bytes: int
    deleting_segments: int
    """Segments in state DELETE_SEGMENT_STARTED."""
    deleting_bytes: int
    objects: int | None
    """Objects of the segments in all of these states; None if the store was not asked."""
    object_bytes: int | None


def topic_sizes(resources: Resources, *, include_deleted: bool) -> list[TopicSize]:
    """Return the sums by topic id; objects are counted if a tier is named and the topic's name is legal.

    With `include_deleted`, the objects and partitions of deleted segments are counted, too.
    """
    state, selection = read_selected(resources), resources.selection
    remote = None if resources.request.remote is None else resources.remote
    sizes = {number: sizes_by_partition(table) for number, table in state.tables.items()}
    by_topic: dict[tuple[str, Uuid], _TopicSum] = defaultdict(_TopicSum)
    for part in state:
        partition = part.topic_id_partition
        if partition not in selection or not part.segment_count:
            continue
        topic = by_topic[partition.topic, partition.topic_id]
        topic.partitions.add(partition.partition)
        topic.sizes += sizes[part.metadata_partition][part.number]
        topic.is_legal &= illegal_name_error(partition) is None
        if remote is not None and topic.is_legal:
            topic.count_objects(remote, part.cache.list_remote_log_segments())
    for segment in selected_deleted_segments(resources) if include_deleted else ():
        topic = by_topic[segment.topic, segment.topic_id]
        topic.partitions.add(segment.partition)
        topic.is_legal &= illegal_name_error(segment.topic_id_partition) is None
        if remote is not None and topic.is_legal:
            topic.count_objects(remote, [segment])
    return [topic.row(*key, has_tier=remote is not None) for key, topic in sorted(by_topic.items())]


@dataclass(slots=True)
class _TopicSum:
    """The sums of one topic id."""

    sizes: SegmentSizes = field(default_factory=SegmentSizes)
    partitions: set[int] = field(default_factory=set)
    is_legal: bool = True
    objects: int = 0
    object_bytes: int = 0

    def count_objects(
        self, remote: RemoteStorageManager, segments: Iterable[RemoteLogSegmentMetadata]
    ) -> None:
        """Add the objects that the tier has of `segments`."""
        for segment in segments:
            for found in remote.objects_of(segment):
                self.objects += 1
                self.object_bytes += found.size_bytes

    def row(self, topic: str, topic_id: Uuid, *, has_tier: bool) -> TopicSize:
        """Return the sums as a row; without a tier, or with an illegal name, objects are not counted."""
        counts, sizes_bytes = self.sizes.counts, self.sizes.sizes_bytes
        is_counted = has_tier and self.is_legal
        return TopicSize(
            topic=topic,
            topic_id=topic_id,
            partitions=len(self.partitions),
            segments=counts[RemoteLogSegmentState.COPY_SEGMENT_FINISHED],
            log_bytes=sizes_bytes[RemoteLogSegmentState.COPY_SEGMENT_FINISHED],
            copying_segments=counts[RemoteLogSegmentState.COPY_SEGMENT_STARTED],
            copying_bytes=sizes_bytes[RemoteLogSegmentState.COPY_SEGMENT_STARTED],
            deleting_segments=counts[RemoteLogSegmentState.DELETE_SEGMENT_STARTED],
            deleting_bytes=sizes_bytes[RemoteLogSegmentState.DELETE_SEGMENT_STARTED],
            objects=self.objects if is_counted else None,
            object_bytes=self.object_bytes if is_counted else None,
        )


def selected_deleted_segments(resources: Resources) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the deleted segments of the selected partitions."""
    topic, selection = resources.metadata_topic(), resources.selection
    found = deleted_segments(topic, topic.end_offsets())
    return (segment for segment in found if segment.topic_id_partition in selection)
