"""Carries out a plan, wave by wave; what can't be done is in the outcomes, not an exception."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tierctl.apply.copy import CLEANUP_LABELS, Copier
from tierctl.apply.log_starts import (
    SWEEP_LABELS,
    RaiseLogStarts,
    delete_wave,
    find_segment,
    new_log_starts,
    raise_log_starts,
)
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.partition_deletes import mark_partition, processed_offsets, remove_partition
from tierctl.apply.run_context import Tools
from tierctl.apply.side_effects import effect
from tierctl.apply.source import LogSources, Sources
from tierctl.apply.tier_check import require_known_tier, why_not_deletable
from tierctl.apply.upload import CUSTOM_METADATA_MAX_BYTES
from tierctl.apply.waves import chunks
from tierctl.errors import MetadataError, TierctlError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.plan.plan import Action, Plan, Step
from tierctl.plan.recheck import Dropped, recheck
from tierctl.plan.steps import LINEAGE_EPOCH

_Key = tuple[Uuid, int]

CommitProcessed = Callable[[Mapping[int, int]], None]
Fence = Callable[[Collection[TopicIdPartition]], None]
"""Raises SafetyRefusal when somebody else may be at work on one of these partitions."""


def _unfenced(partitions: Collection[TopicIdPartition]) -> None:
    """Nobody else can be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run may need beyond its tools; each default does without.

    `sources` says where copies come from. `log_starts` are raised beside those of the
    plan's steps. `raise_log_starts` and `commit_processed` keep what a state directory keeps; the latter
    is given the next offset to process of each metadata partition. `fence` is asked before each piece of
    the plan, since brokers come and go while it is carried out.
    """

    sources: Sources = field(default_factory=LogSources)
    custom_metadata_max_bytes: int = CUSTOM_METADATA_MAX_BYTES
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    raise_log_starts: RaiseLogStarts | None = None
    commit_processed: CommitProcessed | None = None
    fence: Fence = _unfenced


def run(plan: Plan, tools: Tools, options: Options | None = None) -> list[Outcome]:
    """Carry out `plan`; one outcome a step, in the plan's order.

    Before each wave the metadata are read to their end, and steps whose segment or partition changed since
    are dropped. When publishing fails what the log holds is not known: nothing more is begun.
    """
    return _Run(plan, tools, options or Options()).outcomes()


class _Run:
    def __init__(self, plan: Plan, tools: Tools, options: Options) -> None:
        self._plan = plan
        self._tools = tools
        self._options = options
        self._copier = Copier(
            tools=tools,
            sources=options.sources,
            custom_metadata_max_bytes=options.custom_metadata_max_bytes,
        )
        # By identity: two steps of a plan may be equal.
        self._outcomes: dict[int, Outcome] = {}
        self._broken: set[_Key] = set()
        self._halted: TierctlError | None = None
        self._is_known_tier = False

    def outcomes(self) -> list[Outcome]:
        """Carry everything out, and say what became of each step."""
        removals = self._steps(Action.DELETE_PARTITION)
        deletes = self._steps(Action.DELETE_SEGMENT)
        removed: dict[_Key, list[Step]] = {step.topic_id_partition.key: [] for step in removals}
        for step in deletes:
            removed.get(step.topic_id_partition.key, []).append(step)
        for step in self._steps(Action.MARK_PARTITION):
            self._attempt([step], self._mark)
        for step in removals:
            self._attempt([step, *removed[step.topic_id_partition.key]], self._remove)
        self._waves(self._steps(Action.COPY_SEGMENT), self._copy)
        self._raise_asked_log_starts()
        self._waves([s for s in deletes if s.topic_id_partition.key not in removed], self._delete)
        self._commit()
        return [self._outcomes[id(step)] for step in self._plan.steps]

    def _steps(self, action: Action) -> list[Step]:
        return [step for step in self._plan.steps if step.action is action]

    def _waves(self, steps: Sequence[Step], do: Callable[[Sequence[Step]], Sequence[Outcome]]) -> None:
        for wave in chunks(steps, self._tools.wave_size):
            self._attempt(wave, do)

    def _attempt(self, steps: Sequence[Step], do: Callable[[Sequence[Step]], Sequence[Outcome]]) -> None:
        """One piece of the plan; an error that comes out of it was met while publishing."""
        if self._halted is not None:
            reason = f"not begun, since the run could not go on: {self._halted.message}"
            self._record(Outcome(step=step, status=Status.DROPPED, reason=reason) for step in steps)
        elif self._tools.stop.asked():
            self._record(Outcome(step=step, status=Status.PENDING, reason=STOPPED) for step in steps)
        else:
            try:
                self._options.fence({step.topic_id_partition for step in steps})
                self._record(do(steps))
            except TierctlError as e:
                self._halt(e, steps)
            except OSError as e:
                self._halt(MetadataError(str(e)), steps)

    def _halt(self, error: TierctlError, steps: Sequence[Step]) -> None:
        self._halted = error
        self._record(Outcome(step=step, status=Status.FAILED, error=error) for step in steps)

    def _record(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._outcomes.setdefault(id(outcome.step), outcome)

    def _mark(self, steps: Sequence[Step]) -> list[Outcome]:
        return [mark_partition(step, self._tools) for step in steps]

    def _remove(self, steps: Sequence[Step]) -> list[Outcome]:
        return remove_partition(steps[0], steps[1:], self._tools)

    def _copy(self, steps: Sequence[Step]) -> list[Outcome]:
        dropped, kept = self._recheck(steps)
        for outcome in dropped:
            if outcome.status is Status.DROPPED:
                self._copier.end(outcome.step)
        if kept and not self._is_known_tier:
            require_known_tier({step.topic_id_partition for step in kept}, self._tools)
            self._is_known_tier = True
        self._options.sources.refresh(kept)
        return [*dropped, *self._copier.wave(kept)]

    def _delete(self, steps: Sequence[Step]) -> list[Outcome]:
        dropped, kept = self._recheck(steps)
        state = self._tools.metadata.state
        segments = [segment for step in kept if (segment := find_segment(step, state)) is not None]
        refused = why_not_deletable(segments, self._tools)
        starts = new_log_starts([step for step in kept if step.segment_id not in refused])
        raise_log_starts(starts, self._options.raise_log_starts)
        labels = CLEANUP_LABELS if self._plan.command == "copy" else SWEEP_LABELS
        return [*dropped, *delete_wave(kept, segments, self._tools, labels, refused=refused)]

    def _recheck(self, steps: Sequence[Step]) -> tuple[list[Outcome], list[Step]]:
        """Read the metadata to their new end; what no longer holds, and what is left."""
        checked = recheck(replace(self._plan, steps=tuple(steps)), self._tools.metadata.refresh())
        dropped = [_dropped(d) for d in checked.dropped]
        kept = []
        for step in checked.plan.steps:
            if step.topic_id_partition.key in self._broken and _builds_on_earlier(step):
                reason = "an earlier step of the partition no longer holds"
                dropped.append(Outcome(step=step, status=Status.DROPPED, reason=reason))
            else:
                kept.append(step)
        self._broken |= {
            outcome.step.topic_id_partition.key
            for outcome in dropped
            if outcome.status is Status.DROPPED and _builds_on_earlier(outcome.step)
        }
        return dropped, kept

    def _raise_asked_log_starts(self) -> None:
        if self._halted is None and not self._tools.stop.asked():
            raise_log_starts(self._options.log_starts, self._options.raise_log_starts)

    def _commit(self) -> None:
        commit = self._options.commit_processed
        if self._plan.command != "delete" or commit is None or self._halted or self._tools.stop.asked():
            return
        with effect("delete.offsets.commit"):
            commit(processed_offsets(self._tools.metadata.state))


def _builds_on_earlier(step: Step) -> bool:
    return LINEAGE_EPOCH in step.details


def _dropped(dropped: Dropped) -> Outcome:
    status = Status.DONE if dropped.is_done else Status.DROPPED
    return Outcome(step=dropped.step, status=status, reason=dropped.reason)
