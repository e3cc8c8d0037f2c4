"""KRaft's cluster metadata, as far as a new cluster is given topics: records, and the file that has them.

The first part encodes and recognises single records, the second replays those of one topic.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tierctl.errors import CorruptInputError
from tierctl.model.events import Uuid
from tierctl.wire.primitives import read_uvarint, take, write_uvarint

# Records of KRaft's cluster metadata: the few that give a new cluster its topics.
#
# A value is a frame version (1), the number of the record's kind, its version, and its fields, all as in
# Kafka's flexible messages. Source: MetadataRecordSerde; TopicRecord.json, ConfigRecord.json,
# PartitionRecord.json, ProducerIdsRecord.json, FeatureLevelRecord.json.

FRAME_VERSION = 1
METADATA_VERSION = "metadata.version"
"""The feature whose level says which records the cluster understands."""
DIRECTORY_ASSIGNMENT_LEVEL = 17
"""The level of metadata.version (3.7-IV2) from which partitions name their log directories."""

# One topic as the records of KRaft's cluster metadata state it, replayed in their order.
#
# Source: TopicRecord.json, PartitionRecord.json, PartitionChangeRecord.json, RemoveTopicRecord.json,
# {Begin,End,Abort}TransactionRecord.json.

_TOPIC, _PARTITION, _CONFIG, _FEATURE_LEVEL, _PRODUCER_IDS = 2, 3, 4, 12, 15
_OF_TOPIC = 2
"""ConfigResource.Type.TOPIC."""
_NO_TAGS = b"\x00"
_NOBODY = struct.pack(">iq", -1, -1)
"""Broker id and epoch of a block of producer ids that no broker was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """One partition with one replica, which is the leader, in the log directory `directory_id`."""

    topic_id: Uuid
    partition: int
    node_id: int
    leader_epoch: int
    directory_id: Uuid


def topic_record(topic: str, topic_id: Uuid) -> bytes:
    """Return the value of a TopicRecord."""
    return _framed(_TOPIC, 0, _text(topic), topic_id.bytes)


def config_record(topic: str, name: str, value: str) -> bytes:
    """Return the value of a ConfigRecord for one setting of a topic."""
    return _framed(_CONFIG, 0, bytes([_OF_TOPIC]), _text(topic), _text(name), _text(value))


def partition_record(each: PartitionRegistration) -> bytes:
    """Return the value of a PartitionRecord of version 1 (from DIRECTORY_ASSIGNMENT_LEVEL on)."""
    node = _array([struct.pack(">i", each.node_id)])
    return _framed(
        _PARTITION,
        1,
        struct.pack(">i", each.partition),
        each.topic_id.bytes,
        *(node, node, _array([]), _array([])),
        struct.pack(">iii", each.node_id, each.leader_epoch, 0),
        _array([each.directory_id.bytes]),
    )


def producer_ids_record(next_producer_id: int) -> bytes:
    """Return the value of a ProducerIdsRecord: the controller gives ids from `next_producer_id` on."""
    return _framed(_PRODUCER_IDS, 0, _NOBODY, struct.pack(">q", next_producer_id))


def metadata_version(value: bytes) -> int | None:
    """Return the level of metadata.version if the record states it; None for any other record."""
    kind, _, pos = head_of(value)
    if kind != _FEATURE_LEVEL:
        return None
    name, pos = _read_text(value, pos)
    raw, _ = take(value, pos, 2, "feature level")
    return int.from_bytes(raw, "big", signed=True) if name == METADATA_VERSION else None


def topic_of(value: bytes) -> tuple[str, Uuid] | None:
    """Return name and id of the topic if the record is a TopicRecord; None for any other record."""
    kind, _, pos = head_of(value)
    if kind != _TOPIC:
        return None
    name, pos = _read_text(value, pos)
    raw, _ = take(value, pos, 16, "topic id")
    return name, Uuid.from_bytes(raw)


def next_producer_id(value: bytes) -> int | None:
    """Return the next producer id if the record is a ProducerIdsRecord; None for any other record."""
    kind, _, pos = head_of(value)
    if kind != _PRODUCER_IDS:
        return None
    raw, _ = take(value, pos + len(_NOBODY), 8, "next producer id")
    return int.from_bytes(raw, "big", signed=True)


