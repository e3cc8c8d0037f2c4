"""Inspect the tier of a request before anything is planned for it, or read from it."""

from tierctl.apply.tier_check import tier_contents
from tierctl.commands.request import MutationRequest, Request
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model.progress import Progress
from tierctl.plan.safety import TierContents, check_tier, require_recognised
from tierctl.plan.steps import Action, Plan
from tierctl.storage import RemoteStorageManager


def require_own_tier(
    request: Request,
    remote: RemoteStorageManager,
    metadata: RemoteLogMetadataManager,
    progress: Progress,
    *,
    may_be_new: bool = False,
) -> TierContents:
    """Return facts about `remote`; raise an error if it is not the tier of `metadata`, whose state was read.

    With `may_be_new`, the tier need not exist while the metadata has no finished segment. A request that
    changes nothing accepts missing objects in a tier with a matching identity.
    """
    contents = tier_contents(remote, metadata.state, may_be_new=may_be_new)
    changes = request if isinstance(request, MutationRequest) else None
    note = check_tier(
        contents,
        metadata.identity(),
        is_reading=not request.is_mutating,
        allow_missing_objects=changes is not None and changes.allow_missing_objects,
        adopt=changes is not None and changes.adopt_tier,
    )
    if note is not None:
        progress.note(note)
    return contents


def require_deletable(plan: Plan, contents: TierContents, request: MutationRequest) -> None:
    """Raise RemoteTierMissing if `plan` deletes segments, and nothing shows that this is their tier."""
    is_waived = request.allow_missing_objects or request.adopt_tier
    if not is_waived and any(step.action is Action.DELETE_SEGMENT for step in plan.steps):
        require_recognised(contents)
