"""Write folders, checkpoints and the bootstrap file of a stopped node that will serve topics of a tier.

`tierctl.apply.run` determines the order: folders, checkpoints, metadata events, bootstrap file. If a run is
killed before the bootstrap file is written, the formatted node starts without any restored topic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from tierctl.apply.labels import effect
from tierctl.apply.materialise.new_folder import NewFolder, remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.rebuild.checkpoints import merge_offsets
from tierctl.errors import SafetyRefusal, SpoolError, TierctlError
from tierctl.files import read_regular, replace_durably
from tierctl.model import TopicIdPartition, TopicPartition
from tierctl.plan.restore import NewLog
from tierctl.plan.steps import LOG_DIR, Step
from tierctl.wire.files.checkpoints import HIGH_WATERMARKS_FILE, LOG_STARTS_FILE, RECOVERY_POINTS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogs:
    """The logs to write, by partition; each replaces the folder of an empty log, if there is one."""

    logs: Mapping[TopicIdPartition, NewLog]

    def write_logs(self, steps: Sequence[Step]) -> list[Outcome]:
        """Write the folder of each step's partition, then the checkpoints of each log directory.

        A folder that has exactly the files of the log was written by a killed run, and is kept. Any other
        existing folder has an empty log, and is replaced: the planner refuses partitions whose folder has
        records.
        """
        outcomes: list[Outcome] = []
        for log_dir, group in groupby(sorted(steps, key=_log_dir), key=_log_dir):
            own = list(group)
            outcomes += _attempted(own, partial(self._write_dir, Path(log_dir), own))
        return outcomes

    def _write_dir(self, log_dir: Path, steps: Sequence[Step]) -> None:
        logs = [self.logs[step.topic_id_partition] for step in steps]
        for log in logs:
            _write_folder(log_dir, log)
        starts = {_name(log): log.start_offset for log in logs}
        ends = {_name(log): log.tier_end for log in logs}
        with effect("restore.checkpoints.write"):
            merge_offsets(log_dir / LOG_STARTS_FILE, starts)
            merge_offsets(log_dir / RECOVERY_POINTS_FILE, ends)
            merge_offsets(log_dir / HIGH_WATERMARKS_FILE, ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode(NewLogs):
    """The logs of a formatted node, and the new bootstrap file: `content` replaces `former` (the old bytes).

    With `has_metadata_topic` the metadata topic is created even if it gets no event.
    """

    bootstrap_path: Path
    former: bytes
    content: bytes
    has_metadata_topic: bool = True

    def write_bootstrap(self, steps: Sequence[Step]) -> list[Outcome]:
        """Write the topics into the bootstrap file in one write; `steps` are all topic steps of the plan."""
        return _attempted(steps, self._write_bootstrap)

    def _write_bootstrap(self) -> None:
        if read_regular(self.bootstrap_path) != self.former:
            raise SafetyRefusal(f"{self.bootstrap_path} was changed by another program", hint="plan again")
        with effect("restore.bootstrap.write"):
            replace_durably(self.bootstrap_path, self.content, backup=True)


def _log_dir(step: Step) -> str:
    return str(step.details[LOG_DIR])


def _name(log: NewLog) -> TopicPartition:
    return log.partition.topic_partition


def _write_folder(log_dir: Path, log: NewLog) -> None:
    """Write the folder under a temporary name and rename it; do nothing if it has these files already."""
    name = str(_name(log))
    if _has_files(log_dir / name, log.files):
        remove_left(log_dir, name)
        return
    with effect("restore.staging.create"):
        made = NewFolder.make(log_dir, name)
    for file, data in log.files.items():
        made.write(file, data)
    made.sync()
    if made.target.exists():
        with effect("restore.old_folder.rename"):
            made.set_old_aside()
    with effect("restore.partition.rename"):
        made.commit()
    with effect("restore.staging.delete"):
        made.discard()


def _has_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether the folder exists and has exactly these files with this content."""
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != files.keys():
        return False
    return all(read_regular(folder / name) == data for name, data in files.items())


def _attempted(steps: Sequence[Step], do: Callable[[], None]) -> list[Outcome]:
    """Call `do` once for all of `steps`; return one outcome per step, all with the same status."""
    error: TierctlError | None = None
    try:
        do()
    except TierctlError as e:
        error = e
    except OSError as e:
        error = SpoolError(f"writing {e.filename or 'the node'}: {e.strerror or e}", hint="run again")
    status = Status.DONE if error is None else Status.FAILED
    return [Outcome(step=step, status=status, error=error) for step in steps]
