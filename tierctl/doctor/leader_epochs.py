"""Compare the leader-epoch checkpoint of every replica with the tier."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, not_checked, ok
from tierctl.errors import TierctlError
from tierctl.locallog import read_log_dirs
from tierctl.model import TopicPartition
from tierctl.report.summary import counted
from tierctl.state.cut_epochs import cut_epochs_of
from tierctl.state.tier import TierState


def check_leader_epochs(
    folder: Path, select: Callable[[TopicPartition], bool], state: TierState
) -> Iterator[Result]:
    """Yield a result for each replica in a log directory whose checkpoint was cut; `state` is the tier's."""
    unreadable: list[tuple[Path, TierctlError]] = []
    logs = read_log_dirs([folder], select=select, on_error=lambda *found: unreadable.append(found))
    for where, error in unreadable:
        yield not_checked(Check.LEADER_EPOCHS, str(where), error.message)
    is_good = True
    for log in logs:
        part = state.partition(log.topic_id_partition)
        cut = None if part is None else cut_epochs_of(log, part.segments)
        if cut is not None:
            is_good = False
            yield fault(Check.LEADER_EPOCHS, str(log.directory), str(cut))
    if is_good:
        found = f"{counted(len(logs), 'replica')} have the leader epochs of the tier from the log start on"
        yield ok(Check.LEADER_EPOCHS, str(folder), found)
