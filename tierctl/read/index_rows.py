"""Entries of indexes as rows for output."""

from collections.abc import Iterable
from typing import Any

from tierctl.model import EpochEntry, IndexType
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import (
    AbortedTxn,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)
from tierctl.wire.files.producer_snapshot import ProducerEntry, decode_producer_snapshot


def index_rows(
    data: bytes, index_type: IndexType, base_offset: int
) -> tuple[tuple[str, ...], Iterable[dict[str, Any]]]:
    """Return the column names and one row per entry; raise CorruptInputError for a damaged index."""
    columns: tuple[str, ...]
    entries: Iterable[Any]
    match index_type:
        case IndexType.OFFSET:
            columns, entries = OffsetPosition._fields, OffsetIndex.decode(data, base_offset)
        case IndexType.TIMESTAMP:
            columns, entries = TimestampOffset._fields, TimeIndex.decode(data, base_offset)
        case IndexType.TRANSACTION:
            columns, entries = AbortedTxn._fields, TransactionIndex.decode(data).entries
        case IndexType.PRODUCER_SNAPSHOT:
            columns, entries = ProducerEntry._fields, decode_producer_snapshot(data)
        case IndexType.LEADER_EPOCH:
            columns, entries = EpochEntry._fields, read_leader_epoch_checkpoint(data)
    return columns, (entry._asdict() for entry in entries)
