"""Write the log of one partition from the segments of a tier, and put it in a stopped broker's directory."""

import shutil
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from tierctl.apply.labels import effect
from tierctl.apply.materialise.new_folder import NewFolder
from tierctl.apply.materialise.segments import LogState, SegmentPart, write_segment
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.rebuild.checkpoints import merge_offsets
from tierctl.apply.run_context import RunContext
from tierctl.errors import RemoteResourceNotFound, SpoolError, TierctlError
from tierctl.in_order import in_order
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.plan.materialise import AS_TOPIC, AS_TOPIC_ID, READ_AHEAD, SEGMENTS
from tierctl.plan.steps import LOG_DIR, Step
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.producer_snapshot import encode_producer_snapshot

_CHUNK_BYTES = 1 << 20


class _Stopped(Exception):  # noqa: N818
    """The run was told to stop."""


def materialise_partition(step: Step, context: RunContext) -> Outcome:
    """Write the log of `step` and make it the partition's; the caller holds the broker's lock.

    Until the last rename the partition's folder is as it was. An error or a request to stop leaves nothing
    of the new log.
    """
    topic, folder = str(step.details[AS_TOPIC]), Path(step.details[LOG_DIR])
    made: NewFolder | None = None
    try:
        with effect("materialise.staging.create"):
            made = NewFolder.make(folder, f"{topic}-{step.partition}")
        end_offset = _fill(made, step, context)
        _commit(made, TopicPartition(topic, step.partition), step.start_offset or 0, end_offset)
    except _Stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    except TierctlError as e:
        return Outcome(step=step, status=Status.FAILED, error=e)
    except OSError as e:
        error = SpoolError(
            f"writing {e.filename or folder}: {e.strerror or e}",
            hint="nothing of the partition was changed: make room, and run again",
        )
        return Outcome(step=step, status=Status.FAILED, error=error)
    finally:
        if made is not None:
            shutil.rmtree(made.staging, ignore_errors=True)
    return Outcome(step=step, status=Status.DONE)


def _fill(made: NewFolder, step: Step, context: RunContext) -> int:
    """Write all files of the log; return the offset after its last batch."""
    parts = _parts(step, context)
    state = LogState(next_offset=step.start_offset or 0)
    bases: list[int] = []
    snapshots: list[bytes] = []
    with closing(_fetched(parts, made.staging, context)) as fetched:
        for part, raw in fetched:
            with effect("materialise.segment.write"):
                bases.append(write_segment(part, raw, made, state, ends_log=part is parts[-1]))
            snapshots.append(encode_producer_snapshot(state.open_producers()))
            raw.unlink()
            context.advance(part.metadata.segment_size_in_bytes)
    # A broker copies a segment to a tier only if there is a snapshot at the next one.
    for offset, snapshot in zip((*bases[1:], state.next_offset), snapshots, strict=True):
        made.write(f"{offset:020d}.snapshot", snapshot)
    made.write(f"{state.next_offset:020d}.log", b"")
    epochs = write_leader_epoch_checkpoint([EpochEntry(0, step.start_offset or 0)])
    made.write(LEADER_EPOCHS_FILE, epochs)
    made.write(PARTITION_METADATA_FILE, write_partition_metadata(Uuid.parse(step.details[AS_TOPIC_ID])))
    made.sync()
    return state.next_offset


def _commit(made: NewFolder, partition: TopicPartition, start_offset: int, end_offset: int) -> None:
    """Write the checkpoints of the log, then exchange the folders.

    The checkpoints are first: a broker that knew none would take deleted records back, and read the whole log
    again after a crash. Of an empty log they only raise the log start offset.
    """
    with effect("materialise.checkpoints.write"):
        merge_offsets(made.log_dir / LOG_STARTS_FILE, {partition: start_offset})
        merge_offsets(made.log_dir / RECOVERY_POINTS_FILE, {partition: end_offset})
        merge_offsets(made.log_dir / HIGH_WATERMARKS_FILE, {partition: end_offset})
    if made.target.exists():
        with effect("materialise.old_folder.rename"):
            made.set_old_aside()
    with effect("materialise.partition.rename"):
        made.commit()
    with effect("materialise.staging.delete"):
        made.discard()


def _parts(step: Step, context: RunContext) -> list[SegmentPart]:
    """Return the parts of segments that the step names; RemoteResourceNotFound if one is gone."""
    part = context.metadata.state.partition(step.topic_id_partition)
    named = step.details[SEGMENTS]
    parts = []
    for number, each in enumerate(named):
        segment_id = each["segment_id"]
        metadata = None if part is None else part.get(Uuid.parse(segment_id))
        if metadata is None:
            raise RemoteResourceNotFound(f"segment {segment_id} is deleted by now", hint="plan again")
        parts.append(
            SegmentPart(
                metadata=metadata,
                from_offset=each["start_offset"],
                to_offset=each["end_offset"],
                is_first=number == 0,
                is_last=number == len(named) - 1,
            )
        )
    return parts


def _fetched(
    parts: Sequence[SegmentPart], folder: Path, context: RunContext
) -> Generator[tuple[SegmentPart, Path], None, None]:
    """Yield each part with the file of its whole segment; a few segments are fetched ahead."""

    def fetch(numbered: tuple[int, SegmentPart]) -> Path:
        return _fetch(numbered[1], folder / f"raw-{numbered[0]}", context)

    # Closed before the folder is removed, into which threads still write.
    with closing(in_order(fetch, enumerate(parts), threads=READ_AHEAD, ahead=READ_AHEAD - 1)) as fetched:
        for part, raw in zip(parts, fetched, strict=True):
            if context.stop.asked():
                raise _Stopped
            yield part, raw


def _fetch(part: SegmentPart, path: Path, context: RunContext) -> Path:
    """Write the log of the part's segment to `path`, at most one byte more than its metadata say."""
    left = part.metadata.segment_size_in_bytes + 1
    with context.remote.fetch_log_segment(part.metadata, 0) as stream, path.open("wb") as file:
        while not context.stop.asked() and left and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            file.write(chunk)
            left -= len(chunk)
    return path
