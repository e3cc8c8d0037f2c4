"""A fake cluster that serves the records of a captured tier, with the faults that a test sets."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from tierctl.errors import MetadataError
from tierctl.kafka.cluster import cluster_log
from tierctl.kafka.librdkafka import HeldPositions, NotServedError, ServedRecord
from tierctl.model import EpochEntry, IsolationLevel, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.local import ClusterLog, PartitionOffsets, TopicFacts
from tierctl.model.settings.scopes import LATEST, KafkaVersion

from tests.cli.shell import tierctl
from tests.support.fake_cluster import topic_facts

Key = tuple[str, int]


def tier_records(metadata: Path, remote: Path, isolation: str) -> dict[Key, list[ServedRecord]]:
    """Return the records that `fetch` reads, in the form of a consumer's records."""
    where = ("--metadata", metadata, "--remote", remote, "--isolation", isolation, "--binary", "hex")
    found: dict[Key, list[ServedRecord]] = {}
    for line in tierctl("fetch", *where, "--output", "jsonl").lines:
        row = json.loads(line)
        headers = tuple((each["key"], _bytes(each["value"])) for each in row["headers"])
        key, value = _bytes(row["key"]), _bytes(row["value"])
        record = ServedRecord(row["offset"], row["timestamp_ms"], row["leader_epoch"], key, value, headers)
        found.setdefault((row["topic"], row["partition"]), []).append(record)
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@dataclass
class Consumer:
    """A consumer of the fake cluster's records with one isolation level."""

    cluster: "Cluster"
    isolation: IsolationLevel

    def read(self, partition: TopicPartition, start: int, end: int) -> Iterator[ServedRecord]:
        key = (partition.topic, partition.partition)
        for record in self.cluster.records[self.isolation].get(key, []):
            if record.offset in self.cluster.stalls_at:
                raise NotServedError(f"{partition}: no data arrived")
            if start <= record.offset < end:
                yield record

    def first(self, partition: TopicPartition, offset: int) -> ServedRecord | None:
        found = next(self.read(partition, offset, 1 << 62), None)
        return self.cluster.found_by_seek(found)

    def hold(self, offsets: Mapping[TopicPartition, int]) -> HeldPositions:
        self.held = dict(offsets)
        return {each: next(self.read(each, at, 1 << 62)) for each, at in offsets.items()}

    def resume(self, partitions: Collection[TopicPartition]) -> HeldPositions:
        if self.cluster.truncates:
            return {each: NotServedError(f"{each}: Partition log truncation detected") for each in partitions}
        return {
            each: next(self.read(each, self.held[each] + 1 + self.cluster.jumps, 1 << 62))
            for each in partitions
        }

    def poll(self) -> None:
        self.cluster.polls += 1

    def close(self) -> None:
        self.cluster.closed += 1


@dataclass
class Cluster:
    """The fake cluster; a test changes its answers."""

    ids: dict[str, Uuid]
    partitions: dict[str, int]
    records: dict[IsolationLevel, dict[Key, list[ServedRecord]]]
    epochs: dict[Key, tuple[EpochEntry, ...]]
    offsets: dict[Key, PartitionOffsets]
    is_copy_disabled: bool = False
    stalls_at: set[int] = field(default_factory=set)
    found_by_seek: Callable[[ServedRecord | None], ServedRecord | None] = lambda record: record
    time_shift: int = 0
    truncates: bool = False
    jumps: int = 0
    """Number of offsets that consumers skip when they continue after an election."""
    elects: bool = True
    refuses_producers: bool = False
    polls: int = 0
    closed: int = 0

    def kafka_version(self) -> KafkaVersion:
        return LATEST

    def topics(self, names: Collection[str]) -> dict[str, TopicFacts]:
        return {
            name: topic_facts(name, self.ids[name], [1] * self.partitions[name])
            for name in names
            if name in self.ids
        }

    def topic_configs(self, names: Collection[str]) -> dict[str, TopicConfig]:
        config = replace(TopicConfig(), is_copy_disabled=self.is_copy_disabled)
        return dict.fromkeys(names, config)

    def partition_offsets(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        return {each: self.offsets[each.topic, each.partition] for each in names}

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        return list(map(self._log, partitions))

    def _log(self, partition: TopicIdPartition) -> ClusterLog:
        key = partition.topic, partition.partition
        return cluster_log(partition, 1, self.offsets[key], self.epochs[key], None)

    def leader_epochs(self, name: TopicPartition) -> tuple[EpochEntry, ...]:
        return self.epochs[name.topic, name.partition]

    @property
    def leaders(self) -> Self:
        return self

    def current_epochs(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        del topics
        risen = self.polls > 0 and self.elects
        return {TopicPartition(*key): own[-1].epoch + risen for key, own in self.epochs.items()}

    def consumer(self, isolation: IsolationLevel) -> Consumer:
        self.closed -= 1
        return Consumer(self, isolation)

    def offset_for_time(self, name: TopicPartition, timestamp_ms: int) -> int | None:
        records = self.records[IsolationLevel.READ_UNCOMMITTED][name.topic, name.partition]
        found = next((each.offset for each in records if each.timestamp_ms >= timestamp_ms), None)
        return None if found is None else found + self.time_shift

    def produce(
        self, names: Collection[TopicPartition], value: bytes, *, transactional_id: str | None = None
    ) -> dict[TopicPartition, int]:
        if self.refuses_producers and transactional_id is not None:
            raise MetadataError("INVALID_PRODUCER_EPOCH: fenced by newer instance")
        found = {}
        for name in names:
            key = (name.topic, name.partition)
            found[name] = max(own[key][-1].offset for own in self.records.values()) + 1
            record = ServedRecord(found[name], 0, None, None, value, ())
            for own in self.records.values():
                own[key].append(record)
        return found
