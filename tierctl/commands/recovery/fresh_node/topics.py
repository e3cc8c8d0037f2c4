"""Find the topics that a formatted node gets: their objects, settings and partition counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.locallog.files import read_if_exists
from tierctl.model import (
    ListedSet,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.cluster import SavedTopic, SavedTopics
from tierctl.model.settings import topic
from tierctl.model.settings.stated import SettingSource
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs, decide_partition
from tierctl.plan.restore.plan import PartitionSource, TopicSource
from tierctl.storage.object_sets import by_partition
from tierctl.wire.files.topics_file import read_topics_file

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
