"""`restore into`: give a formatted node that was never started the topics of a lost cluster."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.log_folder import remove_left
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run import Acts
from tierctl.apply.to_node import NewNode, restore_acts
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.fresh_node.metadata import NewNodeMetadata
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import APPLY, DECIDE, TYPED_ONLY, RestoreAfterHole
from tierctl.errors import AuthenticationError, NotFoundError, SafetyRefusal, UsageError
from tierctl.files import exclusive
from tierctl.locallog import FormattedNode, ensure_stopped, list_partitions, read_formatted_node
from tierctl.locallog.folders import read_if_exists
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import (
    ListedSet,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.local import SavedTopic, SavedTopics
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress
from tierctl.model.settings import broker, topic
from tierctl.model.settings.scopes import SettingSource
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.rebuild.partition_choice import PartitionDecision, PartitionInputs, decide_partition
from tierctl.plan.restore import (
    COPYING_DISABLED,
    RESTORE,
    NewBroker,
    PartitionSource,
    RestorePlanner,
    TopicSource,
)
from tierctl.plan.steps import Plan
from tierctl.storage import store_uri
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.identity import tier_name
from tierctl.storage.object_sets import by_partition
from tierctl.storage.object_tier import object_tier
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.stores.base import InspectableStore, Versioning
from tierctl.storage.stores.local_store import LocalStore
from tierctl.wire.files.topics_file import read_topics_file
from tierctl.wire.kraft import topic_of

_NO_SETTINGS = (
    "name the file that tierctl backup-config wrote (--topics-file), or a file of settings (--topic-configs)"
)


@dataclass(kw_only=True)
class TopicFinder:
    """Find the selected topics; `saved` is the file of `backup-config`, `configs` that of --topic-configs."""

    run: Mutation
    log_dirs: Sequence[Path]
    saved: SavedTopics
    configs: Mapping[str, TopicConfig]
    _listed: list[ListedSet] = field(default_factory=list, init=False)

    def find(self) -> list[TopicSource]:
        """Return the selected topics by name: those with objects in the tier, and those saved as tiered.

        Raise SafetyRefusal if the id or the settings of a topic are unknown, NotFoundError for a selected
        topic that is neither in the tier nor saved, and the errors of the tier.
        """
        tier = TierSets.to_change(self.run)
        self._listed = tier.listed()
        in_tier = {each.partition for each in self._listed}
        self.run.resources.resolve_selection(in_tier, self._in_file())
        chosen = self._chosen(in_tier)
        ids = set(chosen.values())
        sets = tier.derived([each for each in self._listed if each.partition.topic_id in ids])
        state = self.run.metadata.refresh()
        decided = []
        for partition, own in by_partition(sets).items():
            part = state.partition(partition)
            segments = () if part is None else part.cache.list_remote_log_segments()
            known = {segment.segment_id: segment.state for segment in segments}
            inputs = PartitionInputs(partition=partition, sets=own, known=known)
            decided.append((inputs, decide_partition(inputs)))
        sources = self._sources(tier, decided)
        return [self._topic(name, topic_id, sources) for name, topic_id in sorted(chosen.items())]

    def _in_file(self) -> Iterator[TopicIdPartition]:
        for saved in self.saved.topics.values():
            yield from (TopicIdPartition(saved.topic_id, saved.topic, n) for n in range(saved.partitions))

    def _chosen(self, in_tier: set[TopicIdPartition]) -> dict[str, Uuid]:
        """Return the ids of the selected topics by name."""
        resources = self.run.resources
        ids: dict[str, set[Uuid]] = {}
        for partition in in_tier:
            if partition in resources.selection and partition.topic not in INTERNAL_TOPICS:
                ids.setdefault(partition.topic, set()).add(partition.topic_id)
        for saved in self.saved.topics.values():
            is_named = saved.topic in resources.selection_request.topics
            is_tiered = saved.settings.get(topic.REMOTE_STORAGE_ENABLE.name) == "true"
            if TopicIdPartition(saved.topic_id, saved.topic, 0) in resources.selection and (
                is_named or is_tiered or saved.topic in ids
            ):
                others = ids.get(saved.topic, set()) - {saved.topic_id}
                if others and saved.topic_id not in ids[saved.topic]:
                    raise SafetyRefusal(
                        f"{saved.topic} has id {saved.topic_id} in --topics-file, the tier has objects of "
                        f"{', '.join(sorted(others))} only",
                        hint="the topic was created again after the file was written: correct its id",
                    )
                ids[saved.topic] = {saved.topic_id}
        several = sorted(name for name, found in ids.items() if len(found) > 1)
        if several:
            raise SafetyRefusal(
                f"the tier has objects of {len(ids[several[0]])} topics named {several[0]}",
                hint="a topic that was deleted and created again has another id: name the one to restore "
                "with --topic-id, or in the file of --topics-file",
            )
        if not ids:
            raise NotFoundError("no selected topic is tiered")
        return {name: next(iter(found)) for name, found in ids.items()}

    def _sources(
        self, tier: TierSets, decided: Sequence[tuple[PartitionInputs, PartitionDecision]]
    ) -> dict[TopicIdPartition, PartitionSource]:
        last = [decision.choice.chain[-1] for _, decision in decided if decision.choice.chain]
        snapshots = tier.producer_snapshots(last)
        return {
            inputs.partition: PartitionSource(
                inputs=inputs,
                decision=decision,
                snapshot=snapshots.get(inputs.partition),
                found=dict(self._folders(inputs.partition)),
            )
            for inputs, decision in decided
        }

    def _folders(self, partition: TopicIdPartition) -> Iterator[tuple[Path, dict[str, bytes]]]:
        """Yield the folders of a partition in the log directories, each with its files."""
        for log_dir in self.log_dirs:
            folder = log_dir / str(partition.topic_partition)
            if folder.is_dir():
                yield folder, {path.name: read_if_exists(path) or b"" for path in sorted(folder.iterdir())}

    def _topic(
        self, name: str, topic_id: Uuid, sources: Mapping[TopicIdPartition, PartitionSource]
    ) -> TopicSource:
        own = {key.partition: each for key, each in sources.items() if key.topic_id == topic_id}
        saved, config = self.saved.topics.get(name), self.configs.get(name)
        if saved is None and config is None:
            raise SafetyRefusal(f"the settings of {name} are unknown", hint=_NO_SETTINGS)
        settings = dict(saved.settings) if saved is not None else {}
        stated = () if config is None else config.stated.values()
        settings |= {each.name: each.value for each in stated if each.source is SettingSource.FILE}
        return TopicSource(
            topic=name,
            topic_id=topic_id,
            partition_count=self._partition_count(name, saved, own),
            settings=settings,
            partitions=own,
        )

    def _partition_count(self, name: str, saved: SavedTopic | None, own: Mapping[int, object]) -> int:
        in_tier = max(own, default=-1) + 1
        if saved is None:
            self.run.progress.warn(
                f"{name} gets {in_tier} partitions, those with objects in the tier: a partition that was "
                "never tiered leaves no trace, and --topic-configs has no number of partitions"
            )
            return in_tier
        if in_tier > saved.partitions:
            raise SafetyRefusal(
                f"{name} has {saved.partitions} partitions in --topics-file, the tier has segments of "
                f"{name}-{in_tier - 1}",
                hint="partitions were added after the file was written: correct its number",
            )
        return saved.partitions


def read_saved_topics(path: str | None) -> SavedTopics:
    """Return the topics in the `backup-config` file at `path`; None if `path` is None."""
    if path is None:
        return SavedTopics(topics={})
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise UsageError(f"--topics-file {path}: {e.strerror}") from e
    return read_topics_file(data, path)


_HINT = (
    "make the store deny deletes until the restored topics were checked (a policy, or versioning), or copy "
    "the objects and name the copy with --copy-of-objects; --deletes-are-denied overrides this check"
)
_PROBE = b"written by tierctl restore, to see whether deletes are denied; may be deleted\n"


def require_objects_are_safe(run: Mutation, *, copy: str | None, writes_probe: bool) -> None:
    """Raise SafetyRefusal unless a copy has every object, the bucket keeps versions, or deletes are denied.

    With `writes_probe`, an object of tierctl's own is written and its deletion attempted. Without it, a store
    whose protection only this attempt can show is neither refused nor reported as safe.
    """
    if copy is not None:
        _require_copy(run, copy)
        return
    tier = object_tier(run.remote)
    if tier is None or isinstance(tier.store, LocalStore):
        raise SafetyRefusal(
            f"it is not proven that the objects of {tier_name(run.remote)} can't be deleted", hint=_HINT
        )
    if isinstance(tier.store, InspectableStore) and _is_versioned(tier.store):
        return
    if not writes_probe:
        return
    if not _denies_deletes(run.remote):
        raise SafetyRefusal(
            f"{tier_name(run.remote)} has no versioning, and tierctl could delete its test object",
            hint=_HINT,
        )
    run.progress.warn(
        f"{tier_name(run.remote)} denies deletes with the credentials of this run: make sure that it denies "
        "them with those of the brokers, too"
    )


def _is_versioned(store: InspectableStore) -> bool:
    try:
        return store.bucket.versioning() is Versioning.ENABLED
    except AuthenticationError:
        return False


def _denies_deletes(remote: RemoteStorageManager) -> bool:
    """Return whether the store refuses to delete an object that tierctl writes for this test.

    If it refuses, the object stays in the store: each run uses the same key, and writes it only if it is
    missing.
    """
    tier = object_tier(remote)
    if tier is None:
        return False
    key = tier.own_key("probe")
    if key not in tier.store.sizes_bytes([key]):
        tier.store.put_all({key: _PROBE})
    try:
        errors = tier.store.delete([key])
    except AuthenticationError:
        return True
    return isinstance(errors.get(key), AuthenticationError)


def _require_copy(run: Mutation, uri: str) -> None:
    """Raise SafetyRefusal unless the tier at `uri` has every object with the same size."""
    spec = TierSpec.from_settings(
        store_uri("--copy-of-objects", uri),
        run.resources.broker_settings,
        layout=run.request.layout,
    )
    copy = run.resources.open_tier(spec)
    # Two names of one folder are no copy: deleting the tier's objects would delete both.
    own, other = (canonical_uri("--copy-of-objects", tier_name(each)) for each in (run.remote, copy))
    if own == other:
        raise SafetyRefusal(f"--copy-of-objects {uri} is the tier itself", hint=_HINT)
    there = {each.key: each.size_bytes for each in copy.list_objects()}
    missing = [each for each in run.remote.list_objects() if there.get(each.key) != each.size_bytes]
    if missing:
        size = there.get(missing[0].key)
        found = "lacks it" if size is None else f"has {size} bytes"
        raise SafetyRefusal(
            f"--copy-of-objects {uri} is not a copy of the tier: it differs in {len(missing)} objects; the "
            "first, "
            f"{missing[0].key}, has {missing[0].size_bytes} bytes, the copy {found}",
            hint=_HINT,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreIntoRequest(MutationRequest):
    """A request to restore topics of a tier, under their old ids, into a node that was formatted only.

    `log_dir` names the broker's log directories; the metadata topic is created in the first one.
    """

    into: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="The metadata log directory (metadata.log.dir) of the controller of the node; --log-dir "
            "names the log directories of its broker. If the server.properties in --broker-config names "
            "several controllers, the output states which file each of them needs.",
            show_default=False,
        ),
    ]
    topics_file: Annotated[
        str | None,
        typer.Option(
            "--topics-file",
            metavar="FILE",
            help="The YAML file that backup-config wrote, with topic ids, numbers of partitions "
            "and settings. Settings in --topic-configs take precedence.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    deletes_are_denied: Annotated[
        bool,
        typer.Option(
            "--deletes-are-denied",
            help="Assume that nobody, brokers included, can delete objects of the tier now. "
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
            help="A copy of the tier. tierctl requires that it has every object, with the same size.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = None
    publish_later: Annotated[
        bool,
        typer.Option(
            "--publish-later",
            help="From Kafka 3.9 on: do not write the metadata topic. Publish the events with "
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
                "--partition can't be used with restore into: a topic is created with all its partitions",
                hint="name topics with --topic",
            )
        if self.topics_file is None and self.topic_configs is None:
            raise UsageError(
                "--topics-file is missing: the tier does not contain topic settings and numbers of "
                "partitions",
                hint="name the file that tierctl backup-config wrote, or --topic-configs",
            )


def restore_into(request: RestoreIntoRequest, progress: Progress | None = None) -> MutationResult:
    """Plan logs, checkpoints, metadata events and topics of the node; with `apply`, write them.

    No object of the tier is changed. Raise SafetyRefusal if the node was started or is not formatted, if
    offsets are missing, if the settings of a topic are unknown, or if nothing proves that the objects
    survive; NotFoundError for a selected topic that does not exist; and the errors of the tier.
    """
    return Restore.of(request, progress)


class Restore(Change[RestoreIntoRequest]):
    """One run of the command that restores topics into a formatted node."""

    command = RESTORE
    request_type = RestoreIntoRequest
    saved = ("into", "topics_file", "deletes_are_denied", "copy_of_objects", "publish_later", "after_hole")
    writes_logs = True
    changes_tier = False

    @classmethod
    def reader(cls, resources: Resources) -> RemoteLogMetadataManager | None:
        """Implement `Change.reader`."""
        return resources.enter(closing(NewNodeMetadata(resources)))

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        run, request = self.run, self.request
        saved, configs = read_saved_topics(request.topics_file), run.resources.topic_configs()
        for folder in request.log_dir:
            ensure_stopped(Path(folder))
        node = self._node = read_formatted_node(Path(request.into), request.log_dir)
        if request.apply:
            run.resources.enter(exclusive(Path(request.into)))
        if not isinstance(run.metadata, NewNodeMetadata):
            raise TypeError("the metadata of a restore are those of a new node")
        metadata_topic = None if request.publish_later else run.metadata.topic(node, run.remote)
        finder = TopicFinder(
            run=run,
            log_dirs=list(node.directories),
            saved=saved,
            configs=configs,
        )
        self._topics = finder.find()
        planner = RestorePlanner(
            broker=self._broker,
            metadata_topic=metadata_topic,
            present=node.bootstrap.values,
            after_hole=request.after_hole,
        )
        self._found = planner.plan(self._topics, read=run.metadata.state.read)
        self._warn()
        return self._found.plan

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: raise SafetyRefusal if the node was started meanwhile."""
        del partitions
        read_formatted_node(Path(self.request.into), self.request.log_dir)

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        former = self._node.bootstrap
        new = NewNode(
            logs=self._found.logs,
            bootstrap_path=self._node.bootstrap_path,
            former=former.data,
            content=former.extended(self._found.records),
            has_metadata_topic=not self.request.publish_later,
        )
        return restore_acts(new)

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        if self._found.refused:
            hint = "leave these topics out with --topic, or do what the reason says"
            raise refusal_of(sorted(self._found.refused.items()), hint)
        if self.request.publish_later and not self._broker.start_settings:
            raise SafetyRefusal(
                "the node has a Kafka before 3.9, whose topics can't start with copying disabled: a leader "
                "that knows no segment raises the log start, and then deletes what is published",
                hint="leave --publish-later out: the events are written before the node starts",
            )
        self._require_owner()
        self._require_no_other_folders()
        if len(plan.steps) != len(self._found.plan.steps):
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
        restored = {found[1] for found in map(topic_of, self._node.bootstrap.values) if found is not None}
        restored |= {source.topic_id for source in self._topics}
        others = [each for each in list_partitions(self.request.log_dir) if each.topic_id not in restored]
        if others:
            raise SafetyRefusal(
                f"a log directory has a folder of {others[0]} already",
                hint="the node must have no partition: format new directories",
            )

    def _warn(self) -> None:
        """Warn of segments that retention will delete as soon as the node runs."""
        now_ms = self.run.resources.now_ms
        for source in self._topics:
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
        """Implement `Change.conclude`: remove folders of killed runs, print the operator's next steps."""
        for log in self._found.logs.values():
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
                f"{self._node.bootstrap_path} has the topics: copy it to each of the other {others} "
                "controllers, in the place of the file of the same name, and start these first: a broker "
                "that starts before a controller knows the topics sets their logs aside as strays"
            )
        self.run.progress.say(
            f"now start the node, {publish}and check it with tierctl restore check. Each partition has one "
            "replica; add others by reassignment"
        )
        for source in self._topics if self._broker.start_settings else ():
            if not source.is_tiered:
                continue
            former = [f"{name} {source.settings.get(name, 'unset')}" for name in COPYING_DISABLED]
            self.run.progress.say(
                f"{source.topic}: once the restore is checked, restore the previous values of "
                f"{', '.join(former)}"
            )

    @property
    def _broker(self) -> NewBroker:
        return _broker_of(self._node)

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
