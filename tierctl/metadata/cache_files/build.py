"""Build flat files from the state that the metadata topic gives, and list those of a state directory."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, LockedError
from tierctl.files import PLAIN, exclusive, read_regular, replace_durably
from tierctl.metadata.state_dir.cache_file import cache_name, partition_of
from tierctl.metadata.state_dir.directory import LOCK
from tierctl.metadata.state_dir.manifest import MANIFEST, Manifest
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.stored import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.state.tier import PartitionState
from tierctl.wire.files import flatfile

_NO_EPOCH = -1


def state_caches(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one row for each cache file that the manifest of the state directory `folder` lists.

    Raise LockedError if another run, which makes the directory, has not yet written the manifest.
    """
    try:
        manifest = Manifest.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        raise LockedError(f"another tierctl is writing {folder}", hint="wait for it to end") from None
    for name, entry in sorted(manifest.caches.items()):
        partition = partition_of(name)
        if partition is not None:
            yield {
                "file": str(folder / name),
                "topic": partition.topic,
                "topic_id": partition.topic_id,
                "partition": partition.partition,
                "metadata_partition": entry.metadata_partition,
                "last_offset": entry.last_offset,
                "entries": entry.events,
                "size_bytes": (folder / name).stat().st_size,
            }


def flat_files(parts: Iterable[PartitionState], folder: Path, *, named: bool) -> list[dict[str, Any]]:
    """Write KIP-405's flat file of each user partition to `folder`; return one row for each.

    `named` chooses the header with the topic's name. Raise CorruptInputError for a topic whose name can't
    be part of a path, LockedError if another run writes there, or OSError.
    """
    PLAIN.make_folder(folder.absolute())
    with exclusive(folder, LOCK):
        return [_flat_file(part, folder, named=named) for part in parts]


def _flat_file(part: PartitionState, folder: Path, *, named: bool) -> dict[str, Any]:
    partition = part.topic_id_partition
    name = cache_name(partition)
    if name is None:
        raise CorruptInputError("topic name", expected="[a-zA-Z0-9._-]", found=repr(partition.topic))
    records = list(_records(part))
    header = flatfile.FlatFileHeader(
        topic=partition.topic if named else None,
        topic_id=partition.topic_id,
        metadata_topic_offset=part.last_event_offset,
    )
    data = flatfile.write(header, records)
    replace_durably(folder.absolute() / name, data, backup=True)
    return {
        "file": str(folder / name),
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "metadata_partition": part.metadata_partition,
        "last_offset": part.last_event_offset,
        "entries": len(records),
        "size_bytes": len(data),
    }


def _records(part: PartitionState) -> Iterator[StoredRecord]:
    segments = sorted(part.cache.list_remote_log_segments(), key=lambda s: (s.start_offset, s.segment_id))
    yield from map(_stored, segments)
    if part.delete_state is not None:
        yield StoredPartitionState(epoch=_NO_EPOCH, event_timestamp_ms=_NO_EPOCH, state=part.delete_state)


def _stored(segment: RemoteLogSegmentMetadata) -> StoredSegment:
    # KIP-405's record has the leader's epoch where Kafka's events have a broker id: the nearest value is the
    # epoch of the segment's last record.
    last_epoch = max((epoch for epoch, _ in segment.segment_leader_epochs), default=_NO_EPOCH)
    return StoredSegment(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epoch=last_epoch if segment.leader_epoch is None else segment.leader_epoch,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=segment.segment_leader_epochs,
        segment_size_in_bytes=segment.segment_size_in_bytes,
        state=segment.state,
    )
