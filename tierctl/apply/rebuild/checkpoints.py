"""Restore the log start and the leader epochs of partitions in the log directories of stopped brokers.

Both files of a replica are written before any event is published: if one of them is missing, a broker deletes
the segments that are published.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tierctl.apply.labels import effect
from tierctl.apply.outcome import Outcome, Status
from tierctl.errors import MetadataError, TierctlError
from tierctl.files import read_regular, replace_durably
from tierctl.model import EpochEntry, TopicPartition
from tierctl.plan.steps import LOG_DIR, Step
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
)


def write_checkpoints(steps: Iterable[Step]) -> list[Outcome]:
    """Write the leader epochs of each step's replica, then the log starts of each directory.

    The caller holds the brokers' locks on the directories.
    Every file is replaced atomically, and keeps its former content as `.bak`. Return one outcome per step.
    """
    outcomes: list[Outcome] = []
    for folder, group in groupby(sorted(steps, key=_folder), key=_folder):
        own = list(group)
        try:
            _write(Path(folder), own)
        except TierctlError as e:
            outcomes += [Outcome(step=step, status=Status.FAILED, error=e) for step in own]
        except OSError as e:
            error = MetadataError(f"writing checkpoints in {folder}: {e.strerror or e}")
            outcomes += [Outcome(step=step, status=Status.FAILED, error=error) for step in own]
        else:
            outcomes += [Outcome(step=step, status=Status.DONE) for step in own]
    return outcomes


def _folder(step: Step) -> str:
    return str(step.details[LOG_DIR])


def _write(folder: Path, steps: Sequence[Step]) -> None:
    for step in steps:
        entries = [EpochEntry(epoch, start) for epoch, start in step.details["leader_epoch_checkpoint"]]
        with effect("rebuild.epochs.write"):
            _replace(
                folder / f"{step.topic}-{step.partition}" / LEADER_EPOCHS_FILE,
                write_leader_epoch_checkpoint(entries),
            )
    with effect("rebuild.log_starts.write"):
        merge_offsets(
            folder / LOG_STARTS_FILE,
            {TopicPartition(step.topic, step.partition): step.start_offset or 0 for step in steps},
        )


def merge_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write `offsets` into an offset checkpoint durably, keep its other entries, and back up the old file."""
    present = read_offset_checkpoint(read_regular(path)) if path.exists() else {}
    _replace(path, write_offset_checkpoint({**present, **offsets}))


def _replace(path: Path, data: bytes) -> None:
    # A run that continues an interrupted one must not overwrite the backup that the first one made.
    if not path.exists() or read_regular(path) != data:
        replace_durably(path, data, backup=True)
