"""Side effects for engines in tests; of this module, so that Python workers find them."""

import os
import signal
import time
from pathlib import Path

from tierctl.apply.side_effect_context import Answer, Bench, Piece
from tierctl.errors import StoreWriteFailed
from tierctl.model import RemoteLogSegmentMetadata, Uuid

POISON = 3


def piece(offset: int, topic: str = "bills") -> Piece:
    """Something to do."""
    metadata = RemoteLogSegmentMetadata(
        topic=topic,
        topic_id=Uuid("frhhXlTgT861Vsw_kSDCIw"),
        partition=0,
        segment_id=Uuid.from_bytes(offset.to_bytes(16, "big")),
        start_offset=offset,
        end_offset=offset,
        broker_id=-1,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_leader_epochs=((0, 0),),
        segment_size_in_bytes=10,
    )
    return Piece(metadata=metadata)


def named(bench: Bench, work: Piece) -> Answer:
    """Answers with the piece's offset."""
    bench.advance(work.metadata.segment_size_in_bytes)
    return Answer(begun=True, custom_metadata=str(work.metadata.start_offset).encode())


def poisonous(bench: Bench, work: Piece) -> Answer:
    """As `named`; one piece kills whoever does it."""
    if work.metadata.start_offset == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return named(bench, work)


def failing(_bench: Bench, _work: Piece) -> Answer:
    """Nothing was stored."""
    return Answer(begun=True, error=StoreWriteFailed("full", hint="free space"))


def slow(folder: str, _bench: Bench, work: Piece) -> Answer:
    """Leaves a mark in `folder`, and takes longer than anybody waits."""
    Path(folder, str(work.metadata.start_offset)).touch()
    time.sleep(120)
    return Answer(begun=True)
