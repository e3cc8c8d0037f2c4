"""Entries of indexes as rows for output."""

from collections.abc import Iterable
from typing import Any

from tierctl.model import IndexType
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot


def index_rows(data: bytes, index_type: IndexType, base_offset: int) -> Iterable[dict[str, Any]]:
    """Return one row per entry, with the fields of the entry; raise CorruptInputError for a damaged index."""
    entries: Iterable[Any]
    match index_type:
        case IndexType.OFFSET:
            entries = OffsetIndex.decode(data, base_offset)
        case IndexType.TIMESTAMP:
            entries = TimeIndex.decode(data, base_offset)
        case IndexType.TRANSACTION:
            entries = TransactionIndex.decode(data).entries
        case IndexType.PRODUCER_SNAPSHOT:
            entries = decode_producer_snapshot(data)
        case IndexType.LEADER_EPOCH:
            entries = read_leader_epoch_checkpoint(data)
    return (entry._asdict() for entry in entries)
