"""One topic as the records of KRaft's cluster metadata state it, replayed in their order.

Source: TopicRecord.json, PartitionRecord.json, PartitionChangeRecord.json, RemoveTopicRecord.json,
{Begin,End,Abort}TransactionRecord.json.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierctl.model.ids import Uuid
from tierctl.wire.kraft.records import kind_of, topic_of
from tierctl.wire.primitives import read_uvarint, take

_PARTITION, _PARTITION_CHANGE, _REMOVE_TOPIC = 3, 5, 9
_BEGIN, _END, _ABORT = 23, 24, 25
_REPLICAS_TAG = 2
"""The tag of PartitionChangeRecord.replicas, which is absent if the replicas stay."""


@dataclass(slots=True)
class TopicRegistration:
    """The topic `name`: its id (None if it does not exist), and each partition's replicas as broker ids."""

    name: str
    topic_id: Uuid | None = None
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _held: list[bytes] | None = None
    """The records of a transaction that is not ended; None outside of one."""

    def replay(self, value: bytes) -> None:
        """Apply one record; CorruptInputError for a malformed one. Records of other topics change nothing."""
        kind, pos = kind_of(value)
        if kind == _BEGIN:
            self._held = []
        elif kind in {_END, _ABORT}:
            held, self._held = self._held or (), None
            for each in held if kind == _END else ():
                self.replay(each)
        elif self._held is not None:
            self._held.append(value)
        else:
            self._apply(kind, value, pos)

    def _apply(self, kind: int, value: bytes, pos: int) -> None:
        named = topic_of(value)
        if named is not None:
            if named[0] == self.name:
                self.topic_id, self.replicas = named[1], {}
        elif kind == _REMOVE_TOPIC:
            raw, _ = take(value, pos, 16, "topic id")
            if raw == self._own_id:
                self.topic_id, self.replicas = None, {}
        elif kind in {_PARTITION, _PARTITION_CHANGE}:
            raw, pos = take(value, pos, 20, "partition and topic id")
            if raw[4:] != self._own_id:
                return
            partition = int.from_bytes(raw[:4], "big", signed=True)
            if kind == _PARTITION:
                self.replicas[partition] = _read_ids(value, pos)
            elif (changed := dict(_tagged(value, pos)).get(_REPLICAS_TAG)) is not None:
                self.replicas[partition] = _read_ids(changed, 0)

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


def _read_ids(value: bytes, pos: int) -> tuple[int, ...]:
    count, pos = read_uvarint(value, pos, "number of replicas")
    raw, _ = take(value, pos, 4 * max(count - 1, 0), "replicas")
    return struct.unpack(f">{len(raw) // 4}i", raw)


def _tagged(value: bytes, pos: int) -> Iterator[tuple[int, bytes]]:
    count, pos = read_uvarint(value, pos, "number of tagged fields")
    for _ in range(count):
        tag, pos = read_uvarint(value, pos, "tag")
        size, pos = read_uvarint(value, pos, "size of a tagged field")
        raw, pos = take(value, pos, size, "tagged field")
        yield tag, raw
