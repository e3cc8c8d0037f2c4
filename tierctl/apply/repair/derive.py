"""Derive the indexes of a segment from its log, and from the indexes of the neighbouring segments.

Offset and time index equal those of LogSegment.recover. They also equal those of the broker that rolled the
segment, unless the broker restarted while the segment was active, which starts a new interval between
entries. The transaction index and the producer snapshot start from the producer snapshot of the previous
segment, and the leader-epoch index continues that of the previous segment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.locallog.producer_state import OpenTransactions
from tierctl.locallog.producers import ProducerTable
from tierctl.model import EpochEntry, IndexType, RemoteLogSegmentMetadata
from tierctl.state.lineage import Lineage
from tierctl.storage.base import SegmentReader
from tierctl.storage.spool import INDEX_BYTES_MAX
from tierctl.wire.batches.batch_heads import BatchHead
from tierctl.wire.batches.segment_file import LogBytes, scan_windows
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex, build_indexes
from tierctl.wire.files.producer_snapshot import (
    ProducerEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The finished segments that end where a segment begins, and those that begin where it ends.

    Only segments of the same lineage, as far as leader epochs show it.
    """

    before: Sequence[RemoteLogSegmentMetadata] = ()
    after: Sequence[RemoteLogSegmentMetadata] = ()


def neighbours_of(
    segment: RemoteLogSegmentMetadata, finished: Sequence[RemoteLogSegmentMetadata]
) -> Neighbours:
    """Return the neighbours of `segment` among the finished segments of its partition."""
    first, last = segment.segment_leader_epochs[0][0], segment.segment_leader_epochs[-1][0]
    return Neighbours(
        before=[
            each
            for each in finished
            if each.end_offset + 1 == segment.start_offset and each.segment_leader_epochs[-1][0] <= first
        ],
        after=[
            each
            for each in finished
            if each.start_offset == segment.end_offset + 1 and each.segment_leader_epochs[0][0] >= last
        ],
    )


Derived = dict[IndexType, bytes | str]
"""The bytes of each index, or the reason why it can't be derived."""


def derive_indexes(
    segment: RemoteLogSegmentMetadata, log: LogBytes, remote: SegmentReader, beside: Neighbours
) -> Derived:
    """Return every index of `segment`, whose `log` is valid.

    Raise RemoteStorageError if the store fails while the indexes of the neighbouring segments are read.
    """
    producers = _producers_at_start(segment, remote, beside)
    known = [] if isinstance(producers, str) else producers
    follower = _Follower(ProducerTable.from_snapshot(known), OpenTransactions.from_snapshot(known), [])
    offsets, times = build_indexes(follower.heads(log, segment.start_offset), segment.start_offset)
    found: Derived = {IndexType.OFFSET: offsets.data, IndexType.TIMESTAMP: times.data}
    if isinstance(producers, str):
        found |= {IndexType.TRANSACTION: producers, IndexType.PRODUCER_SNAPSHOT: producers}
    else:
        found[IndexType.TRANSACTION] = TransactionIndex(tuple(follower.aborted)).encode()
        found[IndexType.PRODUCER_SNAPSHOT] = encode_producer_snapshot(follower.producers.in_file_order())
    found[IndexType.LEADER_EPOCH] = _leader_epochs(segment, remote, beside)
    return found


@dataclass(slots=True)
class _Follower:
    """Follows producers and transactions while the batches of a log are indexed."""

    producers: ProducerTable
    transactions: OpenTransactions
    aborted: list[AbortedTxn]

    def heads(self, log: LogBytes, start_offset: int) -> Iterator[BatchHead]:
        """Yield the heads of all batches with their positions in the log, after they were applied."""
        for window in scan_windows(log, 0, start_offset):
            heads = window.heads
            for head in map(heads.head, range(len(heads))):
                aborted = self.transactions.append(window.data, head)
                if aborted is not None:
                    self.aborted.append(aborted)
                self.producers.append(window.data, head)
                yield head._replace(position=head.position + window.position)


def _index(remote: SegmentReader, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
    try:
        with remote.fetch_index(segment, index_type) as stream:
            return stream.read(INDEX_BYTES_MAX)
    except (RemoteResourceNotFound, CorruptInputError):
        return None


def _producers_at_start(
    segment: RemoteLogSegmentMetadata, remote: SegmentReader, beside: Neighbours
) -> Sequence[ProducerEntry] | str:
    """Return the producers before the first batch, or the reason why they are unknown."""
    if segment.start_offset == 0:
        return []
    found: set[tuple[ProducerEntry, ...]] = set()
    for each in beside.before:
        data = _index(remote, each, IndexType.PRODUCER_SNAPSHOT)
        try:
            found |= set() if data is None else {decode_producer_snapshot(data)}
        except CorruptInputError:
            continue
    if len(found) == 1:
        return found.pop()
    many = "no segment" if not found else "several segments with different producer snapshots"
    return f"the producers before offset {segment.start_offset} are not known: {many} before it"


def _leader_epochs(
    segment: RemoteLogSegmentMetadata, remote: SegmentReader, beside: Neighbours
) -> bytes | str:
    """Return the lineage up to the end of the segment as a checkpoint file, or why it is unknown."""
    own = [EpochEntry(epoch, start) for epoch, start in sorted(dict(segment.segment_leader_epochs).items())]
    if segment.start_offset == 0:
        return write_leader_epoch_checkpoint(own)
    found = set()
    for each in beside.before or beside.after:
        entries = _lineage_of(each, remote)
        earlier = [entry for entry in entries if entry.start_offset < segment.start_offset]
        if not earlier:
            continue
        later = [entry for entry in own if entry.epoch > earlier[-1].epoch]
        lineage = Lineage([*earlier, *later])
        if list(lineage.entries_in_range(segment.start_offset, segment.end_offset + 1)) == own:
            found.add(write_leader_epoch_checkpoint(lineage.entries))
    if len(found) == 1:
        return found.pop()
    many = "several different ones" if found else "none"
    return (
        f"the leader epochs before offset {segment.start_offset} are not known: of the leader-epoch indexes "
        f"beside the segment, {many} agree with its metadata"
    )


def _lineage_of(segment: RemoteLogSegmentMetadata, remote: SegmentReader) -> Sequence[EpochEntry]:
    """Return the entries of a leader-epoch index that agrees with its segment's metadata; else none."""
    data = _index(remote, segment, IndexType.LEADER_EPOCH)
    try:
        lineage = Lineage(read_leader_epoch_checkpoint(data or b""))
    except CorruptInputError:
        return ()
    own = tuple(lineage.entries_in_range(segment.start_offset, segment.end_offset + 1))
    is_its = own == tuple(sorted(dict(segment.segment_leader_epochs).items()))
    return lineage.entries if is_its else ()
