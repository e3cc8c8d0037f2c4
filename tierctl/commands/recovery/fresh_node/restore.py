"""`restore --into`: give a formatted node that was never started the topics of a lost cluster."""

import os
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.materialise.new_folder import remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.restore.node import NewNode
from tierctl.apply.run import RunOptions
from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.recovery.fresh_node.metadata import NewNodeMetadata
from tierctl.commands.recovery.fresh_node.proof import require_objects_are_safe
from tierctl.commands.recovery.fresh_node.topics import TopicFinder, read_saved_topics
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import APPLY, DECIDE, TYPED_ONLY, RestoreAfterHole, RestoredMetadata
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.files import exclusive
from tierctl.locallog import FormattedNode, ensure_stopped, list_partitions, read_formatted_node
from tierctl.metadata.base import RemoteLogMetadataManager
from tierctl.model import TopicIdPartition
from tierctl.model.progress import Progress
from tierctl.model.settings import broker, topic
from tierctl.plan.restore.plan import RESTORE, RestorePlan, RestorePlanner, TopicSource
from tierctl.plan.restore.topics import COPYING_DISABLED, NewBroker
from tierctl.plan.steps import Plan
from tierctl.wire.kraft.records import topic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest(MutationRequest):
    """A request to restore topics of a tier, under their old ids, into a node that was formatted only.

    `log_dir` names the broker's log directories; the metadata topic is created in the first one.
    """

    metadata: RestoredMetadata = None
    into: Annotated[
        str,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Restore the topics, under their old ids, on a node that was formatted and never started. "
            "DIR is the metadata log directory (metadata.log.dir) of its controller; --log-dir names the log "
            "directories of its broker. If the server.properties in --config names several controllers, the "
            "output states which file each of them needs.",
            rich_help_panel=DECIDE,
        ),
    ]
    topics_file: Annotated[
        str | None,
        typer.Option(
            "--topics-file",
            metavar="FILE",
            help="With --into: the YAML file that backup-config wrote, with topic ids, numbers of partitions "
            "and settings. Settings in --topic-configs take precedence.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    deletes_are_denied: Annotated[
        bool,
        typer.Option(
            "--deletes-are-denied",
            help="With --into: assume that nobody, brokers included, can delete objects of the tier now. "
            "Without this option tierctl requires that the bucket has versioning, or that it denies the "
            "deletion of a test object that tierctl writes.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    copy_of_objects: Annotated[
        str | None,
        typer.Option(
            "--copy-of-objects",
            metavar="URI",
            help="With --into: a copy of the tier. tierctl requires that it has every object, with the same "
            "size.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = None
    publish_later: Annotated[
        bool,
        typer.Option(
            "--publish-later",
            help="With --into, from Kafka 3.9 on: do not write the metadata topic. Publish the events with "
            "rebuild --metadata kafka://... once the brokers run. Copying stays disabled until then.",
            rich_help_panel=DECIDE,
        ),
    ] = False
    after_hole: RestoreAfterHole = False

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if not self.log_dir:
            raise UsageError("--log-dir is missing", hint="name the log directories of the formatted broker")
        if self.partition:
            raise UsageError(
                "--partition can't be used with --into: a topic is created with all its partitions",
                hint="name topics with --topic",
            )
        if self.topics_file is None and self.topic_configs is None:
            raise UsageError(
                "--topics-file is missing: the tier does not contain topic settings and numbers of "
                "partitions",
                hint="name the file that tierctl backup-config wrote, or --topic-configs",
            )


def restore(request: RestoreRequest, progress: Progress | None = None) -> MutationResult:
    """Plan logs, checkpoints, metadata events and topics of the node; with `apply`, write them.

    No object of the tier is changed. Raise SafetyRefusal if the node was started or is not formatted, if
    offsets are missing, if the settings of a topic are unknown, or if nothing proves that the objects
    survive; NotFoundError for a selected topic that does not exist; and the errors of the tier.
    """
    return PLANNER.run(request, progress)


def _reader(resources: Resources) -> RemoteLogMetadataManager:
    return resources.enter(closing(NewNodeMetadata(resources)))


@dataclass(kw_only=True)
class _Restore:
    """The plan of one run with its request, the node, and the topics to restore."""

    run: Mutation
    request: RestoreRequest
    node: FormattedNode
    topics: Sequence[TopicSource]
    found: RestorePlan

    def options(self) -> RunOptions:
        """Return the logs and records to write; the fence refuses if the node was started meanwhile."""
        former = self.node.bootstrap
        new = NewNode(
            logs=self.found.logs,
            bootstrap_path=self.node.bootstrap_path,
            former=former.data,
            content=former.extended(self.found.records),
            has_metadata_topic=not self.request.publish_later,
        )
        return RunOptions(fence=self._fence, new_node=new)

    def _fence(self, partitions: Collection[TopicIdPartition]) -> None:
        del partitions
        read_formatted_node(Path(self.request.into), self.request.log_dir)

    def check(self, plan: Plan) -> None:
        """Raise SafetyRefusal if `plan` may not be applied."""
        if self.found.refused:
            hint = "leave these topics out with --topic, or do what the reason says"
            raise refusal_of(sorted(self.found.refused.items()), hint)
        if self.request.publish_later and not self._broker.start_settings:
            raise SafetyRefusal(
                "the node has a Kafka before 3.9, whose topics can't start with copying disabled: a leader "
                "that knows no segment raises the log start, and then deletes what is published",
                hint="leave --publish-later out: the events are written before the node starts",
            )
        self._require_owner()
        self._require_no_other_folders()
        if len(plan.steps) != len(self.found.plan.steps):
            raise SafetyRefusal(
                "the saved plan differs from a new one, and a topic must be restored as a whole",
                hint="make the plan again",
            )
        if plan.steps and not self.request.deletes_are_denied:
            require_objects_are_safe(
                self.run, copy=self.request.copy_of_objects, writes_probe=self.request.apply
            )

    def _require_owner(self) -> None:
        """Raise SafetyRefusal if a folder has another owner: the broker could not write the new files."""
        for folder in (Path(self.request.into), *self.request.log_dir):
            owner = folder.stat().st_uid
            if owner != os.geteuid():
                raise SafetyRefusal(
                    f"{folder} belongs to user {owner}, this is user {os.geteuid()}",
                    hint="run as the user of the broker, who must be able to write the new files",
                )

    def _require_no_other_folders(self) -> None:
        """Raise SafetyRefusal if a log directory has a partition of a topic that no restore created."""
        restored = {found[1] for found in map(topic_of, self.node.bootstrap.values) if found is not None}
        restored |= {source.topic_id for source in self.topics}
        others = [each for each in list_partitions(self.request.log_dir) if each.topic_id not in restored]
        if others:
            raise SafetyRefusal(
                f"a log directory has a folder of {others[0]} already",
                hint="the node must have no partition: format new directories",
            )

    def warn(self) -> None:
        """Warn of segments that retention will delete as soon as the node runs."""
        now_ms = self.run.resources.now_ms
        for source in self.topics:
            retention_ms = topic.RETENTION_MS.kafka_value(source.settings)
            chains = [each.decision.choice.chain for each in source.partitions.values()]
            segments = [segment for chain in chains for segment in chain]
            expired = [each for each in segments if 0 < each.max_timestamp_ms < now_ms - retention_ms]
            if expired and retention_ms >= 0:
                self.run.progress.warn(
                    f"{source.topic}: {len(expired)} of {len(segments)} segments are older than "
                    f"{topic.RETENTION_MS.name}={retention_ms}: the broker deletes their objects as soon as "
                    f"it runs, unless you set {topic.RETENTION_MS.name} to -1 in the file"
                )
            retention_bytes = topic.RETENTION_BYTES.given(source.settings)
            limit = -1 if retention_bytes is None else retention_bytes
            larger = [chain for chain in chains if sum(s.segment_size_in_bytes for s in chain) > limit >= 0]
            if larger:
                self.run.progress.warn(
                    f"{source.topic}: {len(larger)} of {len(chains)} partitions are larger than "
                    f"{topic.RETENTION_BYTES.name}={limit}: the broker deletes their oldest objects as soon "
                    f"as it runs, unless you set {topic.RETENTION_BYTES.name} to -1 in the file"
                )

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Remove temporary folders of killed runs, and print the operator's next steps."""
        for log in self.found.logs.values():
            remove_left(log.log_dir, str(log.partition.topic_partition))
        if not outcomes or any(outcome.status is not Status.DONE for outcome in outcomes):
            return
        publish = (
            "keep consumers away, publish the metadata of the tier with tierctl rebuild --metadata "
            "kafka://HOST:PORT while copying is disabled, "
            if self.request.publish_later
            else ""
        )
        others = self._other_controllers
        if others:
            self.run.progress.say(
                f"{self.node.bootstrap_path} has the topics: copy it to each of the other {others} "
                "controllers, in the place of the file of the same name, and start these first: a broker "
                "that starts before a controller knows the topics sets their logs aside as strays"
            )
        self.run.progress.say(
            f"now start the node, {publish}and check it with tierctl restore --check. Each partition has one "
            "replica; add others by reassignment"
        )
        for source in self.topics if self._broker.start_settings else ():
            if not source.is_tiered:
                continue
            former = [f"{name} {source.settings.get(name, 'unset')}" for name in COPYING_DISABLED]
            self.run.progress.say(
                f"{source.topic}: once the restore is checked, restore the previous values of "
                f"{', '.join(former)}"
            )

    @property
    def _broker(self) -> NewBroker:
        return _broker_of(self.node)

    @property
    def _other_controllers(self) -> int:
        """The number of further controllers that the broker's settings name."""
        given = self.run.resources.broker_settings
        quorum = (broker.CONTROLLER_QUORUM_VOTERS, broker.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
        return max(1, *(len(each.value(given)) for each in quorum)) - 1


def _broker_of(node: FormattedNode) -> NewBroker:
    return NewBroker(
        node_id=node.node_id, directories=node.directories, metadata_version=node.metadata_version
    )


def _decide(run: Mutation, request: RestoreRequest) -> Decision:
    for folder in request.log_dir:
        ensure_stopped(Path(folder))
    node = read_formatted_node(Path(request.into), request.log_dir)
    if request.apply:
        run.resources.enter(exclusive(Path(request.into)))
    if not isinstance(run.metadata, NewNodeMetadata):
        raise TypeError("the metadata of a restore are those of a new node")
    metadata_topic = None if request.publish_later else run.metadata.topic(node, run.remote)
    finder = TopicFinder(
        run=run,
        log_dirs=list(node.directories),
        saved=read_saved_topics(request.topics_file),
        configs=run.resources.topic_configs(),
    )
    topics = finder.find()
    planner = RestorePlanner(
        broker=_broker_of(node),
        metadata_topic=metadata_topic,
        present=node.bootstrap.values,
        after_hole=request.after_hole,
    )
    found = planner.plan(topics, read=run.metadata.state.read)
    decided = _Restore(run=run, request=request, node=node, topics=topics, found=found)
    decided.warn()
    return Decision(plan=found.plan, options=decided.options, check=decided.check, conclude=decided.conclude)


PLANNER = Planner(
    command=RESTORE,
    request=RestoreRequest,
    decide=_decide,
    options=("into", "topics_file", "deletes_are_denied", "copy_of_objects", "publish_later", "after_hole"),
    writes_logs=True,
    changes_tier=False,
    reader=_reader,
)
