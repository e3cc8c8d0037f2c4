"""The contract of a metadata topic, wherever the topic is."""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from tierctl.model import ClusterIdentity, Uuid
from tierctl.wire.batches.chunks import RecordChunk

METADATA_TOPIC = "__remote_log_metadata"
DEFAULT_METADATA_PARTITIONS = 50


class ReadableTopic(Protocol):
    """The records of a metadata topic, which is all that a fold reads of it."""

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records with offsets in [start_offset, end_offset) as chunks, in order of offsets.

        `RecordChunk.damage` names every range of these offsets that has no readable record.
        """
        ...


class MetadataTopic(ReadableTopic, Protocol):
    """`__remote_log_metadata` as partitions of records; `open_topic` returns one.

    Every method raises MetadataError or AuthenticationError if the cluster or the disk fails, and
    RemoteStorageError if an object store fails.
    """

    @property
    def partition_count(self) -> int:
        """Return the number of metadata partitions; the partitioner depends on it.

        If only some partitions are present, the count is the highest partition number plus 1.
        """
        ...

    @property
    def topic_id(self) -> Uuid | None:
        """Return the topic id, None if unknown; a topic that is deleted and created again has another id."""
        ...

    def identity(self) -> ClusterIdentity:
        """Return the ids of the topic and of its cluster, as far as they are known.

        In a folder or a store, the cluster id is that of `meta.properties` beside the partition folders.
        Raises CorruptInputError if that file is damaged.
        """
        ...

    def beginning_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition; above 0, earlier records were deleted."""
        ...

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last record of each partition that is present now."""
        ...

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Return, for each partition, an offset before which every record is older than `timestamp_ms`.

        The offset is as high as indexes allow. A partition without a record as recent may be absent.
        """
        ...

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs in order; return their offsets once all records are durable.

        The records are never transactional: brokers' consumers would wait behind the control marker. Without
        records, only replicas that the topic has in other log directories are completed.
        Raises MetadataError also if the topic was opened for reading only.
        """
        ...

    def close(self) -> None:
        """Release files, locks and connections."""
        ...
