"""Raise the log start offsets of a sweep, and delete its segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tierctl.apply.acts import DeleteSegments, RaiseLogStarts, raise_log_starts
from tierctl.apply.run import Run
from tierctl.commands.mutation import Mutation
from tierctl.model import TopicIdPartition
from tierctl.plan.steps import Step


def log_starts_of(run: Mutation) -> RaiseLogStarts | None:
    """Return what stores raised log starts: the cluster and the state directory; None if there is neither."""
    if run.cluster is None and run.journal is None:
        return None

    def raise_all(starts: Mapping[TopicIdPartition, int]) -> None:
        # Raise the log start on the cluster before the journal, so that the journal is never ahead of what
        # consumers see.
        if run.cluster is not None:
            run.cluster.raise_log_starts(starts)
        if run.journal is not None:
            run.journal.raise_log_starts(starts)

    return raise_all


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSegments:
    """The act of DELETE_SEGMENT of a sweep; `log_starts` are raised in addition to those in the steps."""

    log_starts: Mapping[TopicIdPartition, int]
    raise_log_starts: RaiseLogStarts | None

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Implement `Act`."""
        if run.may_begin():
            raise_log_starts(self.log_starts, self.raise_log_starts)
        DeleteSegments(raise_log_starts=self.raise_log_starts)(run, steps)
