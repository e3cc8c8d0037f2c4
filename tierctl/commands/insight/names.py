"""Check the names in the options of a command that runs later, without running it."""

from dataclasses import dataclass
from pathlib import Path

from tierctl.commands.change import read_plan
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.tier_inspection import require_own_tier
from tierctl.errors import (
    AuthenticationError,
    MetadataError,
    NotFoundError,
    RemoteStorageError,
    RemoteTierMissing,
)
from tierctl.model.progress import Progress, SilentProgress
from tierctl.plan.preconditions import require_known_names
from tierctl.state.tier_state import TierState

_UNREACHABLE = (MetadataError, RemoteStorageError, AuthenticationError)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesRequest(Request):
    """The names of topics, files, tiers and settings that a command has in its options."""

    may_be_new: bool = False
    """Whether the command creates the metadata topic and the tier if they do not exist."""
    has_topics_of_tier: bool = False
    """Whether the command takes its topics from the tier; they are not checked."""
    plan: Path | None = None
    """A saved plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesResult:
    """Whether the names of topics and tiers were checked: `unchecked` is the reason if they were not."""

    unchecked: str | None = None


def check_names(request: NamesRequest, progress: Progress | None = None) -> NamesResult:
    """Raise the error that the command would end with because of a name in its options.

    Topics are looked for in the metadata, the log directories and the cluster. The state directory is not
    read, because the command may create it. Names can't be checked if the metadata topic is not on this
    machine, or if a server does not answer.
    """
    progress = SilentProgress() if progress is None else progress
    try:
        _open_metadata(request, progress)
    except (*_UNREACHABLE, NotFoundError) as e:
        return NamesResult(unchecked=e.message)
    try:
        _check(request, progress)
    except RemoteTierMissing:
        raise
    except _UNREACHABLE as e:
        return NamesResult(unchecked=e.message)
    return NamesResult()


def _open_metadata(request: NamesRequest, progress: Progress) -> None:
    """Open the metadata topic, if the request names one; raise the error if it can't be opened."""
    if request.metadata is None:
        return
    place = Request(
        metadata=request.metadata, command_config=request.command_config, broker_config=request.broker_config
    )
    with Resources(request=place, progress=progress) as resources:
        resources.metadata_topic(quiet=True)


def _check(request: NamesRequest, progress: Progress) -> None:
    if request.plan is not None:
        read_plan(request.plan)
    with Resources(request=request, progress=progress) as resources:
        state, metadata = TierState(read={}), None
        if request.metadata is not None:
            metadata = resources.metadata(is_whole=True)
            state = metadata.refresh()
        if not request.has_topics_of_tier and (metadata is not None or resources.cluster is not None):
            resources.select_among(state)
        configs, known = resources.topic_configs(), resources.known_topics(state)
        if known:
            require_known_names(configs, known, known - configs.keys())
        if request.remote is not None and metadata is not None:
            may_be_new = request.may_be_new
            require_own_tier(request, resources.remote, metadata, progress, may_be_new=may_be_new)
