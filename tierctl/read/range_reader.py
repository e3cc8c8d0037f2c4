"""Read the batches of a segment range; damage is reported, and reading goes on after it."""

from collections.abc import Callable, Iterator

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    NotFoundError,
    ObjectArchived,
    RemoteResourceNotFound,
    SafetyRefusal,
    TierctlError,
    UnsupportedFormatError,
)
from tierctl.read.batch_stream import BatchStream, Damage
from tierctl.read.index_lookup import Indexes, Report
from tierctl.read.readable_log import SegmentRange
from tierctl.state.lineage import Lineage
from tierctl.wire.batches.batch_heads import LEADER_EPOCH_AT
from tierctl.wire.batches.record_batch import Record, RecordBatch
from tierctl.wire.limits import at_most, limits

ReportLost = Callable[[TierctlError, int, int], None]
"""Receives an error, and the first and last offset that are unreadable because of it."""


class RangeReader:
    """Reads segment ranges of one partition; `lineage` has the epochs that their batches should have.

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
        self, segment_range: SegmentRange, first: int, last: int, *, timestamp_ms: int | None = None
    ) -> Iterator[RecordBatch]:
        """Yield readable batches with offsets in [first, last]; with `timestamp_ms`, from that time on."""
        segment, done = segment_range.segment, first - 1
        try:
            if timestamp_ms is None:
                position = self._indexes.position_for(segment, first)
            else:
                position = self._indexes.position_for_time(segment, timestamp_ms, first)
            epochs_agree = True
            for batch in BatchStream(segment, position=position, chunk_bytes=self._chunk_bytes):
                if isinstance(batch, Damage):
                    self._report_damage(segment_range, batch, first, last)
                    done = first - 1 if batch.next_offset is None else batch.next_offset - 1
                elif batch.head.base_offset > last:
                    return
                elif batch.head.last_offset >= first:
                    epochs_agree = epochs_agree and self._check_epoch(segment_range, batch)
                    yield batch
                    done = batch.head.last_offset
        except (CorruptInputError, SafetyRefusal, AuthenticationError, ObjectArchived) as e:
            # Of the objects, not of the log's batches: a manifest or a chunk, or a name in the metadata.
            self._report_lost(e, max(done + 1, first), last)
        except RemoteResourceNotFound as e:
            self._report_lost(_missing(segment_range, first, last, e), first, last)
        except NotFoundError as e:
            self._report_lost(e, first, last)

    def decoded(self, segment_range: SegmentRange, batch: RecordBatch) -> Iterator[Record]:
        """Yield the batch's records up to one that can't be decoded."""
        try:
            yield from batch.records()
        except CorruptInputError as e:
            error = e.within(segment_range.segment.name, base=batch.head.position)
            error.at = batch.head.position if error.at is None else error.at
            self._report_lost(error, batch.head.base_offset, batch.head.last_offset)
        except LimitExceeded as e:
            large = CorruptInputError(
                "record batch",
                expected=at_most(limits().batch_bytes, "bytes of records"),
                found=e.message,
                at=batch.head.position,
                source=segment_range.segment.name,
            )
            self._report_lost(large, batch.head.base_offset, batch.head.last_offset)

    def _check_epoch(self, segment_range: SegmentRange, batch: RecordBatch) -> bool:
        """Return whether the batch has the lineage's epoch for its offset; report a different epoch."""
        head = batch.head
        expected = self._lineage.epoch_for_offset(head.base_offset)
        if expected is None or not head.has_leader_epoch or head.partition_leader_epoch == expected:
            return True
        self._report(
            CorruptInputError(
                "leader epoch of a batch",
                expected=f"{expected} at offset {head.base_offset}",
                found=str(head.partition_leader_epoch),
                at=head.position + LEADER_EPOCH_AT,
                source=segment_range.segment.name,
            )
        )
        return False

    def _report_damage(self, segment_range: SegmentRange, damage: Damage, first: int, last: int) -> None:
        lost_last = segment_range.to_offset if damage.next_offset is None else damage.next_offset - 1
        if damage.first_offset <= last and lost_last >= first:
            self._report_lost(damage.error, max(damage.first_offset, first), min(lost_last, last))


def with_lost_offsets(error: TierctlError, first: int, last: int) -> TierctlError:
    """Return `error`; if it reports what can't be read, with the unreadable offsets in its hint."""
    if isinstance(error, UnsupportedFormatError | AuthenticationError | ObjectArchived):
        way_out = "" if error.hint is None else f"{error.hint}; "
        error.hint = f"{way_out}offsets {first} to {last} were not read, and reading continued after them"
        return error
    if not isinstance(error, CorruptInputError):
        return error
    return type(error)(
        error.what,
        expected=error.expected,
        found=error.found,
        at=error.at,
        source=error.source,
        hint=f"offsets {first} to {last} may be lost there; reading continued after them",
    )


def _missing(
    segment_range: SegmentRange, first: int, last: int, cause: RemoteResourceNotFound
) -> RemoteResourceNotFound:
    name = segment_range.segment.name
    return RemoteResourceNotFound(
        f"{name} does not exist: offsets {first} to {last} can't be read ({cause.message})",
        hint="check --remote: the metadata states that the segment was copied; reading continued after it",
    )
