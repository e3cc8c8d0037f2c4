"""Folds decoded metadata events into the state of the tier."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tierctl.errors import CorruptInputError, IllegalEventError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.states import is_valid_partition_transition
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.tier import Anomaly, PartitionState, Quarantined, TierState

_P = RemotePartitionDeleteState

TopicEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata


def fold(
    table: pa.Table,
    state: TierState,
    *,
    metadata_partition: int,
    metadata_offsets: Sequence[int],
    next_offset: int | None = None,
) -> None:
    """Fold records of one metadata partition, in offset order, into `state`.

    `table` is what wire.metadata.decode_column made of them; `metadata_offsets` are theirs, row by row.
    A row with an error goes to `state.quarantined`, as does one that Kafka would refuse; a tombstone is
    passed over; an event that Kafka drops in silence is an anomaly. `next_offset` (default: after the last
    row) is where reading goes on.
    """
    for offset, row in zip(metadata_offsets, table.to_pylist(), strict=True):
        try:
            _fold_row(row, state, metadata_partition, int(offset))
        except CorruptInputError as e:
            state.quarantined.append(Quarantined(metadata_partition, int(offset), e))
    last = int(metadata_offsets[-1]) + 1 if len(metadata_offsets) else 0
    state.read[metadata_partition] = max(state.read.get(metadata_partition, 0), last, next_offset or 0)


def _fold_row(row: dict[str, Any], state: TierState, metadata_partition: int, offset: int) -> None:
    if row["error"] is not None:
        raise CorruptInputError("metadata record", expected="a metadata record", found=row["error"])
    if row["type"] is None:
        return
    event = event_of(row)
    if not isinstance(
        event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
    ):
        raise IllegalEventError(
            "metadata record", expected="an event of the metadata topic", found=row["type"]
        )
    fold_event(event, state, metadata_partition=metadata_partition, metadata_offset=offset)


def fold_event(event: TopicEvent, state: TierState, *, metadata_partition: int, metadata_offset: int) -> None:
    """Fold one event; raises IllegalEventError for what Kafka refuses."""
    part = _partition(event, state, metadata_partition)
    part.last_event_offset = metadata_offset
    if isinstance(event, RemotePartitionDeleteMetadata):
        taken = _advance(part, event.state, metadata_offset)
    elif isinstance(event, RemoteLogSegmentMetadata):
        taken = part.cache.add(event)
    else:
        taken = part.cache.update(event)
    if not taken:
        state.note(Anomaly(metadata_partition, metadata_offset, part.topic_id_partition, event))


def _partition(event: TopicEvent, state: TierState, metadata_partition: int) -> PartitionState:
    tip = event.topic_id_partition
    part = state.partitions.get(tip.key)
    if part is None:
        part = PartitionState(tip, metadata_partition, RemoteLogMetadataCache(initialized=False))
        state.partitions[tip.key] = part
    return part


def _advance(part: PartitionState, target: RemotePartitionDeleteState, metadata_offset: int) -> bool:
    if not is_valid_partition_transition(part.delete_state, target):
        return False
    if target is _P.DELETE_PARTITION_MARKED and part.delete_marked_offset is None:
        part.delete_marked_offset = metadata_offset
    if target is _P.DELETE_PARTITION_FINISHED:
        part.delete_marked_offset = None
    part.delete_state = target
    return True


def event_of(row: dict[str, Any]) -> MetadataEvent:
    """The model's event of one row of a decoded table."""
    common = {"topic": row["topic"], "topic_id": Uuid(row["topic_id"]), "partition": row["partition"]}
    common |= {"event_timestamp_ms": row["event_timestamp_ms"], "broker_id": row["broker_id"]}
    if row["type"] == RemotePartitionDeleteMetadata.type:
        return RemotePartitionDeleteMetadata(
            **common, epoch=row["epoch"], state=RemotePartitionDeleteState(row["state"])
        )
    common |= {
        "segment_id": Uuid(row["segment_id"]),
        "leader_epoch": row["leader_epoch"],
        "custom_metadata": row["custom_metadata"],
        "state": RemoteLogSegmentState(row["state"]),
    }
    if row["type"] == RemoteLogSegmentMetadataUpdate.type:
        return RemoteLogSegmentMetadataUpdate(**common)
    return RemoteLogSegmentMetadata(
        **common,
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        max_timestamp_ms=row["max_timestamp_ms"],
        segment_leader_epochs=tuple((epoch, start) for epoch, start in row["segment_leader_epochs"]),
        segment_size_in_bytes=row["segment_size_in_bytes"],
        txn_index_empty=bool(row["txn_index_empty"]),
    )


def events_of(table: pa.Table) -> Iterator[MetadataEvent | None]:
    """The model's events of a decoded table, row by row; None for tombstones and rows with an error."""
    for row in table.to_pylist():
        yield None if row["error"] is not None or row["type"] is None else event_of(row)
