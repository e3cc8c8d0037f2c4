"""The planner of a mutating command: how its plan is decided, again and again from the current state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from tierctl.apply.stop import Stop
from tierctl.commands.mutation import Decision, Mutation, MutationResult, mutation
from tierctl.commands.request import MutationRequest
from tierctl.model.progress import Progress, SilentProgress

R = TypeVar("R", bound=MutationRequest)


def _never(request: MutationRequest) -> bool:
    """Return False: used by commands that make no metadata topic."""
    del request
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner(Generic[R]):
    """One mutating command: the class of its requests, and the function that decides its plan.

    The command itself and `apply` of a saved plan both call `decide`, so that a step is carried out only if
    the current state produces it. With `logs_decide`, deletes are decided from log directories; with
    `may_be_new`, the metadata folder need not have a metadata topic yet. `makes_topic` returns whether a
    request makes a missing metadata topic on a cluster.
    """

    command: str
    request: type[R]
    decide: Callable[[Mutation, R], Decision]
    logs_decide: bool = False
    may_be_new: bool = False
    makes_topic: Callable[[R], bool] = _never

    @contextmanager
    def opened(
        self, request: R, progress: Progress | None, *, may_be_new: bool | None = None
    ) -> Iterator[Mutation]:
        """Check the fields of `request` and open what it names; `may_be_new` overrides the planner's.

        Raises UsageError for fields that contradict each other, and the errors of `mutation`.
        """
        request.validate()
        with mutation(
            request.target,
            progress or SilentProgress(),
            logs_decide=self.logs_decide,
            may_be_new=self.may_be_new if may_be_new is None else may_be_new,
            make_topic=self.makes_topic(request),
        ) as run:
            yield run

    def run(self, request: R, progress: Progress | None, *, stop: Stop | None = None) -> MutationResult:
        """Decide the plan, and with `apply` carry it out; with `stop` the caller listens to signals."""
        with self.opened(request, progress) as run:
            return run.conclude(self.decide(run, request), stop=stop)
