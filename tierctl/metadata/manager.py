"""The RemoteLogMetadataManager over any metadata topic, like Kafka's TopicBasedRemoteLogMetadataManager."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tierctl.errors import AuthenticationError, MetadataError, RemoteResourceNotFound
from tierctl.kernel import expect, is_compiled
from tierctl.metadata.daily_changes import deleted_segments
from tierctl.metadata.parallel_fold import (
    FoldRunner,
    Kept,
    ParallelFold,
    PartitionFold,
    PartitionRange,
    ThreadsFold,
    partition_ranges,
)
from tierctl.metadata.state_dir import StateDirectory
from tierctl.metadata.topic import IfMissing, open_topic
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import (
    ClusterIdentity,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Uuid,
    is_valid_transition,
)
from tierctl.model.events import is_valid_partition_transition
from tierctl.model.location import TopicLocation
from tierctl.model.progress import Advance, Reading, unwatched
from tierctl.model.progress import no_op as no_progress
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.values import encode, metadata_partition


def no_op() -> None:
    """Allow the append: used if no check is needed."""


def no_note(_text: str) -> None:
    """Drop a message."""


class RemoteLogMetadataManager(Protocol):
    """Strongly consistent metadata of remote segments; `open_metadata` returns one.

    Every method raises what the metadata topic raises.
    """

    @property
    def state(self) -> TierState:
        """Return the state after the last `refresh` or `publish`; `state.read` has the offsets read."""
        ...

    def refresh(self) -> TierState:
        """Read every metadata partition up to the end offsets at the time of the call."""
        ...

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Publish events in order with one acknowledgement for all; return once they are read into `state`.

        The partitions of the events are read to their ends first; `before_append` is called after that, as
        the last step before the append, which an error that it raises prevents. Without events, only replicas
        that the topic has in other log directories are completed.
        Raises MetadataError if a transition is not allowed and RemoteResourceNotFound for an update of an
        unknown segment; then none of the events is published.
        """
        ...

    def identity(self) -> ClusterIdentity:
        """Return the ids of the metadata topic and of its cluster, as far as they are known."""
        ...

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments that were deleted up to now, in their last state; all events are read."""
        ...

    def close(self) -> None:
        """Write the state directory and release the topic."""
        ...


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


class Transitions:
    """Check events in order; each check takes the events checked before into account."""

    def __init__(self, state: TierState) -> None:
        self._state = state
        self._segments: dict[tuple[Uuid, int, Uuid], RemoteLogSegmentState] = {}
        self._deletes: dict[tuple[Uuid, int], RemotePartitionDeleteState] = {}

    def check(self, event: MetadataEvent) -> None:
        """Raise MetadataError for a forbidden transition, RemoteResourceNotFound for an unknown segment."""
        match event:
            case RemoteLogSegmentMetadata():
                self._check_add(event)
            case RemoteLogSegmentMetadataUpdate():
                self._check_update(event)
            case RemotePartitionDeleteMetadata():
                self._check_delete(event)
            case _:
                raise MetadataError("a snapshot record is no event of the metadata topic")

    def _check_add(self, event: RemoteLogSegmentMetadata) -> None:
        current = self._segment_state(event)
        if event.state is not _STARTED or not is_valid_transition(current, event.state):
            raise _not_allowed(f"segment {event.segment_id}", current, event.state)
        self._segments[*event.topic_id_partition.key, event.segment_id] = event.state

    def _check_update(self, event: RemoteLogSegmentMetadataUpdate) -> None:
        current = self._segment_state(event)
        if current is None:
            raise RemoteResourceNotFound(
                f"no metadata of remote segment {event.segment_id} of {event.topic_id_partition}"
            )
        if event.state is _STARTED or not is_valid_transition(current, event.state):
            raise _not_allowed(f"segment {event.segment_id}", current, event.state)
        self._segments[*event.topic_id_partition.key, event.segment_id] = event.state

    def _check_delete(self, event: RemotePartitionDeleteMetadata) -> None:
        key = event.topic_id_partition.key
        known = self._known(event)
        current = self._deletes.get(key, None if known is None else known.delete_state)
        if not is_valid_partition_transition(current, event.state):
            raise _not_allowed(f"partition {event.topic_id_partition}", current, event.state)
        self._deletes[key] = event.state

    def _segment_state(
        self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
    ) -> RemoteLogSegmentState | None:
        key = (*event.topic_id_partition.key, event.segment_id)
        if key in self._segments:
            return self._segments[key]
        known = self._known(event)
        segment = None if known is None else known.get(event.segment_id)
        return None if segment is None else segment.state

    def _known(
        self,
        event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata,
    ) -> PartitionState | None:
        return self._state.partition(event.topic_id_partition)


def _not_allowed(
    what: str,
    current: RemoteLogSegmentState | RemotePartitionDeleteState | None,
    target: RemoteLogSegmentState | RemotePartitionDeleteState,
) -> MetadataError:
    return MetadataError(
        f"{what} can't change from {current or 'no state'} to {target}",
        hint="plan again from the present state",
    )


class TopicBasedRemoteLogMetadataManager:
    """Implement RemoteLogMetadataManager over `topic`; with `state_dir` continue from an earlier run's files.

    Records that cannot be used go to `state.quarantined`, events that the topic's retention deleted to
    `state.missing`. `fold_runner` folds the topic in the first `refresh` and returns what is `kept` of the
    segments. Unless that is all of them, `publish` may not be called; with Kept.SIZES there may be no other
    `refresh`, and with Kept.FACTS each one that finds new events makes another state. `reading` shows the
    progress of each `refresh` that folds the topic here. Only one thread may call `publish`.
    """

    def __init__(
        self,
        topic: MetadataTopic,
        *,
        state_dir: StateDirectory | None = None,
        fold_runner: FoldRunner | None = None,
        kept: Kept = Kept.SEGMENTS,
        reading: Reading = unwatched,
        on_note: Callable[[str], None] = no_note,
    ) -> None:
        self._topic = topic
        self._on_note = on_note
        self._is_folding = False
        """Whether a fold has begun and is not stored: an error or a signal may have interrupted it."""
        self._state_dir = state_dir
        self._fold_runner = fold_runner
        self._kept = kept
        self._ranges: Sequence[PartitionRange] = ()
        self._reading = reading
        self._state = TierState()
        self._fold = PartitionFold(self._state, topic.partition_count, holds=state_dir is not None)
        if state_dir is not None:
            state_dir.load(self._state, topic)

    @property
    def state(self) -> TierState:
        """Implement `RemoteLogMetadataManager.state`."""
        return self._state

    def refresh(self) -> TierState:
        """Implement `RemoteLogMetadataManager.refresh`; write the events read to the state directory."""
        ranges = partition_ranges(self._topic.beginning_offsets(), self._topic.end_offsets())
        if self._fold_runner is not None and self._kept is Kept.FACTS:
            return self._folded_again(self._fold_runner, ranges)
        self._is_folding = True
        if self._fold_runner is not None and not self._knows_most(ranges):
            runner, self._fold_runner = self._fold_runner, None
            self._fold_by(runner, ranges)
        else:
            unread = sum(each.unread(self._state) for each in ranges)
            expect(unread)
            with self._reading(unread) as advance:
                if is_compiled() and self._topic.reads_side_by_side and not self._state.tables:
                    self._fold_by(ThreadsFold(self._topic, os.cpu_count() or 1, advance), ranges)
                else:
                    self._catch_up(ranges, advance)
        if self._state_dir is not None:
            self._state_dir.commit(self._state)
        self._is_folding = False
        return self._state

    def _folded_again(self, runner: FoldRunner, ranges: Sequence[PartitionRange]) -> TierState:
        """Return the facts about all segments; fold the whole topic for them if it has changed.

        A former state stays as it is, with the segments that it has elsewhere.
        """
        if self._ranges != ranges:
            self._state = TierState()
            self._fold_by(runner, ranges)
            self._ranges = ranges
        return self._state

    def _fold_by(self, runner: FoldRunner, ranges: Iterable[PartitionRange]) -> None:
        ParallelFold(
            topic=self._topic,
            state=self._state,
            runner=runner,
            holds=self._state_dir is not None,
            kept=self._kept,
        ).catch_up(ranges)

    def _knows_most(self, ranges: Iterable[PartitionRange]) -> bool:
        """Return whether sending the known state to executors takes longer than reading the new events."""
        known = sum(part.segment_count for part in self._state.partitions.values())
        return sum(each.unread(self._state) for each in ranges) < known

    def _catch_up(self, ranges: Iterable[PartitionRange], advance: Advance = no_progress) -> None:
        for each in ranges:
            self._fold.catch_up(self._topic, each.metadata_partition, each.begin, each.end, advance)

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Implement `RemoteLogMetadataManager.publish`; check all transitions before sending any event."""
        records = [(self._partition_of(event), encode(event)) for event in events]
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        written = {partition for partition, _ in records}
        self._is_folding = True
        ranges = partition_ranges(begins, ends)
        self._catch_up(each for each in ranges if each.metadata_partition in written)
        transitions = Transitions(self._state)
        for event in events:
            transitions.check(event)
        if records:
            before_append()
        offsets = self._topic.append(records)
        # The published events are read back into the state: they must be those that were sent.
        sent = {
            (partition, offset): value for (partition, value), offset in zip(records, offsets, strict=True)
        }
        ends = {partition: offset + 1 for partition, offset in sorted(sent)}
        for partition, end_offset in ends.items():
            for chunk in self._topic.read(partition, self._state.read[partition], end_offset):
                for offset, value in _records_of(chunk):
                    if sent.get((partition, offset)) == value:
                        del sent[partition, offset]
                self._fold.fold(chunk)
        if sent:
            raise MetadataError(
                f"published events were not read back from {sorted(sent)} (metadata partition, offset)",
                hint="another program may write to this metadata topic; the run stops here",
            )
        self._is_folding = False

    def _partition_of(self, event: MetadataEvent) -> int:
        if isinstance(event, RemoteLogSegmentMetadataSnapshot):
            raise MetadataError("a snapshot record is no event of the metadata topic")
        return metadata_partition(event.topic_id, event.partition, self._topic.partition_count)

    def identity(self) -> ClusterIdentity:
        """Implement `RemoteLogMetadataManager.identity`."""
        return self._topic.identity()

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Implement `RemoteLogMetadataManager.deleted_segments`."""
        return deleted_segments(self._topic)

    def has_lost_events(self) -> bool:
        """Return whether the topic no longer has its oldest events; none are read for that."""
        return any(begin > 0 for begin in self._topic.beginning_offsets().values())

    def close(self) -> None:
        """Implement `RemoteLogMetadataManager.close`; write the published events to the state directory.

        If that fails, the next run reads them again, and `on_note` receives a message: what this run did is
        still to be reported.
        """
        try:
            if self._state_dir is not None and not self._is_folding:
                self._state_dir.commit(self._state)
        except (MetadataError, AuthenticationError) as e:
            self._on_note(f"{e.message}; the next run reads the events again")
        finally:
            if self._state_dir is not None:
                self._state_dir.close()
            self._topic.close()


def _records_of(chunk: RecordChunk) -> Iterable[tuple[int, bytes | None]]:
    values: pa.Array = chunk.values
    return zip(chunk.offsets.tolist(), values.to_pylist(), strict=True)


def open_metadata(
    location: TopicLocation,
    *,
    state_dir: Path | None = None,
    writable: bool = False,
    if_missing: IfMissing = IfMissing.FAIL,
    on_torn: Callable[[str], None] | None = None,
    on_note: Callable[[str], None] = no_note,
    fold_runner: FoldRunner | None = None,
    kept: Kept = Kept.SEGMENTS,
    reading: Reading = unwatched,
    folder: FolderSettings | None = None,
) -> TopicBasedRemoteLogMetadataManager:
    """Open the manager over the metadata topic at `location`; `refresh` reads the topic.

    With `state_dir` the manager continues from the snapshots of an earlier run; `on_note` receives a message
    for each one that is damaged and whose metadata partition is read again, and if the state of this run
    can't be stored at its end. If another run has locked the directory, one that only reads stores no state.
    `fold_runner` and `kept` are those of TopicBasedRemoteLogMetadataManager. `reading` shows the progress of
    each `refresh`. The other parameters and the errors are those of `open_topic`.
    """
    with ExitStack() as opened:
        topic = open_topic(
            location,
            writable=writable,
            complete=True,
            if_missing=if_missing,
            on_torn=on_torn,
            folder=folder,
        )
        opened.callback(topic.close)
        stored = None
        if state_dir is not None:
            stored = StateDirectory(state_dir, writable=writable)
            opened.callback(stored.close)
        manager = TopicBasedRemoteLogMetadataManager(
            topic,
            state_dir=stored,
            fold_runner=fold_runner,
            kept=kept,
            reading=reading,
            on_note=on_note,
        )
        for note in () if stored is None else stored.notes:
            on_note(note)
        opened.pop_all()
    return manager
