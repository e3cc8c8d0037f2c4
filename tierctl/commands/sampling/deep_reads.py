"""What `verify --deep` reads of segments: the sample that a request asks for, and the record of the reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepReadsAsked:
    """The options of a request about the segments to read.

    `percent` of the segments, or all; objects of at most `budget_bytes`; `seed` makes a sample repeatable.
    The reads are stored in `state_dir`, if it is given.
    """

    percent: float | None
    budget_bytes: int | None
    seed: int | None
    state_dir: Path | None

    @property
    def is_sample(self) -> bool:
        """Whether only some segments are requested; raise UsageError for a seed without a sample."""
        asks = self.percent is not None or self.budget_bytes is not None
        if self.seed is not None and not asks:
            raise UsageError("--seed needs --sample or --budget", hint="add one, or leave --seed out")
        return asks


def open_deep_reads(asked: DeepReadsAsked, now_ms: int) -> DeepReads:
    """Return which segments to read; raise CorruptInputError if the record of earlier reads is damaged."""
    earlier = {} if asked.state_dir is None else read_segments(asked.state_dir)

    def last_run(key: _Key, segment_id: Uuid) -> ReadingRun | None:
        run = earlier.get(key, {}).get(segment_id)
        return run if run is not None and now_ms - KEPT_MS < run.at_ms <= now_ms else None

    sample = None
    if asked.is_sample:
        seed = randbelow(_SEED_MAX) if asked.seed is None else asked.seed

        def by_another_sample(key: _Key, segment_id: Uuid) -> bool:
            # A run that is repeated with its seed reads the same segments again.
            run = last_run(key, segment_id)
            return run is not None and run.seed != seed

        sample = Sample(
            percent=100.0 if asked.percent is None else asked.percent,
            seed=seed,
            budget_bytes=asked.budget_bytes,
            was_read=by_another_sample,
        )
    is_kept = asked.state_dir is not None
    return DeepReads(
        sample=sample, was_read=(lambda *segment: last_run(*segment) is not None) if is_kept else None
    )


@contextmanager
def reads_recorded(
    reads: DeepReads, asked: DeepReadsAsked, metadata: RemoteLogMetadataManager, now_ms: int
) -> Iterator[None]:
    """Store in the state directory which segments the block has read, also if it ends early."""
    try:
        yield
    finally:
        if asked.state_dir is not None and reads.read:
            seed = None if reads.sample is None else reads.sample.seed
            record_read_segments(
                asked.state_dir,
                reads.read,
                ReadingRun(now_ms, seed),
                is_live=lambda key, segment_id: _is_finished(metadata, key, segment_id),
            )


def _is_finished(metadata: RemoteLogMetadataManager, key: _Key, segment_id: Uuid) -> bool:
    part = metadata.state.partitions.get(key)
    segment = None if part is None else part.get(segment_id)
    return segment is not None and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
