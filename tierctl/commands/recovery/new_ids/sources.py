"""Find the partitions to restore under new ids: their objects, and the folders of the new topics."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tierctl.apply.materialise.new_folder import former_folder
from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal
from tierctl.files import read_regular
from tierctl.locallog.files import list_segments, read_if_exists
from tierctl.model import ListedSet, TopicIdPartition, TopicPartition, Uuid
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs, decide_partition
from tierctl.plan.restore.new_ids import NewIdSource, Target
from tierctl.storage.object_sets import by_partition
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    read_leader_epoch_checkpoint,
    read_partition_metadata,
)

T = TypeVar("T")
_SMALL_BYTES = 1 << 20


@dataclass(kw_only=True)
class SourceFinder:
    """Find the selected partitions; if several lost topics have the same name, `from_ids` says which one."""

    run: Mutation
    log_dirs: Sequence[Path]
    from_ids: Sequence[Uuid]
    _targets: dict[TopicPartition, list[Target]] = field(default_factory=dict, init=False)

    def find(self) -> list[NewIdSource]:
        """Return the selected partitions with objects under another topic id than the new topic's.

        Raise NotFoundError if there is no such partition, SafetyRefusal if the tier has several topics of one
        name and `from_ids` names none of them, and the errors of the tier.
        """
        self.run.metadata.refresh()
        tier = TierSets.to_change(self.run)
        listed = tier.listed()
        self.run.resolve_selection({each.partition for each in listed})
        chosen = list(self._chosen(listed))
        if not chosen:
            raise NotFoundError("the tier has no object of the selected topics under another topic id")
        sets = tier.derived(chosen)
        decided: list[tuple[PartitionInputs, PartitionDecision]] = []
        for partition, own in by_partition(sets).items():
            inputs = PartitionInputs(partition=partition, sets=own)
            decided.append((inputs, decide_partition(inputs)))
        last = [decision.choice.chain[-1] for _, decision in decided if decision.choice.chain]
        snapshots = tier.producer_snapshots(last)
        return [
            self._source(inputs, decision, snapshots.get(inputs.partition)) for inputs, decision in decided
        ]

    def _source(
        self, inputs: PartitionInputs, decision: PartitionDecision, snapshot: bytes | None
    ) -> NewIdSource:
        targets = self._targets_of(inputs.partition.topic_partition)
        target = targets[0].partition if targets else None
        chain = decision.choice.chain if target is not None else ()
        part = None if target is None else self.run.metadata.state.partition(target)
        segments = () if part is None else part.cache.list_remote_log_segments()
        return NewIdSource(
            inputs=inputs,
            decision=decision,
            renamed=[self.run.remote.renamed(segment, target) for segment in chain] if target else [],
            targets=targets,
            known={segment.segment_id: segment.state for segment in segments},
            snapshot=snapshot,
        )

    def _chosen(self, listed: Sequence[ListedSet]) -> Iterator[ListedSet]:
        """Yield the sets of objects to restore."""
        # The selected ids are those of the new topics, which the steps of a saved plan name.
        asked = self.run.resources.selection_request
        ids: dict[str, Uuid] = {}
        for each in listed:
            partition = each.partition
            new = {target.partition.topic_id for target in self._targets_of(partition.topic_partition)}
            if (
                not asked.may_select(partition.topic_partition)
                or partition.topic in INTERNAL_TOPICS
                or partition.topic_id in new
                or (self.from_ids and partition.topic_id not in self.from_ids)
            ):
                continue
            if ids.setdefault(partition.topic, partition.topic_id) != partition.topic_id:
                raise SafetyRefusal(
                    f"the tier has objects of several topics named {partition.topic}: ids "
                    f"{ids[partition.topic]} and {partition.topic_id}",
                    hint="name the one to restore with --from-id",
                )
            yield each

    def _targets_of(self, partition: TopicPartition) -> list[Target]:
        """Return the folders of the new topic's partition in the log directories."""
        if partition not in self._targets:
            folders = ((each, former_folder(each, str(partition))) for each in self.log_dirs)
            found = [_target(partition, log_dir, folder) for log_dir, folder in folders if folder.is_dir()]
            self._targets[partition] = [each for each in found if each is not None]
        return self._targets[partition]


def _target(partition: TopicPartition, log_dir: Path, folder: Path) -> Target | None:
    """Return the folder as a target; None without a topic id. Raise CorruptInputError for a damaged file."""
    topic_id = _read(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    if topic_id is None:
        return None
    segments = [(each.base_offset, each.log.stat().st_size) for each in list_segments(folder)]
    # Only an empty log, whose files are small, can be replaced: larger files are not read.
    is_small = sum(size for _, size in segments) <= _SMALL_BYTES
    files = {path.name: read_regular(path) for path in sorted(folder.iterdir())} if is_small else {}
    return Target(
        partition=TopicIdPartition(topic_id, partition.topic, partition.partition),
        log_dir=log_dir,
        files=files,
        segments=segments,
        leader_epochs=_read(folder / LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint) or (),
    )


def _read(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return the decoded file, None if it is missing; raise CorruptInputError, with the path, if damaged."""
    data = read_if_exists(path)
    if data is None:
        return None
    try:
        return decode(data)
    except CorruptInputError as e:
        raise e.within(str(path)) from None
