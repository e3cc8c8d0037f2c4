"""What `verify --deep` reads of segments: the sample that a request asks for, and the record of the reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import randbelow
from typing import Protocol

from tierctl.errors import UsageError
from tierctl.metadata.base import RemoteLogMetadataManager
from tierctl.metadata.state_dir.read_segments import (
    KEPT_MS,
    ReadingRun,
    read_segments,
    record_read_segments,
)
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.verify.sample import DeepReads, Sample

_SEED_MAX = 1 << 32
_Key = tuple[Uuid, int]


class DeepRequest(Protocol):
    """The fields of a request that say what is read; `VerifyRequest` has them."""

    @property
    def sample_percent(self) -> float | None:
        """Part of the segments to read; None for all."""
        ...

    @property
    def budget_bytes(self) -> int | None:
        """Bytes of objects to read at most; None for no limit."""
        ...

    @property
    def seed(self) -> int | None:
        """Seed of the sample; None for a random one."""
        ...

    @property
    def state_dir(self) -> Path | None:
        """State directory that keeps what was read; None for none."""
        ...


def is_sample(request: DeepRequest) -> bool:
    """Return whether the request asks for a sample; UsageError for a seed without one."""
    asks = request.sample_percent is not None or request.budget_bytes is not None
    if request.seed is not None and not asks:
        raise UsageError("--seed goes with --sample or --budget", hint="add one, or leave --seed out")
    return asks


def open_deep_reads(request: DeepRequest, now_ms: int) -> DeepReads:
    """Return what is to be read; CorruptInputError if the record of earlier reads is damaged."""
    earlier = {} if request.state_dir is None else read_segments(request.state_dir)

    def last_run(key: _Key, segment_id: Uuid) -> ReadingRun | None:
        run = earlier.get(key, {}).get(segment_id)
        return run if run is not None and now_ms - KEPT_MS < run.at_ms <= now_ms else None

    sample = None
    if is_sample(request):
        seed = randbelow(_SEED_MAX) if request.seed is None else request.seed

        def by_another_sample(key: _Key, segment_id: Uuid) -> bool:
            # A run that is repeated with its seed reads the same segments again.
            run = last_run(key, segment_id)
            return run is not None and run.seed != seed

        sample = Sample(
            percent=100.0 if request.sample_percent is None else request.sample_percent,
            seed=seed,
            budget_bytes=request.budget_bytes,
            was_read=by_another_sample,
        )
    is_kept = request.state_dir is not None
    return DeepReads(
        sample=sample, was_read=(lambda *segment: last_run(*segment) is not None) if is_kept else None
    )


@contextmanager
def reads_recorded(
    reads: DeepReads, request: DeepRequest, metadata: RemoteLogMetadataManager, now_ms: int
) -> Iterator[None]:
    """Store in the state directory what the block read, also if it ends early."""
    try:
        yield
    finally:
        if request.state_dir is not None and reads.read:
            seed = None if reads.sample is None else reads.sample.seed
            record_read_segments(
                request.state_dir,
                reads.read,
                ReadingRun(now_ms, seed),
                is_live=lambda key, segment_id: _is_finished(metadata, key, segment_id),
            )


def _is_finished(metadata: RemoteLogMetadataManager, key: _Key, segment_id: Uuid) -> bool:
    part = metadata.state.partitions.get(key)
    segment = None if part is None else part.get(segment_id)
    return segment is not None and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
