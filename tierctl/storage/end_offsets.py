"""Compare the end offset that a manifest states with the last batch of the log, where a decision needs it."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    RemoteStorageError,
    RemoteTierMissing,
    TierctlError,
    TransferStopped,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.model import IndexType, ObjectPart, ObjectSet, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layouts.log_facts import LogFacts, read_log_facts
from tierctl.wire.batches.head_columns import scan_heads

_ENTRY = struct.Struct(">ii")
_TAIL_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EndClaim:
    """A set with a manifest whose end offset other sets do not confirm.

    It `overlaps` if another set begins within it, and `is_contested` if it overlaps, or if a hole follows.
    """

    known: ObjectSet
    overlaps: bool
    is_contested: bool


def end_claims(sets: Sequence[ObjectSet]) -> Iterator[EndClaim]:
    """Yield the sets of one partition whose end is not right before the start of the next set."""
    starts = sorted({each.listed.start_offset for each in sets})
    for each in sets:
        segment = each.segment
        if segment is None or not each.listed.parts & ObjectPart.MANIFEST:
            continue
        later = [start for start in starts if start > segment.start_offset]
        twins = sum(other.listed.start_offset == segment.start_offset for other in sets) > 1
        if later and later[0] == segment.end_offset + 1 and not twins:
            continue
        overlaps = twins or bool(later and later[0] <= segment.end_offset)
        yield EndClaim(known=each, overlaps=overlaps, is_contested=bool(later) or overlaps)


def checked_end(remote: RemoteStorageManager, claim: EndClaim) -> ObjectSet:
    """Return the set; not understood if its last batch contradicts its manifest.

    The log of a set that overlaps is read whole: one of these sets is given up for the others. The last batch
    of a compacted log, which has gaps, may end below the manifest's end offset; this only counts where
    another set has these offsets. A set whose log is damaged is not understood, and a contested set whose log
    can't be read.
    """
    segment = claim.known.segment
    assert segment is not None
    try:
        last = _facts(remote, segment).end_offset if claim.overlaps else _last_offset(remote, segment)
        is_other = last > segment.end_offset or (
            last < segment.end_offset and (claim.overlaps or not _facts(remote, segment).has_gaps)
        )
    except (RemoteTierMissing, TransferStopped):
        raise
    except (UsageError, AuthenticationError, RemoteStorageError, CorruptInputError, LimitExceeded) as e:
        is_damaged = isinstance(e, CorruptInputError) and not isinstance(e, UnsupportedFormatError)
        return _unclear(claim.known, _with_hint(e)) if claim.is_contested or is_damaged else claim.known
    if is_other:
        return _unclear(
            claim.known,
            f"its manifest says that it ends at offset {segment.end_offset}, its last batch ends at {last}",
        )
    return claim.known


def _unclear(known: ObjectSet, reason: str) -> ObjectSet:
    return replace(known, segment=None, lineage=None, why_not_understood=reason)


def _with_hint(error: TierctlError) -> str:
    reason = f"its end offset can't be compared with its log: {error.message}"
    return reason if error.hint is None else f"{reason}; {error.hint}"


def _last_offset(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> int:
    """Return the offset of the last record of the log, found from the last entry of its offset index."""
    with remote.fetch_index(segment, IndexType.OFFSET) as stream:
        index = stream.read()
    position = 0
    if len(index) >= _ENTRY.size:
        position = max(0, _ENTRY.unpack_from(index, len(index) // _ENTRY.size * _ENTRY.size - _ENTRY.size)[1])
    with remote.fetch_log_segment(segment, position) as stream:
        tail = stream.read(_TAIL_BYTES_MAX)
    heads = scan_heads(tail)
    if heads.bad or heads.torn is not None or not len(heads):
        raise CorruptInputError(
            "log", expected="whole batches at its end", found="other bytes", at=position, source=None
        )
    return int(heads.next_offsets[-1]) - 1


def _facts(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> LogFacts:
    """Read the whole log; its batches are checked."""

    def open_range(start: int, end: int) -> BinaryIO:
        return remote.fetch_log_segment(segment, start, end - 1)

    size_bytes, key = segment.segment_size_in_bytes, f"segment {segment.segment_id}"
    return read_log_facts(open_range, key, size_bytes, segment.start_offset)
