"""`restore into`: give a formatted node that was never started the topics of a lost cluster."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.run import Acts, publish_behind_logs
from tierctl.apply.run_context import Outcome
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.request import APPLY, DECIDE, TYPED_ONLY, MutationRequest, RestoreAfterHole
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets
from tierctl.commands.restore.new_logs import (
    NewLog,
    NewLogs,
    PartitionSource,
    epoch_after,
    partition_sources,
    refusal_of,
    require_same_steps,
    restore_step,
)
from tierctl.commands.restore.new_node import (
    NewBroker,
    NewNode,
    NewNodeMetadata,
    NewTopic,
    former_settings,
    last_topic_id,
    require_objects_are_safe,
    why_unpublished,
)
from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.files import exclusive
from tierctl.locallog import ensure_stopped, list_partitions, read_formatted_node, read_log_dir_facts
from tierctl.locallog.folders import parse_partition_folder
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import ListedSet, RemoteLogSegmentMetadata, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.checked_values import absolute_path, read_named
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import SavedTopic, SavedTopics
from tierctl.model.progress import Progress
from tierctl.model.selection import counted, names_text
from tierctl.model.settings import broker, topic
from tierctl.model.settings.scopes import KafkaVersion, SettingSource, StatedSettings
from tierctl.plan.decisions import Limits
from tierctl.plan.partition_choice import segment_steps, skips_of, unclear_skips, unused_of, why_refused
from tierctl.plan.preconditions import why_never_tiered
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.steps import RESTORE, Action, Plan, Skip, Step
from tierctl.plan.views import distinct_bytes
from tierctl.storage import store_uri
from tierctl.wire.files.topics_file import read_topics_file
from tierctl.wire.kraft import METADATA_VERSION, next_producer_id, producer_ids_record, topic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic to restore, with its own settings; `partitions` are those with objects in the tier.

    `why_never_tiered` is the setting because of which brokers would not serve these objects.
    """

    topic: str
    topic_id: Uuid
    partition_count: int
    settings: Mapping[str, str]
    partitions: Mapping[int, PartitionSource]
    why_never_tiered: str | None = None

    @property
    def is_tiered(self) -> bool:
        """Return whether the topic has objects in the tier, or has remote.storage.enable=true."""
        return bool(self.partitions) or topic.REMOTE_STORAGE_ENABLE.value(self.settings)

    def partition(self, number: int) -> TopicIdPartition:
        """Return the topic's partition with this number."""
        return TopicIdPartition(self.topic_id, self.topic, number)


