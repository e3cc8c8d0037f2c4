"""Decisions and results of mutating commands, and the files in which plans are saved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierctl.apply.outcome import Outcome
from tierctl.apply.run import RunOptions
from tierctl.commands.request import MutationRequest, Request
from tierctl.errors import SafetyRefusal, TierctlError, UsageError, output_error
from tierctl.files import read_regular, why_distrusted, write_durably
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model.location import DERIVED, canonical_uri
from tierctl.model.progress import Progress
from tierctl.plan.rebuild.plan import HostsPlan
from tierctl.plan.saved import PlanPlace, SavedPlan, refusal
from tierctl.plan.steps import Plan, check_not_ahead
from tierctl.report.plans import OUTCOMES, STEPS
from tierctl.report.results import TableResult, TableRows
from tierctl.storage import RemoteStorageManager
from tierctl.storage.identity import tier_layout

_HINT = "name the file that --plan-out wrote"
_OWN_PLAN = (
    "make the plan again with --plan-out in a folder of this user; nobody but this user and root may own or "
    "write the file, nor write the folder unless it is sticky, as /tmp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult(TableResult):
    """A plan and, if it was carried out, the outcome of each of its steps."""

    saved: SavedPlan
    """The plan as --plan-out writes it."""
    outcomes: Sequence[Outcome] | None
    """None if the plan was only made."""
    exit_code: int
    conclusion: str | None = None
    """What must be done before anything else, if the run requires something."""
    is_refused: bool = False
    """Whether `--apply` would refuse the plan, which was only made."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.saved.plan

    @property
    def is_pending(self) -> bool:
        """Whether the plan has steps that have not been carried out."""
        return self.outcomes is None and bool(self.plan.steps)

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: the steps of the plan, or their outcomes."""
        if self.outcomes is None:
            return STEPS, [step.to_json() for step in self.plan.steps]
        return OUTCOMES, [outcome.to_json() for outcome in self.outcomes]


def _accept(plan: Plan) -> None:
    """Accept `plan`: used where no rule forbids to carry it out."""


def _no_report(outcomes: Sequence[Outcome]) -> None:
    """Report nothing about `outcomes`: used by commands whose summary is sufficient."""


def _no_announcement() -> None:
    """Announce nothing: used by commands whose plan needs no steps of the operator."""


def _accept_topics() -> None:
    """Accept the topics that the plan leaves out: used by commands that are not refused for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The plan that a command decided from the current state, and how it is carried out.

    `check` raises LimitExceeded or SafetyRefusal for a plan (this one or a part of it) that must not be
    carried out. `require_topics` raises SafetyRefusal if explicitly selected topics are skipped; `apply` does
    not call it, because it drops the steps of such topics. `conclude` is called with the outcomes of a plan
    that was carried out. `hosts` is what each of several hosts writes. `announce` is called once the
    plan is saved.
    """

    plan: Plan
    options: Callable[[], RunOptions]
    check: Callable[[Plan], None] = _accept
    require_topics: Callable[[], None] = _accept_topics
    conclude: Callable[[Sequence[Outcome]], str | None] = _no_report
    hosts: HostsPlan | None = None
    announce: Callable[[], None] = _no_announcement


def place_of(
    request: Request, metadata: RemoteLogMetadataManager, remote: RemoteStorageManager | None
) -> PlanPlace:
    """Return the tier and the metadata topic that `request` names; `remote` and `metadata` have them open."""
    return PlanPlace(
        metadata=DERIVED if request.metadata is None else canonical_uri("--metadata", request.metadata),
        cluster=metadata.identity(),
        tier=None if request.remote is None else canonical_uri("--remote", request.remote),
        layout=None if remote is None else tier_layout(remote),
    )


def write_plan(plan: SavedPlan, file: Path | None, progress: Progress) -> None:
    """Write the plan to `file` for `tierctl apply`, atomically, and print its digest; do nothing for None.

    Only this user may read and write the file, whatever was there before. Raise the errors of `output_error`.
    """
    if file is None:
        return
    try:
        write_durably(file.absolute(), [plan.dumps().encode()], mode=0o600)
    except OSError as e:
        raise output_error(f"--plan-out {file}", e) from e
    progress.note(f"the digest of {file}, for apply --digest: {plan.digest}")


def require_not_ahead(request: MutationRequest) -> None:
    """Raise SafetyRefusal if the request decides as of a time in the future."""
    if request.now_ms is not None:
        check_not_ahead(request.now_ms, clock_ms=request.clock_ms())


def read_plan(file: Path, *, digest: str | None = None) -> SavedPlan:
    """Return the plan in `file`.

    Raise UsageError if the file can't be read or is not a plan, and SafetyRefusal for one that somebody else
    may write, that was edited, that has another version, or whose digest is not `digest`.
    """
    try:
        distrusted = why_distrusted(file, sticky_folder=True) if file.is_file() else None
        if distrusted is not None:
            raise SafetyRefusal(f"plan {file} is not read: {distrusted}", hint=_OWN_PLAN)
        text = read_regular(file).decode()
    except OSError as e:
        raise UsageError(f"plan {file}: {e.strerror}", hint=_HINT) from e
    except UnicodeDecodeError as e:
        raise UsageError(f"plan {file} is no text: {e}", hint=_HINT) from e
    if not text.strip():
        raise UsageError(f"plan {file} is empty", hint=_HINT)
    try:
        saved = SavedPlan.loads(text)
        if digest is not None and digest.lower() != saved.digest:
            hint = "this is another plan than the one of --digest"
            raise refusal("digest", expected=digest, found=saved.digest, hint=hint)
    except TierctlError as e:
        e.message = f"{file}: {e.message}"
        raise
    return saved
