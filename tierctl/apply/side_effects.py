"""The input, the context and the result of one side effect, which may run in another process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.apply.stop import Stop
from tierctl.apply.written_segment import WrittenSegment
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.storage.base import RemoteStorageManager


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