@dataclass(slots=True, kw_only=True)
class RestorePlanner:
    """Make the plan for `broker`; `present` are the records in the controller's bootstrap file.

    If `metadata_topic` is None, the brokers create the metadata topic later, and no event is planned. After
    `decide`, `refused` has the reason per partition that forbids `plan`; `logs` and `records` are the logs
    and the records of cluster metadata to write.
    """

    broker: NewBroker
    metadata_topic: NewTopic | None
    present: Sequence[bytes]
    after_hole: bool = False
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    refused: dict[TopicIdPartition, str] = field(default_factory=dict)
    logs: dict[TopicIdPartition, NewLog] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    plan: Plan = field(init=False)

    def decide(self, topics: Sequence[TopicSource], *, read: Mapping[int, int]) -> None:
        """Plan for each partition its log and its events, and then the creation of each topic.

        A topic whose records are in the bootstrap file is restored already, since these records are written
        last. `read` maps each partition of the node's metadata topic to the offset up to which it was read.
        """
        created = [step for each in topics for step in self._topic(each)]
        if created:
            self._add_metadata_topic()
            self.records += self._producer_ids()
        steps = (*self.steps, *created)
        self.plan = Plan(command=RESTORE, steps=steps, read=read, skipped=tuple(self.skipped))

    def _topic(self, source: TopicSource) -> Iterator[Step]:
        """Plan the partitions of a topic; yield the step that creates the topic, unless it exists."""
        logs = {number: self._log(each) for number, each in sorted(source.partitions.items())}
        settings = dict(source.settings)
        if source.is_tiered:
            settings |= {**self.broker.start_settings, topic.REMOTE_STORAGE_ENABLE.name: "true"}
        new = NewTopic(
            topic=source.topic,
            topic_id=source.topic_id,
            settings=settings,
            leader_epochs=[epoch_after(logs.get(number)) for number in range(source.partition_count)],
        )
        is_present = self._is_present(new)
        problem = self._conflict(new) or _why_not_served(source)
        if is_present and self.metadata_topic is not None:
            problem = problem or why_unpublished(source.partitions.values())
        if problem is not None:
            self._refuse(source.partition(0), problem)
        elif is_present:
            self.skipped.append(Skip.of(source.partition(0), "the node has the topic already"))
        elif not any(source.partition(number) in self.refused for number in source.partitions):
            for number, log in logs.items():
                self._partition(source.partitions[number], log)
            self._add(new)
            yield _create(source, new)

    def _log(self, source: PartitionSource) -> NewLog | None:
        """Return the new log of a partition; None without segments to restore, or if it is refused."""
        partition, choice = source.inputs.partition, source.decision.choice
        reason = why_refused(source.decision, after_hole=self.after_hole)
        if reason is not None:
            self._refuse(partition, reason)
            self.skipped += unclear_skips(source.inputs, choice)
            return None
        log_dir = self.broker.log_dir(partition.topic, partition.partition)
        log = source.new_log(partition, log_dir, has_producers=True)
        reason = None if log is None else _why_not_into(source, log)
        if reason is not None:
            self._refuse(partition, reason)
        return log

    def _partition(self, source: PartitionSource, log: NewLog | None) -> None:
        unused = unused_of if log is None or self.metadata_topic is None else skips_of
        self.skipped += unused(source.inputs, source.decision.choice)
        if log is None:
            return
        self.logs[log.partition] = log
        self.steps.append(restore_step(log, len(source.decision.choice.chain)))
        if self.metadata_topic is not None:
            self.steps += segment_steps(source.inputs, source.decision)

    def _refuse(self, partition: TopicIdPartition, reason: str) -> None:
        self.refused[partition] = reason
        self.skipped.append(Skip.of(partition, reason))

    def _conflict(self, new: NewTopic) -> str | None:
        """Return how the bootstrap file's topics conflict with the new topic; None without a conflict."""
        there = [found for found in map(topic_of, self.present) if found is not None]
        names = [found for found in there if new.topic == found[0] or new.topic_id == found[1]]
        if names and not self._is_present(new):
            return (
                f"the node was prepared with topic {names[0][0]} of id {names[0][1]} and other partitions or "
                "settings: format it again, or name the same files and directories as then"
            )
        return None

    def _is_present(self, new: NewTopic) -> bool:
        return set(new.records(self.broker)) <= set(self.present)

    def _add_metadata_topic(self) -> None:
        new = self.metadata_topic
        if new is not None and (problem := self._conflict(new)) is not None:
            self._refuse(TopicIdPartition(new.topic_id, new.topic, 0), problem)
        elif new is not None:
            self._add(new)

    def _add(self, new: NewTopic) -> None:
        present = set(self.present)
        self.records += [value for value in new.records(self.broker) if value not in present]

    def _producer_ids(self) -> list[bytes]:
        """Return the record that stops the controller from assigning the producer ids of restored producers.

        Producers that are in no restored snapshot are unknown to the brokers, so their ids may be assigned
        again.
        """
        known = [each.producer_id for log in self.logs.values() for each in log.producers]
        stated = [found for found in map(next_producer_id, self.present) if found is not None]
        following = max(known, default=-1) + 1
        return [producer_ids_record(following)] if following > max(stated, default=0) else []