def _framed(kind: int, version: int, *fields: bytes) -> bytes:
    return b"".join(
        [write_uvarint(FRAME_VERSION), write_uvarint(kind), write_uvarint(version), *fields, _NO_TAGS]
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return write_uvarint(len(data) + 1) + data


def _array(items: Sequence[bytes]) -> bytes:
    return write_uvarint(len(items) + 1) + b"".join(items)


def head_of(value: bytes) -> tuple[int, int, int]:
    """Return the kind and the version of a record, and the position of its first field."""
    frame, pos = read_uvarint(value, 0, "frame version")
    if frame != FRAME_VERSION:
        raise CorruptInputError(
            "record of cluster metadata", expected=f"frame version {FRAME_VERSION}", found=str(frame), at=0
        )
    kind, pos = read_uvarint(value, pos, "kind of record")
    version, pos = read_uvarint(value, pos, "version of record")
    return kind, version, pos


def _read_text(value: bytes, pos: int) -> tuple[str, int]:
    size, pos = read_uvarint(value, pos, "length of a name")
    raw, pos = take(value, pos, max(size - 1, 0), "name")
    return raw.decode("utf-8", "replace"), pos


_PARTITION_CHANGE, _REMOVE_TOPIC = 5, 9
_BEGIN, _END, _ABORT = 23, 24, 25
_REPLICAS_TAG, _DIRECTORIES_TAG = 2, 8
"""The tags of PartitionChangeRecord.replicas and .directories, which are absent if they stay."""
_DIRECTORIES_FROM = 1
"""The version of PartitionRecord from which on it has `directories`."""
_RESERVED_MAX = 100
"""Directory ids below it name no directory (DirectoryId: UNASSIGNED, LOST, MIGRATING)."""


@dataclass(slots=True)
class TopicRegistration:
    """The topic `name`: its id (None if it does not exist), and each partition's replicas as broker ids.

    `directories` has the ids of the replicas' log directories in the same order (KIP-858), for partitions
    whose records name them. `next_offset` is the offset after the last record that was read.
    """

    name: str
    topic_id: Uuid | None = None
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    directories: dict[int, tuple[Uuid, ...]] = field(default_factory=dict)
    next_offset: int = 0
    _held: list[bytes] | None = None
    """The records of a transaction that is not ended; None outside of one."""

    def replay(self, value: bytes) -> None:
        """Apply one record; CorruptInputError for a malformed one. Records of other topics change nothing."""
        kind, version, pos = head_of(value)
        if kind == _BEGIN:
            self._held = []
        elif kind in {_END, _ABORT}:
            held, self._held = self._held or (), None
            for each in held if kind == _END else ():
                self.replay(each)
        elif self._held is not None:
            self._held.append(value)
        else:
            self._apply(kind, version, value, pos)

    def _apply(self, kind: int, version: int, value: bytes, pos: int) -> None:
        named = topic_of(value)
        if named is not None:
            if named[0] == self.name:
                self._begin(named[1])
        elif kind == _REMOVE_TOPIC:
            raw, _ = take(value, pos, 16, "topic id")
            if raw == self._own_id:
                self._begin(None)
        elif kind in {_PARTITION, _PARTITION_CHANGE}:
            raw, pos = take(value, pos, 20, "partition and topic id")
            if raw[4:] != self._own_id:
                return
            partition = int.from_bytes(raw[:4], "big", signed=True)
            if kind == _PARTITION:
                self._place(partition, version, value, pos)
            else:
                self._change(partition, dict(_tagged(value, pos)))

    def _begin(self, topic_id: Uuid | None) -> None:
        self.topic_id, self.replicas, self.directories = topic_id, {}, {}

    def _place(self, partition: int, version: int, value: bytes, pos: int) -> None:
        """Apply the fields of a PartitionRecord from its replicas on."""
        self.replicas[partition], pos = _read_ids(value, pos)
        self.directories.pop(partition, None)
        if version >= _DIRECTORIES_FROM:
            for _ in ("isr", "removing replicas", "adding replicas"):
                _, pos = _read_ids(value, pos)
            _, pos = take(value, pos, 12, "leader, leader epoch and partition epoch")
            self.directories[partition] = _read_uuids(value, pos)

    def _change(self, partition: int, tagged: Mapping[int, bytes]) -> None:
        if _REPLICAS_TAG in tagged:
            self.replicas[partition], _ = _read_ids(tagged[_REPLICAS_TAG], 0)
        if _DIRECTORIES_TAG in tagged:
            self.directories[partition] = _read_uuids(tagged[_DIRECTORIES_TAG], 0)

    def directory(self, partition: int, node: int) -> Uuid | None:
        """Return the id of the log directory of a replica; None if the controller assigned none."""
        replicas, directories = self.replicas[partition], self.directories.get(partition, ())
        if len(replicas) != len(directories) or node not in replicas:
            return None
        found = directories[replicas.index(node)]
        return None if int.from_bytes(found.bytes, "big") < _RESERVED_MAX else found

    @property
    def _own_id(self) -> bytes | None:
        return None if self.topic_id is None else self.topic_id.bytes

    @property
    def nodes(self) -> Mapping[int, list[int]]:
        """Return the partitions of each broker that has a replica."""
        found: dict[int, list[int]] = {}
        for partition, replicas in sorted(self.replicas.items()):
            for node in replicas:
                found.setdefault(node, []).append(partition)
        return found


def _read_ids(value: bytes, pos: int) -> tuple[tuple[int, ...], int]:
    """Return the broker ids of an array, and the position after it."""
    count, pos = read_uvarint(value, pos, "number of replicas")
    raw, pos = take(value, pos, 4 * max(count - 1, 0), "replicas")
    return struct.unpack(f">{len(raw) // 4}i", raw), pos


def _read_uuids(value: bytes, pos: int) -> tuple[Uuid, ...]:
    count, pos = read_uvarint(value, pos, "number of directories")
    raw, _ = take(value, pos, 16 * max(count - 1, 0), "directories")
    return tuple(Uuid.from_bytes(raw[at : at + 16]) for at in range(0, len(raw), 16))


def _tagged(value: bytes, pos: int) -> Iterator[tuple[int, bytes]]:
    count, pos = read_uvarint(value, pos, "number of tagged fields")
    for _ in range(count):
        tag, pos = read_uvarint(value, pos, "tag")
        size, pos = read_uvarint(value, pos, "size of a tagged field")
        raw, pos = take(value, pos, size, "tagged field")
        yield tag, raw
