"""The planner of a mutating command: how its plan is decided, again and again from the current state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from tierctl.apply.stop import Stop
from tierctl.commands.mutation import Mutation, mutation
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.metadata.topic import topic_location
from tierctl.metadata.topic.folder import removed_if_unused
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model.progress import Progress, SilentProgress
from tierctl.plan.saved import refusal

R = TypeVar("R", bound=MutationRequest)


def _never(request: MutationRequest) -> bool:
    """Return False: used by commands that make no metadata topic."""
    del request
    return False


def _no_settings(request: MutationRequest, resources: Resources) -> FolderSettings | None:
    """Return no settings: used by commands that write a metadata topic as `open_topic` does."""
    del request, resources
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner(Generic[R]):
    """One mutating command: the class of its requests, and the function that decides its plan.

    The command itself and `apply` of a saved plan both call `decide`, so that a step is carried out only if
    the current state produces it. `options` are the fields of a request that are saved with its plan, because
    `apply` has no options for them. With `logs_decide`, deletes are decided from log directories; with
    `writes_logs`, files in log directories are written; with `may_be_new`, the metadata folder need not have
    a metadata topic yet. `makes_topic` returns whether a request makes a missing metadata topic on a cluster.
    Without `changes_tier`, no object of the tier is written or deleted, so that no lease is taken and the
    tier need not be that of the metadata topic. `folder` returns the settings of a metadata topic in a
    folder. `reader` opens the metadata of a command that publishes none.
    """

    command: str
    request: type[R]
    decide: Callable[[Mutation, R], Decision]
    options: tuple[str, ...]
    logs_decide: bool = False
    writes_logs: bool = False
    may_be_new: bool = False
    makes_topic: Callable[[R], bool] = _never
    changes_tier: bool = True
    folder: Callable[[R, Resources], FolderSettings | None] = _no_settings
    reader: Callable[[Resources], RemoteLogMetadataManager] | None = None

    @contextmanager
    def opened(
        self, request: R, progress: Progress | None, *, must_exist: bool = False
    ) -> Iterator[Mutation]:
        """Check the fields of `request` and open what it names; if `must_exist`, no metadata topic is made.

        Raises UsageError for fields that contradict each other, and the errors of `mutation`.
        """
        request.validate()
        with ExitStack() as opened:
            # A command that changes the tier may have stored the id of a new topic there: such a topic stays.
            if self.may_be_new and not self.changes_tier and request.apply and request.metadata is not None:
                location = topic_location("--metadata", request.metadata)
                if location.is_local:
                    opened.enter_context(removed_if_unused(location.path))
            yield opened.enter_context(
                mutation(
                    request.target,
                    progress or SilentProgress(),
                    logs_decide=self.logs_decide,
                    writes_logs=self.writes_logs,
                    may_be_new=self.may_be_new and not must_exist,
                    make_topic=self.makes_topic(request) and not must_exist,
                    changes_tier=self.changes_tier,
                    folder=lambda resources: self.folder(request, resources),
                    reader=self.reader,
                )
            )

    def run(self, request: R, progress: Progress | None, *, stop: Stop | None = None) -> MutationResult:
        """Decide the plan, and with `apply` carry it out; with `stop` the caller listens to signals."""
        with self.opened(request, progress) as run:
            decision = self.decide(run, request)
            decision.require_topics()
            return run.conclude(decision, planned_by=self.saved_options(request), stop=stop)

    def saved_options(self, request: R) -> dict[str, Any]:
        """Return the options that are saved with the plan of `request`, as JSON values."""
        values = {name: getattr(request, name) for name in self.options}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def request_again(
        self, given: MutationRequest, options: Mapping[str, Any], selection: Mapping[str, Sequence[str]]
    ) -> R:
        """Return a request to decide a saved plan again.

        `options` were saved with the plan. The other fields are those of `given`, the request of `apply`, but
        for its topics and topic ids, which are those of `selection`. SafetyRefusal for options of another
        command, or of another version of this one.
        """
        if set(options) != set(self.options):
            raise refusal(
                "options", expected=", ".join(sorted(self.options)), found=", ".join(sorted(options))
            )
        shared = {field.name for field in fields(self.request)} & {field.name for field in fields(given)}
        values = {name: getattr(given, name) for name in shared} | dict(options) | dict(selection)
        make: Callable[..., R] = self.request
        return make(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