def _why_not_served(source: TopicSource) -> str | None:
    """Return why brokers would serve no object of the topic, or none that it still had; None if they would.

    Brokers take a compacted topic for one without a tier, whose log begins with its first local segment
    (UnifiedLog.isRemoteLogEnabled); where tiering was disabled, they deleted the log in the tier (KIP-950).
    """
    if source.why_never_tiered is None or not source.is_tiered:
        return None
    return (
        f"its settings have {source.why_never_tiered}, and brokers would not serve what the tier has of it: "
        f"if the topic was tiered to the end, state {source.topic}.{topic.REMOTE_STORAGE_ENABLE.name}=true "
        f"and {source.topic}.{topic.CLEANUP_POLICY.name}=delete in --topic-configs"
    )


def _why_not_into(source: PartitionSource, log: NewLog) -> str | None:
    """Return why `log` can't be written; None if it can, or if a killed run wrote it already."""
    damage = log.why_damaged()
    if damage is not None:
        return damage
    for target in source.targets:
        if target.log_dir != log.log_dir or not target.has_files(log.files):
            return f"{target.path} has other files than the log that is restored"
    return None


def _create(source: TopicSource, new: NewTopic) -> Step:
    return Step(
        action=Action.CREATE_TOPIC,
        reason=f"{source.partition_count} partitions under the old id, {len(source.partitions)} in the tier",
        topic=source.topic,
        topic_id=source.topic_id,
        partition=0,
        details={
            "partitions": source.partition_count,
            "settings": [{"name": name, "value": value} for name, value in sorted(new.settings.items())],
        },
    )


def breaches(chain: Sequence[RemoteLogSegmentMetadata], config: TopicConfig, now_ms: int) -> list[ReasonKind]:
    """Return the limit that each of the first segments of a log breaches, up to the first that stays."""
    spans = ((each.start_offset, each.end_offset, each.segment_size_in_bytes) for each in chain)
    excess_bytes = (
        max(0, distinct_bytes(spans) - config.retention_bytes) if config.retention_bytes >= 0 else 0
    )
    found = map(Limits(config, now_ms, excess_bytes).breach, chain)
    return [reason.kind for reason in takewhile(bool, found) if reason is not None]


_NO_SETTINGS = (
    "name the file that tierctl backup-config wrote (--topics-file), or a file of settings (--topic-configs)"
)


_WRONG_VALUE = (
    "the node's brokers would not start: state another value in --topic-configs, which takes precedence"
)


