"""Carry out a plan in waves, by the act of each step's action. A step that fails is reported, not raised."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tierctl.apply.run_context import STOPPED, Outcome, RunContext, Status
from tierctl.apply.tier_check import claim_tier
from tierctl.errors import AuthenticationError, MetadataError, TierctlError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.plan.recheck import Dropped, recheck
from tierctl.plan.steps import Action, Plan, Step

_Key = tuple[Uuid, int]

Fence = Callable[[Collection[TopicIdPartition]], None]
"""Raises SafetyRefusal if a broker or another program may be changing one of these partitions."""

Act = Callable[["Run", Sequence[Step]], None]
"""Carries out the steps of one action, by waves that it passes to `Run.attempt`.

It is called once, without steps, too, and gets only steps that no earlier act carried out. What it raises
outside of `attempt` and `halting` ends the run without outcomes.
"""

Acts = Mapping[Action, Act]
"""What is done for each action of a command's plans, in the order in which a run does it."""


def run(
    plan: Plan, context: RunContext, acts: Acts, *, fence: Fence | None = None, changes_tier: bool = True
) -> list[Outcome]:
    """Carry out `plan` and return one outcome per step, in the plan's order.

    `fence` is called before each wave, because brokers may start while the plan is carried out; None if no
    other program can change the partitions. If publishing fails, the content of the metadata log is unknown,
    so the run begins nothing more. Raise SafetyRefusal before the first step if objects are changed
    (`changes_tier`) and the tier belongs to another metadata topic; ValueError for an action without an act.
    """
    unknown = {step.action for step in plan.steps} - acts.keys()
    if unknown:
        raise ValueError(f"{plan.command} can't carry out {', '.join(sorted(unknown))}")
    if changes_tier:
        claim_tier(context, plan)
    this = Run(plan, context, fence)
    for action, act in acts.items():
        act(this, [step for step in plan.steps if step.action is action and this.outcome(step) is None])
    return this.outcomes()


class Run:
    """A plan while it is carried out: what each act has in common."""

    def __init__(self, plan: Plan, context: RunContext, fence: Fence | None) -> None:
        self.plan = plan
        self.context = context
        self.fence = fence or _no_fence
        self._broken: set[_Key] = set()
        # The key is `id(step)`, because two steps of a plan may be equal.
        self._outcomes: dict[int, Outcome] = {}
        self._halted: TierctlError | None = None

    @property
    def is_halted(self) -> bool:
        """Return whether the run must begin nothing more."""
        return self._halted is not None

    def outcome(self, step: Step) -> Outcome | None:
        """Return the outcome of `step`; None if it has none yet."""
        return self._outcomes.get(id(step))

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of all steps in the plan's order."""
        return [self._outcomes[id(step)] for step in self.plan.steps]

    def attempt(
        self,
        steps: Sequence[Step],
        do: Callable[[Sequence[Step]], Iterable[Outcome]],
        *,
        rechecked: bool = False,
    ) -> None:
        """Call `do` with the steps of one wave, or only those that `recheck` keeps, unless the run ended.

        `do` returns one outcome per step; an error that it raises was met while publishing, and ends the run.
        """
        if self.may_begin():
            with self.halting(steps):
                self.fence({step.topic_id_partition for step in steps})
                left = self.recheck(steps)[0] if rechecked else steps
                if left or not rechecked:
                    self.record(do(left))
        self.end(steps)

    def may_begin(self) -> bool:
        """Return whether another wave may begin."""
        return not self.is_halted and not self.context.stop.asked()

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Record the outcomes of steps that have none yet, those of one wave at a time.

        If each step of a wave that did not end well was refused for lack of rights, and none ended well, the
        run begins nothing more: the next wave would be refused as well.
        """
        wave = list(outcomes)
        for outcome in wave:
            self._outcomes.setdefault(id(outcome.step), outcome)
        errors = [outcome.error for outcome in wave if outcome.status is Status.FAILED]
        is_refused = all(isinstance(error, AuthenticationError) for error in errors)
        if self._halted is None and errors and is_refused and all(o.status is not Status.DONE for o in wave):
            self._halted = errors[0]

    def end(self, steps: Sequence[Step]) -> None:
        """Record an outcome for each of `steps` that has none, because the run ended before it."""
        self.record(self._not_begun(step) for step in steps if id(step) not in self._outcomes)

    def _not_begun(self, step: Step) -> Outcome:
        if self._halted is None:
            return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
        reason = f"not begun, since the run could not go on: {self._halted.message}"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)

    @contextmanager
    def halting(self, begun: Sequence[Step]) -> Iterator[None]:
        """End the run after an error in the block; steps in `begun` without an outcome have then failed."""
        try:
            yield
        except TierctlError as e:
            self._halted = e
        except OSError as e:
            self._halted = MetadataError(str(e))
        if self._halted is not None:
            error = self._halted
            self.record(Outcome(step=step, status=Status.FAILED, error=error) for step in begun)

    def require_all_done(self) -> None:
        """End the run if a step was not done."""
        undone = next((each for each in self._outcomes.values() if each.status is not Status.DONE), None)
        if undone is not None and self._halted is None:
            self._halted = undone.error or MetadataError(undone.reason or "an earlier step was not done")

    def break_undone(self) -> None:
        """Let the later steps of a partition fail the recheck if one of its steps was not done."""
        undone = (each.step for each in self._outcomes.values() if each.status is not Status.DONE)
        self._broken |= {step.topic_id_partition.key for step in undone}

    def recheck(self, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
        """Read the metadata to their end; return the steps that still hold, and those that were dropped.

        The outcomes of steps that are dropped, or that another program did, are recorded.
        """
        plan = replace(self.plan, steps=tuple(steps))
        checked = recheck(plan, self.context.metadata.refresh(), self._broken)
        self.record(_dropped(each) for each in checked.dropped)
        return list(checked.plan.steps), [each.step for each in checked.dropped if not each.is_done]


def _no_fence(partitions: Collection[TopicIdPartition]) -> None:
    """Accept `partitions`: used when no other program can change them."""


def _dropped(dropped: Dropped) -> Outcome:
    status = Status.DONE if dropped.is_done else Status.DROPPED
    return Outcome(step=dropped.step, status=status, reason=dropped.reason)
