"""The tier that segments are copied from, for `copy` and for `apply` of such a plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from tierctl.apply.copy.source import Sources
from tierctl.apply.copy.tier_source import TierSources
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import FromLayout, FromRemote, ToCommandConfig, ToMetadata
from tierctl.errors import UsageError
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress
from tierctl.storage import RemoteStorageManager
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.open import TierSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TierToTierRequest(MutationRequest):
    """A request that may copy from one tier to another.

    With `from_remote`, `metadata` is the metadata topic of the tier that is copied from.
    """

    from_remote: FromRemote = None
    from_layout: FromLayout = None
    to_metadata: ToMetadata = None
    to_command_config: ToCommandConfig = None

    @property
    def target(self) -> Self:
        """Implement `MutationRequest.target`: `metadata` is that of the tier that is copied to."""
        if self.to_metadata is None:
            return self
        # The state directory is that of `metadata`.
        config = self.to_command_config or self.command_config
        return replace(self, metadata=self.to_metadata, state_dir=None, command_config=config)

    @property
    def source(self) -> Self:
        """The request with `remote` being the tier that is copied from."""
        return replace(self, remote=self.from_remote, layout=self.from_layout, adopt_tier=False)

    def validate(self) -> None:
        """Implement `MutationRequest.validate`; refuse to copy a tier onto itself, too."""
        if self.from_remote is None:
            for name in ("to_metadata", "from_layout", "to_command_config"):
                if getattr(self, name) is not None:
                    raise UsageError(f"--{name.replace('_', '-')} needs --from-remote")
            return
        if self.log_dir:
            raise UsageError("--log-dir and --from-remote exclude each other", hint="copy from one of them")
        if self.to_metadata is None:
            raise UsageError(
                "--to-metadata is missing",
                hint="the copies need another metadata topic: in the metadata topic of --from-remote, a "
                "broker would take each copy for a second copy of the same offsets, and never delete the "
                "first",
            )
        metadata = None if self.metadata is None else canonical_uri("--metadata", self.metadata)
        if metadata == canonical_uri("--to-metadata", self.to_metadata):
            raise UsageError("--metadata and --to-metadata are the same topic", hint="name another one")
        remote = None if self.remote is None else canonical_uri("--remote", self.remote)
        if remote == canonical_uri("--from-remote", self.from_remote) and self.from_layout == self.layout:
            raise UsageError(
                "--from-remote and --remote are the same tier", hint="name another tier, or another layout"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTier:
    """The tier that is copied from, opened for reading; its metadata are read to their end."""

    metadata: RemoteLogMetadataManager
    remote: RemoteStorageManager
    sources: Sources
    spec: TierSpec


@contextmanager
def source_tier(request: TierToTierRequest, progress: Progress) -> Iterator[SourceTier]:
    """Open the metadata topic and the tier that are copied from."""
    with Resources(request=request.source, progress=progress) as resources, spool_folder() as spool:
        metadata, remote = resources.metadata(), resources.remote
        metadata.refresh()
        resources.inspect_tier(metadata)
        yield SourceTier(
            metadata=metadata,
            remote=remote,
            sources=TierSources(metadata, remote, spool),
            spec=resources.tier_spec().resolved(remote),
        )
