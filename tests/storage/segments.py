"""Segments for tests of stores."""

from dataclasses import replace
from pathlib import Path

from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import hashed_file

from tests.metadata.events import segment_id, started


def metadata_of(
    number: int = 0, *, topic: str = "orders", partition: int = 0, attempt: int = 1
) -> RemoteLogSegmentMetadata:
    """Return a segment with offsets from 100·number on; each attempt has a new id."""
    return replace(
        started(number, topic=topic, partition=partition),
        segment_id=segment_id(1000 * attempt + number),
        segment_size_in_bytes=3_000_000,
    )


def data_in(
    folder: Path, *, seed: int = 0, transactional: bool = True, size_bytes: int = 3000
) -> LogSegmentData:
    """Return the contents of a segment, each different; the log is a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)

    def made(suffix: str, size: int) -> bytes:
        return bytes((seed + len(suffix) + at) % 251 for at in range(size))

    log = folder / f"{seed:020d}.log"
    log.write_bytes(made(".log", size_bytes))
    return LogSegmentData(
        log_segment=hashed_file(log),
        indexes={
            IndexType.OFFSET: made(".index", 16),
            IndexType.TIMESTAMP: made(".timeindex", 24),
            IndexType.TRANSACTION: made(".txnindex", 34) if transactional else None,
            IndexType.PRODUCER_SNAPSHOT: made(".snapshot", 56),
            IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
        },
    )


def files_of(
    remote: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, folder: Path
) -> LogSegmentData:
    """Return a segment of a tier; its log is a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with remote.fetch_log_segment(metadata, 0) as stream:
        log.write_bytes(stream.read())

    def index(index_type: IndexType) -> bytes | None:
        if index_type is IndexType.TRANSACTION and metadata.txn_index_empty:
            return None
        with remote.fetch_index(metadata, index_type) as stream:
            return stream.read()

    return LogSegmentData(
        log_segment=hashed_file(log), indexes={index_type: index(index_type) for index_type in IndexType}
    )


def delete_segment(tier: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> None:
    """Delete one segment, and raise its error."""
    for error in tier.delete_log_segments([segment]):
        if error is not None:
            raise error
