"""What a side effect may touch and what it answers, in whichever process it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.apply.stop import Stop
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.storage.base import RemoteStorageManager


def _unwatched(size_bytes: int) -> None:
    """Nobody watches."""


class Ends:
    """Where partitions' copying ended; nothing behind that may be copied, nothing before it is in doubt."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[Uuid, int], int] = {}

    def end(self, key: tuple[Uuid, int], start_offset: int) -> None:
        """From this segment on nothing of the partition may be copied."""
        self._offsets[key] = min(start_offset, self._offsets.get(key, start_offset))

    def before(self, key: tuple[Uuid, int], start_offset: int) -> int | None:
        """Where copying ended before this segment; None when it did not."""
        ended_at = self._offsets.get(key)
        return ended_at if ended_at is not None and start_offset > ended_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTier:
    """The tier that is copied from, and the folder where its segments are spooled."""

    remote: RemoteStorageManager
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything the side effects of one process work with.

    `advance` is called with a segment's size when its objects have been stored or deleted, from whichever
    thread did it. `ends` are what this process knows; whoever publishes decides by the answers.
    """

    remote: RemoteStorageManager
    from_tier: FromTier | None = None
    stop: Stop = field(default_factory=Stop)
    advance: Callable[[int], None] = _unwatched
    ends: Ends = field(default_factory=Ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one piece of work.

    Neither `begun` nor `stopped`: an earlier segment of its partition failed. `error` is StoreWriteUnknown
    when nobody can tell. `custom_metadata` is KIP-917's, of a copy.
    """

    begun: bool = False
    stopped: bool = False
    error: TierctlError | None = None
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One segment that something is to be done with; small, and picklable."""

    metadata: RemoteLogSegmentMetadata
