"""Side effects: their labels, and the input, the context and the result of one, also in another process.

With the labels a test can kill the process around each side effect. In production the observer does nothing.
No code may depend on which observer is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from tierctl.apply.outcome import Stop
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.batches.batch_head import BatchHead

if TYPE_CHECKING:
    from tierctl.read.tasks import KeyRecord

Change = tuple[BatchHead, bytes]
"""A transactional batch: its head, at position 0, and for a marker the bytes of the batch, else none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """Name the files of one segment in `folder`, which is below the staging folder.

    `next_offset` is the offset after the last batch. `changes` are those of the log's transactions. `emptied`
    are the records that were written without key, value and headers.
    """

    folder: str
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    changes: tuple[Change, ...]
    emptied: tuple[KeyRecord, ...] = ()

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of the files."""
        return (log_name(self.base_offset), *index_names(self.base_offset))


def log_name(base_offset: int) -> str:
    """Return the name of the segment's log."""
    return f"{base_offset:020d}.log"


def index_names(base_offset: int) -> tuple[str, str]:
    """Return the names of the offset index and the time index."""
    return f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"


def no_op(_amount: int) -> None:
    """Ignore the amount; used if the caller displays no progress."""


class StoppedCopies:
    """For each partition, the start offset of the segment at which copying stopped.

    No later segment of that partition may be copied: brokers would never fill the gap.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[Uuid, int], int] = {}

    def stop(self, key: tuple[Uuid, int], start_offset: int) -> None:
        """Stop the copying of partition `key` at the segment that begins at `start_offset`."""
        self._offsets[key] = min(start_offset, self._offsets.get(key, start_offset))

    def stopped_before(self, key: tuple[Uuid, int], start_offset: int) -> int | None:
        """Return the offset at which copying of `key` stopped, or None if it is not below `start_offset`."""
        stopped_at = self._offsets.get(key)
        return stopped_at if stopped_at is not None and start_offset > stopped_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTier:
    """The tier that segments are copied from, and the local folder that they are fetched to."""

    remote: RemoteStorageManager
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectContext:
    """The stores and callbacks that the side effects of one process use.

    A side effect calls `advance` with a segment's size in bytes once the segment's objects are stored, and
    `deleted` with the number of segments whose objects are deleted; the calling thread is the one that runs
    the side effect. `stopped_copies` has only the failures of this process; the publisher decides from the
    results.
    """

    remote: RemoteStorageManager
    source_tier: SourceTier | None = None
    stop: Stop = field(default_factory=Stop)
    advance: Callable[[int], None] = no_op
    deleted: Callable[[int], None] = no_op
    stopped_copies: StoppedCopies = field(default_factory=StoppedCopies)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectResult:
    """The result of one side effect.

    `begun` is True once the store may have been changed. `stopped` is True if the run was told to stop before
    that. If both are False, an earlier segment of the partition failed. `error` is StoreWriteUnknown if the
    outcome is unknown. `errors` has one entry per segment of a deletion: the error of this segment, or None.
    `custom_metadata` belongs to the copied segment (KIP-917); `written` are the files of a segment of a local
    log.
    """

    begun: bool = False
    stopped: bool = False
    error: TierctlError | None = None
    errors: Sequence[TierctlError | None] = ()
    custom_metadata: bytes | None = None
    written: WrittenSegment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectInput:
    """The segment that one side effect works on; small and picklable."""

    metadata: RemoteLogSegmentMetadata

    @property
    def topics(self) -> set[str]:
        """Return the topic of the segment."""
        return {self.metadata.topic}


Label = Literal[
    "tier.identity.write",
    "copy.started.publish",
    "copy.segment.store",
    "copy.finished.publish",
    "copy.cleanup_started.publish",
    "copy.cleanup.delete",
    "copy.cleanup_finished.publish",
    "sweep.log_start.write",
    "sweep.started.publish",
    "sweep.segment.delete",
    "sweep.finished.publish",
    "delete.marked.publish",
    "delete.partition_started.publish",
    "delete.segment_started.publish",
    "delete.segment.delete",
    "delete.segment_finished.publish",
    "delete.partition_finished.publish",
    "rebuild.epochs.write",
    "rebuild.log_starts.write",
    "rebuild.segments.publish",
    "repair.orphans.publish",
    "repair.indexes.store",
    "repair.offsets.write",
    "materialise.staging.create",
    "materialise.segment.write",
    "materialise.left_out.write",
    "materialise.checkpoints.write",
    "materialise.old_folder.rename",
    "materialise.partition.rename",
    "materialise.staging.delete",
    "restore.objects.copy",
    "restore.staging.create",
    "restore.old_folder.rename",
    "restore.partition.rename",
    "restore.staging.delete",
    "restore.checkpoints.write",
    "restore.segments.publish",
    "restore.bootstrap.write",
]

LABELS: tuple[Label, ...] = get_args(Label)
"""All labels, in the order in which a run reaches them."""

Moment = Literal["before", "after"]
Observer = Callable[[Label, Moment], None]


def _no_op(label: Label, moment: Moment) -> None:
    """Do nothing; this is the observer outside of tests."""


_observer: Observer = _no_op


def observe(observer: Observer | None) -> None:
    """Call `observer` before and after each side effect, in the thread that runs it; None removes it."""
    global _observer  # noqa: PLW0603
    _observer = observer or _no_op


@contextmanager
def effect(label: Label) -> Iterator[None]:
    """Mark the block as the side effect `label`; the observer gets "after" only if the block succeeds."""
    _observer(label, "before")
    yield
    _observer(label, "after")
