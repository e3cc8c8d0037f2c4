"""Read the record batches of one segment in ranges: memory is bounded by a window, not by the segment."""

from collections.abc import Iterator
from dataclasses import dataclass

from tierctl.errors import CorruptInputError
from tierctl.read.segment_bytes import SegmentSource
from tierctl.wire.batches.batch_heads import (
    HEAD,
    HEAD_SIZE,
    MAGIC,
    BadRange,
    BatchHead,
    ScanItem,
    TornTail,
    scan_at,
)
from tierctl.wire.batches.record_batch import RecordBatch

CHUNK_BYTES = 1 << 20
SEARCH_BYTES_MAX = 1 << 24
"""If a window of this size contains no valid batch, its first half is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes [position, end) of a segment that contain no readable batch.

    `first_offset` is the first offset that may be lost, `next_offset` the base offset of the next readable
    batch (None: this segment has none). `error` names segment and byte.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int | None
    error: CorruptInputError


class BatchStream:
    """Iterates over the batches of a segment from `position` on, in offset order, after checking their CRCs.

    Batch heads contain positions in the segment. `expected_offset` (default: the segment's base offset) is
    the lowest offset that the first batch may have. Each read requests `chunk_bytes`. Damaged bytes yield a
    `Damage`, after which reading goes on; so does a log that ends before the segment's size, except for an
    incomplete last batch of an active segment. Raise RemoteStorageError or NotFoundError if the bytes can't
    be read at all.
    """

    def __init__(
        self,
        source: SegmentSource,
        *,
        position: int = 0,
        expected_offset: int | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        self._source = source
        self._chunk_bytes = CHUNK_BYTES if chunk_bytes is None else chunk_bytes
        self._expected = source.start_offset if expected_offset is None else expected_offset
        # The window `_data` begins at position `_base` of the segment; the next batch begins at `_data[_at]`.
        self._base = position
        self._data = b""
        self._at = 0
        self._ended = False

    @property
    def _position(self) -> int:
        return self._base + self._at

    @property
    def _left(self) -> int:
        return len(self._data) - self._at

    def __iter__(self) -> Iterator[RecordBatch | Damage]:
        while self._fill():
            piece = self._judge()
            if isinstance(piece, BatchHead):
                yield self._take(piece)
            elif isinstance(piece, TornTail) and self._ended and self._source.end_offset is None:
                return
            else:
                yield self._skip(piece)
        if self._position < self._source.size_bytes:
            yield self._damage(self._position, self._expected, self._cut_short())

    def _fill(self) -> bool:
        """Read the whole next batch and the head after it into the window; return False at the end."""
        self._have(HEAD_SIZE)
        if self._left >= HEAD_SIZE:
            head = self._head()
            # A damaged length must not cause the rest of the segment to be read into memory.
            if 0 <= head.magic <= MAGIC and head.base_offset >= self._expected and self._ends_well(head):
                self._have(head.size_bytes + HEAD_SIZE)
                if head.base_offset > self._expected:
                    self._have_follower(head)
        return self._left > 0

    def _have_follower(self, head: BatchHead) -> None:
        """Read the whole batch after `head`: after a gap in offsets, it proves the offset of `head`."""
        if self._left >= head.size_bytes + HEAD_SIZE:
            follower = BatchHead(0, *HEAD.unpack_from(self._data, self._at + head.size_bytes))
            if 0 < follower.size_bytes <= SEARCH_BYTES_MAX:
                self._have(head.size_bytes + follower.size_bytes)

    def _head(self) -> BatchHead:
        return BatchHead(self._at, *HEAD.unpack_from(self._data, self._at))

    def _ends_well(self, head: BatchHead) -> bool:
        if head.size_bytes <= SEARCH_BYTES_MAX:
            return True
        end = self._position + head.size_bytes
        if end >= self._source.size_bytes:
            return end == self._source.size_bytes
        raw = self._source.read(end, HEAD_SIZE)
        if len(raw) < HEAD_SIZE:
            return False
        after = BatchHead(0, *HEAD.unpack(raw))
        last = self._source.end_offset
        # The head of a message has no other offset than its last one.
        following = head.next_offset if head.magic == MAGIC else head.base_offset + 1
        in_range = following <= after.base_offset and (last is None or after.base_offset <= last)
        return 0 <= after.magic <= MAGIC and in_range

    def _have(self, length: int) -> None:
        if self._left >= length or self._ended:
            return
        self._base, self._data, self._at = self._position, self._data[self._at :], 0
        while len(self._data) < length and not self._ended:
            at = self._base + len(self._data)
            wanted = min(max(length - len(self._data), self._chunk_bytes), self._source.size_bytes - at)
            more = self._source.read(at, wanted)
            self._data += more
            self._ended = len(more) < wanted or at + len(more) >= self._source.size_bytes

    def _judge(self) -> ScanItem:
        """Classify the next bytes in the window; a batch above the segment's last offset is damage, too."""
        piece = scan_at(self._data, self._at, self._expected)
        last = self._source.end_offset
        if isinstance(piece, BatchHead) and last is not None and piece.last_offset > last:
            return BadRange(
                position=self._at,
                end=piece.end,
                first_offset=self._expected,
                next_offset=self._expected,
                error=CorruptInputError(
                    "record batch",
                    expected=f"offsets up to {last}",
                    found=f"{piece.base_offset} to {piece.last_offset}",
                    at=self._at,
                ),
            )
        return piece

    def _take(self, head: BatchHead) -> RecordBatch:
        batch = RecordBatch(
            head._replace(position=self._position), self._data[head.payload_position : head.end]
        )
        self._expected = head.next_offset
        self._at = head.end
        return batch

    def _skip(self, piece: ScanItem) -> Damage:
        """Advance to the next valid batch or to the end; return the damage in between."""
        start, first_offset, error = self._position, self._expected, self._error_of(piece)
        while not isinstance(piece, BatchHead):
            if isinstance(piece, BadRange) and piece.next_offset is not None:
                self._at = piece.end
                break
            if self._ended:
                self._at = len(self._data)
                break
            if self._left >= SEARCH_BYTES_MAX:
                self._at += self._left // 2
            self._have(self._left + max(self._left, self._chunk_bytes))
            piece = self._judge()
        return self._damage(start, first_offset, error)

    def _damage(self, start: int, first_offset: int, error: CorruptInputError) -> Damage:
        """Return the damage from `start` to the present position, or to the segment's size at the end."""
        self._have(HEAD_SIZE)
        if not self._left and self._position < self._source.size_bytes:
            self._base, self._data, self._at = self._source.size_bytes, b"", 0
        return Damage(
            position=start,
            end=self._position,
            first_offset=first_offset,
            next_offset=self._following_offset(),
            error=error,
        )

    def _following_offset(self) -> int | None:
        """Return the first offset of the batch or message at the present position; None at the end."""
        self._fill()
        piece = scan_at(self._data, self._at, None) if self._left else None
        if isinstance(piece, BatchHead):
            return piece.base_offset
        return self._head().base_offset if self._left >= HEAD_SIZE else None

    def _error_of(self, piece: ScanItem) -> CorruptInputError:
        if isinstance(piece, BadRange):
            return piece.error.within(self._source.name, base=self._base)
        return CorruptInputError(
            "record batch",
            expected="a whole batch",
            found=f"the first {self._left} bytes of one",
            at=self._position,
            source=self._source.name,
        )

    def _cut_short(self) -> CorruptInputError:
        return CorruptInputError(
            "segment",
            expected=f"{self._source.size_bytes} bytes",
            found=f"{self._position}",
            at=self._position,
            source=self._source.name,
        )
