"""Side effects for tests of engines; Python workers import them from this module."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from tierctl.apply.run_context import SideEffectContext, SideEffectInput, SideEffectResult
from tierctl.errors import StoreWriteFailed
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.pipeline.bucket_task import BucketJob

POISON = 3
SLOW_S = 120


def piece(offset: int, topic: str = "bills") -> SideEffectInput:
    """Return a step."""
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
    return SideEffectInput(metadata=metadata)


def named(context: SideEffectContext, work: SideEffectInput) -> SideEffectResult:
    """Return the offset of the step."""
    context.advance(work.metadata.segment_size_in_bytes)
    return SideEffectResult(begun=True, custom_metadata=str(work.metadata.start_offset).encode())


def poisonous(context: SideEffectContext, work: SideEffectInput) -> SideEffectResult:
    """Do the same as `named`, but kill the executing process for one of the steps."""
    if work.metadata.start_offset == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return named(context, work)


def failing(_bench: SideEffectContext, _work: SideEffectInput) -> SideEffectResult:
    """Raise an error that states that no object was stored."""
    return SideEffectResult(begun=True, error=StoreWriteFailed("full", hint="free space"))


def slow_bucket(job: BucketJob, _events: Iterator[pa.RecordBatch]) -> None:
    """Create the file `begun` beside the warehouse, and take longer than any timeout."""
    Path(urlsplit(job.warehouse.uri).path).with_name("begun").touch()
    time.sleep(SLOW_S)


def slow(folder: str, _bench: SideEffectContext, work: SideEffectInput) -> SideEffectResult:
    """Create a file in `folder`, and take longer than any timeout."""
    Path(folder, str(work.metadata.start_offset)).touch()
    time.sleep(SLOW_S)
    return SideEffectResult(begun=True)
