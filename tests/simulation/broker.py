"""The model broker's tiering: RLMCopyTask, RLMExpirationTask and local retention, from KIP-405's text."""

from collections.abc import Callable
from dataclasses import dataclass

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicConfig,
    Uuid,
)
from tierctl.storage.layouts.kafka import SUFFIXES, key_stem
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint

from tests.simulation.invariants import Truth, epochs_of
from tests.simulation.log import COPIED_SUFFIXES, ModelLog, ModelSegment
from tests.simulation.store import ModelStore

_S = RemoteLogSegmentState


@dataclass(slots=True)
class ModelBroker:
    """A broker that does one task per call; `publish` appends an event to the metadata topic."""

    truth: Truth
    store: ModelStore
    publish: Callable[[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate], None]
    raise_log_start: Callable[[ModelLog, int], None]
    clock_ms: Callable[[], int]
    new_id: Callable[[], Uuid]
    broker_id: int = 1

    def copy(self, log: ModelLog, *, crash: bool = False) -> None:
        """Copy the first rolled segment above the highest copied offset; `crash` ends after half of it."""
        from_offset = max(self.truth.highest_copied.get(log.partition.key, -1) + 1, log.log_start_offset)
        for segment in log.rolled_committed():
            if segment.next_base_offset is not None and segment.next_base_offset > from_offset:
                self._copy(log, segment, crash=crash)
                return

    def _copy(self, log: ModelLog, segment: ModelSegment, *, crash: bool) -> None:
        end = (segment.next_base_offset or 0) - 1
        partition = log.partition
        started = RemoteLogSegmentMetadata(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=self.new_id(),
            start_offset=segment.base_offset,
            end_offset=end,
            broker_id=self.broker_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            event_timestamp_ms=self.clock_ms(),
            segment_leader_epochs=tuple(epochs_of(log.lineage, segment.base_offset, end)),
            segment_size_in_bytes=segment.size_bytes,
            txn_index_empty=True,
        )
        self.publish(started)
        stem = key_stem(started)
        for suffix in COPIED_SUFFIXES:
            self.store.put(stem + suffix, segment.files[suffix])
        if crash:
            return
        entries = [entry for entry in log.epochs if entry.start_offset <= end]
        self.store.put(f"{stem}.leader_epoch_checkpoint", write_leader_epoch_checkpoint(entries))
        self._update(started, _S.COPY_SEGMENT_FINISHED)

    def _update(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        self.publish(
            RemoteLogSegmentMetadataUpdate.of(
                segment, state, broker_id=self.broker_id, event_timestamp_ms=self.clock_ms()
            )
        )

    def expire(self, log: ModelLog, config: TopicConfig, *, crash: bool = False) -> None:
        """Delete the segments that breach a limit, oldest first; `crash` ends after the event.

        Unfinished copies are deleted with them if they lie below the log start and have no later epoch.
        """
        known = self.truth.segments_of(log.partition.key)
        doomed = [k.metadata for k in known if k.state is _S.DELETE_SEGMENT_STARTED and k.was_finished]
        start = log.log_start_offset
        for segment in sorted(self.truth.finished(log.partition.key), key=lambda s: s.start_offset):
            old = 0 < segment.max_timestamp_ms < self.clock_ms() - config.retention_ms
            by_time = config.retention_ms >= 0 and old
            by_size = 0 <= config.retention_bytes <= log.bytes_from(segment.end_offset + 1)
            if not (segment.end_offset < log.log_start_offset or by_time or by_size):
                break
            start = max(start, segment.end_offset + 1)
            doomed.append(segment)
        self.raise_log_start(log, start)
        begun = [k.metadata for k in known if k.state is _S.COPY_SEGMENT_STARTED]
        doomed += [
            s for s in begun if s.end_offset < start and s.segment_leader_epochs[-1][0] <= log.epochs[0].epoch
        ]
        for segment in doomed:
            self._update(segment, _S.DELETE_SEGMENT_STARTED)
            if crash:
                return
            self.store.remove(key_stem(segment) + suffix for suffix in SUFFIXES)
            self._update(segment, _S.DELETE_SEGMENT_FINISHED)

    def drop_local(self, log: ModelLog) -> None:
        """Remove the local segments that are in the tier (local.retention.bytes=1)."""
        log.drop_local_below(self.truth.highest_copied.get(log.partition.key, -1) + 1)