def read_saved_topics(path: str | None, *, trusted: bool = False) -> SavedTopics:
    """Return the topics in the `backup-config` file at `path`, read as by `read_named`; none for None."""
    if path is None:
        return SavedTopics(topics={})
    try:
        data = read_named(Path(path), trusted=trusted)
    except OSError as e:
        hint = "name the file that backup-config wrote"
        raise UsageError(f"--topics-file {path}: {e.strerror}", hint=hint) from e
    return read_topics_file(data, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreIntoRequest(MutationRequest):
    """A request to restore topics of a tier, under their old ids, into a node that was formatted only.

    `log_dir` names the broker's log directories; the metadata topic is created in the first one, unless an
    earlier run created it in another.
    """

    into: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            parser=absolute_path,
            show_default=False,
            help="The metadata log directory (metadata.log.dir) of the controller of the node; --log-dir "
            "names the log directories of its broker. If the server.properties in --broker-config names "
            "several controllers, the output states which file each of them needs.",
        ),
    ]
    topics_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            parser=absolute_path,
            help="The YAML file that backup-config wrote, with topic ids, numbers of partitions and "
            "settings. Settings in --topic-configs take precedence. If the tier has several topics of one "
            "name, a file that is newer than all objects of the others says which one is restored.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    deletes_are_denied: Annotated[
        bool,
        typer.Option(
            help="Assume that nobody, brokers included, can delete objects of the tier now. Without this "
            "option tierctl requires that the bucket has versioning, or that it denies the deletion of "
            "a test object that tierctl writes.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    copy_of_objects: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            parser=partial(store_uri, "--copy-of-objects"),
            help="A copy of the tier. tierctl requires that it has every object, with the same size.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = None
    publish_later: Annotated[
        bool,
        typer.Option(
            help="From Kafka 3.9 on: do not write the metadata topic. Publish the events with rebuild "
            "--metadata kafka://... once the brokers run. Copying stays disabled until then.",
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
    with Restore.opened(request, progress) as change:
        return change.finish(change.decided())


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
        self._saved = read_saved_topics(request.topics_file, trusted=request.is_binding)
        self._configs = run.resources.topic_configs()
        for folder in request.log_dir:
            ensure_stopped(Path(folder))
        node = self._node = read_formatted_node(Path(request.into), request.log_dir)
        self._broker = NewBroker(
            node_id=node.node_id, directories=node.directories, metadata_version=node.metadata_version
        )
        if request.apply:
            run.resources.enter(exclusive(Path(request.into)))
        if not isinstance(run.metadata, NewNodeMetadata):
            raise TypeError("the metadata of a restore are those of a new node")
        metadata_topic = None if request.publish_later else run.metadata.topic(node, run.remote)
        self._skipped: list[Skip] = []
        self._topics = self._find_topics()
        planner = self._found = RestorePlanner(
            broker=self._broker,
            metadata_topic=metadata_topic,
            present=node.bootstrap.values,
            after_hole=request.after_hole,
            skipped=self._skipped,
        )
        planner.decide(self._topics, read=run.metadata.state.read)
        self._warn()
        return planner.plan

    def _find_topics(self) -> list[TopicSource]:
        """Return the selected topics by name: those with objects in the tier, and those saved as tiered.

        Raise SafetyRefusal if the id or the settings of a topic are unknown, NotFoundError for a selected
        topic that is neither in the tier nor saved, and the errors of the tier.
        """
        tier = TierSets.to_change(self.run)
        listed = tier.listed()
        self.run.resources.resolve_selection({each.partition for each in listed}, self._in_file())
        chosen = self._chosen(listed)
        ids = set(chosen.values())
        wanted = [each for each in listed if each.partition.topic_id in ids]
        self.run.metadata.refresh()
        known = self.run.metadata.state.segments_of
        found = partition_sources(tier, wanted, list(self._node.directories), known)
        sources = {each.inputs.partition: each for each in found}
        return [self._topic(name, topic_id, sources) for name, topic_id in sorted(chosen.items())]

    def _in_file(self) -> Iterator[TopicIdPartition]:
        for saved in self._saved.topics.values():
            yield from (TopicIdPartition(saved.topic_id, saved.topic, n) for n in range(saved.partitions))

    def _chosen(self, listed: Iterable[ListedSet]) -> dict[str, Uuid]:
        """Return the ids of the selected topics by name; each has one id, that of the file if it has one."""
        resources = self.run.resources
        sets: dict[str, dict[Uuid, list[ListedSet]]] = {}
        for each in listed:
            name, topic_id = each.partition.topic, each.partition.topic_id
            if each.partition in resources.selection and name not in INTERNAL_TOPICS:
                sets.setdefault(name, {}).setdefault(topic_id, []).append(each)
        for saved in self._saved.topics.values():
            in_tier = sets.get(saved.topic)
            if in_tier is None and self._is_wanted(saved):
                sets[saved.topic] = {saved.topic_id: []}
            elif in_tier is not None and saved.topic_id not in in_tier:
                raise SafetyRefusal(
                    f"{saved.topic} has id {saved.topic_id} in --topics-file, the selected objects of the "
                    f"tier are of {', '.join(sorted(in_tier))} only",
                    hint="the topic was created again: correct its id, its number of partitions and its "
                    "settings in the file",
                )
        if not sets:
            raise NotFoundError("no selected topic is tiered")
        names: dict[Uuid, str] = {}
        for name, of_name in sorted(sets.items()):
            topic_id = next(iter(of_name)) if len(of_name) == 1 else self._latest(name, of_name)
            other = names.setdefault(topic_id, name)
            if other != name:
                raise SafetyRefusal(
                    f"topics {other} and {name} have the same id, {topic_id}",
                    hint="each topic of a cluster has its own: correct it in the file of --topics-file, or "
                    "leave one of them out with --topic",
                )
        return {name: topic_id for topic_id, name in names.items()}

    def _is_wanted(self, saved: SavedTopic) -> bool:
        """Return whether a topic of the file without a selected object is restored; refuse internal ones."""
        resources = self.run.resources
        if TopicIdPartition(saved.topic_id, saved.topic, 0) not in resources.selection or not (
            saved.topic in resources.selection_request.topics
            or topic.REMOTE_STORAGE_ENABLE.value(saved.settings, self._place_of(saved.topic))
        ):
            return False
        if saved.topic in INTERNAL_TOPICS:
            raise SafetyRefusal(
                f"{saved.topic} is an internal topic", hint="leave it out: the node makes its own"
            )
        return True

    def _latest(self, name: str, sets: Mapping[Uuid, Sequence[ListedSet]]) -> Uuid:
        """Return the id of the last of several topics named `name`; skip the others."""
        last = last_topic_id(name, sets, self._saved, self.request.clock_ms())
        others = [each for topic_id, found in sets.items() if topic_id != last for each in found]
        reason = f"--topics-file is newer, and its id of {name} is {last}"
        self._skipped += [Skip.of(each, reason) for each in sorted({each.partition for each in others})]
        self.run.progress.warn(
            f"{name}: {counted(len(others), 'segment')} of another topic of this name stay unused, of id "
            f"{names_text({each.partition.topic_id for each in others})}: {reason}"
        )
        return last

    def _topic(
        self, name: str, topic_id: Uuid, sources: Mapping[TopicIdPartition, PartitionSource]
    ) -> TopicSource:
        own = {key.partition: each for key, each in sources.items() if key.topic_id == topic_id}
        saved, config = self._saved.topics.get(name), self._configs.get(name)
        if saved is None and config is None:
            raise SafetyRefusal(f"the settings of {name} are unknown", hint=_NO_SETTINGS)
        settings = self._settings(name, saved, config)
        in_force = self.run.resources.broker_defaults().in_force(settings)
        tiering = TopicConfig(
            cleanup_policy=frozenset(topic.CLEANUP_POLICY.value(in_force)),
            remote_storage_enable=topic.REMOTE_STORAGE_ENABLE.given(settings),
        )
        return TopicSource(
            topic=name,
            topic_id=topic_id,
            partition_count=self._partition_count(name, saved, own),
            settings=settings,
            partitions=own,
            why_never_tiered=why_never_tiered(name, {name: tiering}),
        )

    def _place_of(self, name: str) -> str:
        return f"--topics-file {self.request.topics_file}: topic {name}"

    def _settings(self, name: str, saved: SavedTopic | None, config: TopicConfig | None) -> dict[str, str]:
        """Return the topic's settings, without those that the node's Kafka does not have any more.

        Raise UsageError for a value with which its brokers do not start.
        """
        given = [] if config is None else config.stated.values()
        own = {each.name: each for each in given if each.source is SettingSource.FILE}
        origins = {each.name: each.origin for each in own.values() if each.origin is not None}
        stated = StatedSettings({} if saved is None else saved.settings, {})
        stated |= StatedSettings({each.name: each.value for each in own.values()}, origins)
        version = KafkaVersion.of_feature_level(self._node.metadata_version)
        try:
            topic.require_values(stated, version, self._place_of(name))
        except UsageError as e:
            raise UsageError(e.message, hint=_WRONG_VALUE) from None
        rows = {setting: topic.TABLE.rows.get(setting) for setting in stated}
        ended = {setting for setting, row in rows.items() if row and not version.includes("0", row.until)}
        if ended:
            self.run.progress.note(f"{name}: Kafka {version} has no {names_text(ended)}: left out")
        later = {setting for setting, row in rows.items() if row is None or not version.includes(row.since)}
        if later:
            self.run.progress.warn(
                f"{name}: no Kafka up to {version}, of the node's {METADATA_VERSION}, has "
                f"{names_text(later)}: brokers that do not know a setting refuse every change of the topic's "
                "settings until it is deleted (kafka-configs.sh --delete-config)"
            )
        return {setting: value for setting, value in stated.items() if setting not in ended}

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
        return {
            Action.RESTORE_PARTITION: new.write_all,
            Action.PUBLISH_SEGMENT: publish_behind_logs,
            Action.DISCARD_SEGMENT: publish_behind_logs,
            Action.CREATE_TOPIC: new.create_topics,
        }

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
        require_same_steps(plan, self._found.plan, "a topic")
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
        found = [
            f"a log directory has a folder of {each} already"
            for each in list_partitions(self.request.log_dir)
            if each.topic_id not in restored
        ]
        # A folder that was renamed to be deleted is none of a partition: an interrupted run leaves one.
        found += [
            f"{facts.path} has a folder {name} already, whose topic id can't be read"
            for facts in map(read_log_dir_facts, self.request.log_dir)
            for topic, name in facts.unreadable_topics.items()
            if topic not in INTERNAL_TOPICS and parse_partition_folder(name) is not None
        ]
        if found:
            raise SafetyRefusal(found[0], hint="the node must have no partition: format new directories")

    def _warn(self) -> None:
        """Warn of segments that retention will delete as soon as the node runs."""
        now_ms, brokers = self.run.resources.now_ms, self.run.resources.broker_defaults()
        for source in self._topics:
            settings = brokers.in_force(source.settings)
            config = TopicConfig(
                retention_ms=topic.RETENTION_MS.kafka_value(settings),
                retention_bytes=topic.RETENTION_BYTES.kafka_value(settings),
                kafka_version=self.run.resources.kafka_version,
            )
            chains = [each.decision.choice.chain for each in source.partitions.values()]
            breached = [breaches(chain, config, now_ms) for chain in chains]
            expired = sum(kinds.count(ReasonKind.RETENTION_MS) for kinds in breached)
            if expired:
                self.run.progress.warn(
                    f"{source.topic}: {expired} of {sum(map(len, chains))} segments are older than "
                    f"{topic.RETENTION_MS.name}={config.retention_ms}: the broker deletes their objects as "
                    f"soon as it runs, unless you set {topic.RETENTION_MS.name} to -1 in the file"
                )
            larger = sum(ReasonKind.RETENTION_BYTES in kinds for kinds in breached)
            if larger:
                self.run.progress.warn(
                    f"{source.topic}: {larger} of {len(chains)} partitions are larger than "
                    f"{topic.RETENTION_BYTES.name}={config.retention_bytes}: the broker deletes their oldest "
                    f"objects as soon as it runs, unless you set {topic.RETENTION_BYTES.name} to -1 in the "
                    "file"
                )

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Implement `Change.conclude`: remove folders of killed runs, print the operator's next steps."""
        if not NewLogs(logs=self._found.logs).are_restored(outcomes):
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
        tiered = [source for source in self._topics if source.is_tiered and self._broker.start_settings]
        if tiered:
            self.run.progress.say("once the restore is checked, set the topics' settings back:")
        for source in tiered:
            self.run.progress.command(
                former_settings(source.topic, source.settings, self.run.resources.broker_settings)
            )

    @property
    def _other_controllers(self) -> int:
        """The number of further controllers that the broker's settings name."""
        given = self.run.resources.broker_settings
        quorum = (broker.CONTROLLER_QUORUM_VOTERS, broker.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
        return max(1, *(len(each.value(given)) for each in quorum)) - 1
