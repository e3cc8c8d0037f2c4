"""Find the records of given keys in whole segments, whatever their state and transactions are.

Keys are compared by their SHA-256, so that a search needs no personal data: only their digests.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import CorruptInputError, TierctlError
from tierctl.model import LocalSegment, RemoteLogSegmentMetadata
from tierctl.read.index_lookup import Indexes, UncachedIndexes
from tierctl.read.parallel.task import BULK_CHUNK_BYTES, Part
from tierctl.read.range_reader import RangeReader
from tierctl.state.lineage import Lineage
from tierctl.storage.base import RemoteStorageManager, require_store
from tierctl.wire.batches.record_columns import record_columns

_LAST_OFFSET = 2**63 - 1


class KeyRecord(NamedTuple):
    """A record with one of the keys: its offset, its timestamp, and the SHA-256 of the key in hex."""

    offset: int
    timestamp_ms: int
    key_sha256: str


@dataclass(frozen=True, slots=True)
class SearchedSegment:
    """The result of the search of a segment; `records` counts all compared records.

    If there is an error, the records that it names were not compared.
    """

    found: tuple[KeyRecord, ...]
    records: int
    errors: tuple[TierctlError, ...]


def search_segment(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata | LocalSegment, digests: frozenset[bytes]
) -> SearchedSegment:
    """Search every record of a segment, also those of aborted transactions and outside of its offsets.

    `digests` are those of the keys. Damage is added to the errors, and the search continues after it. Raise
    RemoteStorageError or AuthenticationError if the store does not respond any more.
    """
    found: list[KeyRecord] = []
    errors: list[TierctlError] = []
    count = 0
    try:
        for columns in _columns(segment, remote, errors):
            count += len(columns)
            found += matching_records(columns, digests)
    except CorruptInputError as e:
        errors.append(e)
    except TierctlError as e:
        require_store(remote, e)
        errors.append(e)
    return SearchedSegment(tuple(found), count, tuple(errors))


def _columns(
    segment: RemoteLogSegmentMetadata | LocalSegment,
    remote: RemoteStorageManager,
    errors: list[TierctlError],
) -> Iterator[pa.RecordBatch]:
    # A segment that leader epochs or transactions hide from consumers is searched like all others.
    reader = RangeReader(
        Lineage(()),
        Indexes(UncachedIndexes(remote), errors.append),
        errors.append,
        chunk_bytes=BULK_CHUNK_BYTES,
    )
    start, end = _offsets(segment)
    whole = Part(segment, start, end, 0).segment_range(remote)
    batches = reader.batches(whole, 0, _LAST_OFFSET)
    records = (batch for batch in batches if not batch.head.is_control)
    yield from record_columns(records, partial(reader.decoded, whole))


def _offsets(segment: RemoteLogSegmentMetadata | LocalSegment) -> tuple[int, int]:
    if isinstance(segment, RemoteLogSegmentMetadata):
        return segment.start_offset, segment.end_offset
    following = segment.next_base_offset
    return segment.base_offset, _LAST_OFFSET if following is None else following - 1


def matching_records(columns: pa.RecordBatch, digests: frozenset[bytes]) -> Iterable[KeyRecord]:
    """Return the records with one of the keys; each distinct key is hashed once.

    `columns` are those of `wire.batches.record_columns`, `digests` the SHA-256 of the keys.
    """
    keys = columns.column("key").dictionary_encode()
    chosen = {
        number: digest.hex()
        for number, key in enumerate(keys.dictionary.to_pylist())
        if key is not None and (digest := hashlib.sha256(key).digest()) in digests
    }
    if not chosen:
        return
    offsets, times = columns.column("offset"), columns.column("timestamp_ms")
    for row, number in enumerate(keys.indices.to_pylist()):
        if number in chosen:
            yield KeyRecord(offsets[row].as_py(), times[row].as_py(), chosen[number])
