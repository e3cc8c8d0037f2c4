"""`copy`: its request, and the one protocol of commands that change something."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import typer

from tierctl.apply.run import Acts, DeleteSegments
from tierctl.apply.run_context import Outcome
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.copy.act import BEGUN, CLEANUP_LABELS, CopySegments
from tierctl.commands.copy.decide import (
    custom_metadata_limit,
    decide_from_logs,
    decide_from_tier,
    record_breaches,
    without_breaches,
)
from tierctl.commands.request import (
    DECIDE,
    FROM_TIER,
    HOW,
    TYPED_ONLY,
    CustomMetadataMaxBytes,
    Layout,
    MutationRequest,
)
from tierctl.errors import UsageError
from tierctl.model.choices import NOT_A_BROKER_ID
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress
from tierctl.model.selection import names_text
from tierctl.model.settings.topic import REMOTE_STORAGE_ENABLE
from tierctl.plan.copy import require_enabled
from tierctl.plan.steps import Action, Plan
from tierctl.report.table import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class TierToTierRequest(MutationRequest):
    """A request that may copy from one tier to another.

    With `from_remote`, `metadata` is the metadata topic of the tier that is copied from.
    """

    from_remote: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Copy segments from this tier, which --metadata describes, instead of from log directories.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None
    from_layout: Annotated[
        Layout | None,
        typer.Option(
            help="Layout of --from-remote. Default: the layout found there.", rich_help_panel=FROM_TIER
        ),
    ] = None
    to_metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Metadata topic of --remote, the tier that receives the copies. It must not be the metadata "
            "topic of --from-remote.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None
    to_command_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Like --command-config, for --to-metadata. Default: --command-config.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None

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
class CopyRequest(TierToTierRequest):
    """A request to copy the segments that a broker's copy task would copy next."""

    clean_dangling: Annotated[
        bool,
        typer.Option(
            help="Also delete the objects of copies that started over 24 hours ago and did not finish, "
            "whoever began them. copy always deletes what a killed run of tierctl began; sweep deletes "
            "objects below the log start offset.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    assume_enabled: Annotated[
        bool,
        typer.Option(
            help="With --topic: copy these topics although their settings do not state "
            "remote.storage.enable. Topics with remote.storage.enable=false and compacted topics are "
            "still refused.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    create_metadata_topic: Annotated[
        bool,
        typer.Option(
            help="Create __remote_log_metadata if the cluster does not have it, with the "
            "remote.log.metadata.topic.* settings of --broker-config (default: 50 partitions, 3 "
            "replicas).",
            rich_help_panel=HOW,
        ),
    ] = False
    custom_metadata_max_bytes: CustomMetadataMaxBytes = None

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        TierToTierRequest.validate(self)
        if self.from_remote is None and not self.log_dir:
            raise UsageError("--log-dir is missing", hint="name a broker's log directory (log.dirs)")
        if self.assume_enabled and self.from_remote is not None:
            raise UsageError(
                "--assume-enabled needs --log-dir", hint="copies from another tier need no settings"
            )
        if self.assume_enabled and not self.topic:
            raise UsageError("--assume-enabled needs --topic", hint="name each topic that may be copied")

    def require_complete(self) -> None:
        """Implement `Request.require_complete`: something must state which topics are enabled."""
        CopyRequest.validate(self)
        states_enabled = self.topic_configs is not None or self.has_cluster or self.assume_enabled
        if self.from_remote is None and not states_enabled:
            raise UsageError(
                "no source of topic settings is named, and only topics with "
                f"{REMOTE_STORAGE_ENABLE.name}=true are copied",
                hint="give the settings with --topic-configs, the cluster with --bootstrap-server, or each "
                "topic with --topic and --assume-enabled",
            )


def copy(request: CopyRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of every selected partition, and with `apply` carry them out.

    Copies rolled segments below the last stable offset, oldest first; segments that are in the tier already
    are not copied again. Topics without remote.storage.enable=true are left out. Source: Kafka's RLMCopyTask.
    Raises UsageError, SafetyRefusal, LockedError, and the errors of the tier and the metadata.
    """
    return Copy.of(request, progress)


class Copy(Change[CopyRequest]):
    """One run of `copy`."""

    command = "copy"
    request_type = CopyRequest
    saved = ("topic", "assume_enabled", "clean_dangling", "create_metadata_topic", "metadata_partitions")
    may_be_new = True

    @classmethod
    def makes_topic(cls, request: CopyRequest) -> bool:
        """Implement `Change.makes_topic`."""
        return request.create_metadata_topic

    def decide(self) -> Plan:
        """Implement `Change.decide`: the segments of log directories, or those of `from_remote`."""
        run, request = self.run, self.request
        if request.from_remote is not None:
            self._copies = decide_from_tier(run, request.source, clean_dangling=request.clean_dangling)
        else:
            self._copies = decide_from_logs(
                run, assume_enabled=request.assume_enabled, clean_dangling=request.clean_dangling
            )
        self._limit_bytes = custom_metadata_limit(run, request.custom_metadata_max_bytes)
        plan = without_breaches(run, self._copies.plan, self._limit_bytes)
        self.is_held_back = len(plan.steps) < len(self._copies.plan.steps)
        return plan

    def require_topics(self) -> None:
        """Implement `Change.require_topics`: a topic that is named must be enabled."""
        copies = self._copies
        if copies.examined is not None:
            require_enabled(
                {partition.topic for partition in copies.examined},
                copies.configs,
                named=self.run.resources.selection_request.named_topics,
                assumed=copies.assumed,
            )

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: no broker may do this work itself."""
        copied = sorted({step.topic for step in plan.steps if step.action is Action.COPY_SEGMENT})
        if copied and self.request.allow_live_brokers:
            self.run.progress.warn(
                f"--allow-live-brokers: brokers that tier {names_text(copied)} copy every segment of this "
                "plan again: they read what is copied only when they become leaders"
            )
        if self._copies.examined is None:
            self.run.check_fence({step.topic_id_partition for step in plan.steps})
        else:
            self.run.check_plan_fence(plan, self._copies.examined)

    def acts(self) -> Acts:
        """Implement `Change.acts`: the clean-up of what earlier runs left, then copies."""
        copying = CopySegments(sources=self._copies.sources, custom_metadata_max_bytes=self._limit_bytes)
        return {
            Action.DELETE_SEGMENT: DeleteSegments(labels=CLEANUP_LABELS),
            Action.COPY_SEGMENT: copying,
        }

    def conclude(self, outcomes: Sequence[Outcome]) -> str | None:
        """Implement `Change.conclude`: how the copies are ended that the run began before it was stopped.

        Segments whose custom metadata exceeded the limit are recorded, so that they are not uploaded again.
        """
        record_breaches(self.run, outcomes)
        begun = sum(outcome.reason == BEGUN for outcome in outcomes)
        if not begun:
            return None
        request, ending = self.request, "the next run withdraws what was stored and copies again"
        if request.no_lease or request.broker_id != NOT_A_BROKER_ID:
            ending = "the next run copies again, and 24 hours later --clean-dangling deletes what was stored"
        return f"{counted(begun, 'copy/copies')} begun and not finished: {ending}"
