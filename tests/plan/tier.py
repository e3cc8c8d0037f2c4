"""States of the tier for tests: folded from captured metadata logs, or built by hand."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tierctl.model import (
    EpochEntry,
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.decisions import Decision, DecisionColumns
from tierctl.plan.steps import Plan
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import PartitionState, TierState

S = RemoteLogSegmentState
TOPIC_ID = Uuid.from_bytes(bytes(15) + b"\x01")
OTHER_ID = Uuid.from_bytes(bytes(15) + b"\x02")
PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)
NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


def segment_id(number: int) -> Uuid:
    """Return a segment id that contains its number."""
    return Uuid.from_bytes(number.to_bytes(16))


def segment(
    number: int,
    start: int,
    end: int,
    *epochs: tuple[int, int],
    size: int = 100,
    max_timestamp_ms: int = NOW_MS,
    event_timestamp_ms: int = NOW_MS - DAY_MS,
    partition: TopicIdPartition = PARTITION,
) -> RemoteLogSegmentMetadata:
    """Return a segment before its copy; its epochs are (epoch, start offset), by default epoch 0."""
    return RemoteLogSegmentMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=segment_id(number),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        segment_leader_epochs=epochs or ((0, start),),
        segment_size_in_bytes=size,
    )


def advance(state: TierState, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState) -> None:
    """Fold `metadata` (if it is new) and then updates to `states`."""
    part = state.partition(metadata.topic_id_partition)
    if part is None or part.cache.get(metadata.segment_id) is None:
        fold_event(metadata, state, metadata_partition=0, metadata_offset=_next(state))
    for target in states:
        update = RemoteLogSegmentMetadataUpdate.of(
            metadata, target, broker_id=1, event_timestamp_ms=metadata.event_timestamp_ms
        )
        fold_event(update, state, metadata_partition=0, metadata_offset=_next(state))


def _next(state: TierState) -> int:
    state.read[0] = state.read.get(0, 0) + 1
    return state.read[0] - 1


def tier(*segments: RemoteLogSegmentMetadata) -> TierState:
    """Return a tier in which these segments were copied, in this order."""
    state = TierState(read={0: 0})
    for metadata in segments:
        advance(state, metadata, S.COPY_SEGMENT_FINISHED)
    return state


def local_log(
    bases: Sequence[int],
    log_end_offset: int,
    *,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    log_start_offset: int = 0,
    last_stable_offset: int | None = None,
    high_watermark: int | None = None,
    sizes: Sequence[int] | None = None,
    no_snapshot_at: int | None = None,
    partition: TopicIdPartition = PARTITION,
    directory: str = "/logs/b1",
) -> LocalLog:
    """Return a replica's log with segments at `bases`, 100 bytes each, the last one active."""
    folder = Path(directory) / f"{partition.topic}-{partition.partition}"
    segments = []
    for at, base in enumerate(bases):
        next_base = bases[at + 1] if at + 1 < len(bases) else None
        has_snapshot = next_base is not None and next_base != no_snapshot_at
        segments.append(
            LocalSegment(
                base_offset=base,
                next_base_offset=next_base,
                size_bytes=100 if sizes is None else sizes[at],
                max_timestamp_ms=NOW_MS,
                log=folder / f"{base:020d}.log",
                offset_index=folder / f"{base:020d}.index",
                time_index=folder / f"{base:020d}.timeindex",
                transaction_index=None,
                producer_snapshot=folder / f"{next_base:020d}.snapshot" if has_snapshot else None,
            )
        )
    end = log_end_offset if high_watermark is None else high_watermark
    return LocalLog(
        topic_id_partition=partition,
        directory=folder,
        segments=tuple(segments),
        leader_epochs=tuple(EpochEntry(*entry) for entry in epochs),
        log_start_offset=log_start_offset,
        high_watermark=end,
        last_stable_offset=end if last_stable_offset is None else last_stable_offset,
        log_end_offset=log_end_offset,
    )


def columns_of(part: PartitionState, decisions: Iterable[Decision]) -> DecisionColumns:
    """Return the decisions about the segments of a partition as columns."""
    return DecisionColumns.none(part.segment_count).with_decisions(part.segments, decisions)


def reasons(plan: Plan) -> str:
    """Return the reasons of what the plan skips, a line each."""
    return "\n".join(skip.reason for skip in plan.skipped)


def through_json(plan: Plan) -> Plan:
    """Return the plan as another process reads it."""
    return Plan.from_json(json.loads(json.dumps(plan.to_json())))
