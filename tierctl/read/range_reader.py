"""Batches of one piece of a partition's log, with what is wrong on the way reported and passed over."""

from collections.abc import Callable, Iterator

from tierctl.errors import (
    CorruptInputError,
    LimitExceeded,
    NotFoundError,
    RemoteResourceNotFound,
    TierctlError,
)
from tierctl.read.batch_stream import BatchStream, Damage
from tierctl.read.index_lookup import Indexes, Report
from tierctl.read.readable_log import SegmentRange
from tierctl.state.lineage import Lineage
from tierctl.wire.batches.record_batch import Record, RecordBatch

EPOCH_AT = 12
"""Where a batch's leader epoch lies in it; the CRC does not cover it."""

ReportLost = Callable[[TierctlError, int, int], None]
"""Takes an error, and the first and the last offset that it may cost."""


class RangeReader:
    """Reads pieces of one partition; `lineage` says which epochs their batches should have.

    Errors that make offsets unreadable go to `report_lost`, other errors of the data to `report`, and
    reading goes on. Other errors of the store are raised. Segments are read in ranges of `chunk_bytes`.
    """

    def __init__(
        self,
        lineage: Lineage,
        indexes: Indexes,
        report: Report,
        *,
        report_lost: ReportLost | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        self._lineage = lineage
        self._indexes = indexes
        self._report = report
        self._report_lost = report_lost or (
            lambda error, first, last: report(with_lost_offsets(error, first, last))
        )
        self._chunk_bytes = chunk_bytes

    def batches(
        self, piece: SegmentRange, first: int, last: int, *, timestamp_ms: int | None = None
    ) -> Iterator[RecordBatch]:
        """Good batches with offsets in [first, last]; from `timestamp_ms` on, when it is given."""
        segment = piece.segment
        try:
            if timestamp_ms is None:
                position = self._indexes.position_for(segment, first)
            else:
                position = self._indexes.position_for_time(segment, timestamp_ms, first)
            epochs_agree = True
            for batch in BatchStream(segment, position=position, chunk_bytes=self._chunk_bytes):
                if isinstance(batch, Damage):
                    self._report_damage(piece, batch, first, last)
                elif batch.head.base_offset > last:
                    return
                elif batch.head.last_offset >= first:
                    epochs_agree = epochs_agree and self._check_epoch(piece, batch)
                    yield batch
        except RemoteResourceNotFound as e:
            self._report_lost(_missing(piece, first, last, e), first, last)
        except NotFoundError as e:
            self._report_lost(e, first, last)

    def decoded(self, piece: SegmentRange, batch: RecordBatch) -> Iterator[Record]:
        """The batch's records, up to one that can't be decoded."""
        try:
            yield from batch.records()
        except CorruptInputError as e:
            error = e.within(piece.segment.name, base=batch.head.position)
            error.at = batch.head.position if error.at is None else error.at
            self._report_lost(error, batch.head.base_offset, batch.head.last_offset)
        except LimitExceeded as e:
            self._report_lost(e, batch.head.base_offset, batch.head.last_offset)

    def _check_epoch(self, piece: SegmentRange, batch: RecordBatch) -> bool:
        """Whether the batch was written in the epoch that the lineage has there; reports it if not."""
        head = batch.head
        expected = self._lineage.epoch_for_offset(head.base_offset)
        if expected is None or head.partition_leader_epoch == expected:
            return True
        self._report(
            CorruptInputError(
                "leader epoch of a batch",
                expected=f"{expected} at offset {head.base_offset}",
                found=str(head.partition_leader_epoch),
                at=head.position + EPOCH_AT,
                source=piece.segment.name,
            )
        )
        return False

    def _report_damage(self, piece: SegmentRange, damage: Damage, first: int, last: int) -> None:
        lost_last = piece.to_offset if damage.next_offset is None else damage.next_offset - 1
        if damage.first_offset <= last and lost_last >= first:
            self._report_lost(damage.error, max(damage.first_offset, first), min(lost_last, last))


def with_lost_offsets(error: TierctlError, first: int, last: int) -> TierctlError:
    """The same error; of damage, saying which offsets it may cost."""
    if not isinstance(error, CorruptInputError):
        return error
    return type(error)(
        error.what,
        expected=error.expected,
        found=error.found,
        at=error.at,
        source=error.source,
        hint=f"offsets {first} to {last} may be lost there; reading went on after it",
    )


def _missing(
    piece: SegmentRange, first: int, last: int, cause: RemoteResourceNotFound
) -> RemoteResourceNotFound:
    return RemoteResourceNotFound(
        f"{piece.segment.name} is not there: offsets {first} to {last} can't be read ({cause.message})",
        hint="is --remote the right tier? metadata says the segment was copied; reading went on after it",
    )
