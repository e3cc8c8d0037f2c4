"""Reads records like a consumer of an application: with an isolation level, from any offset on.

Partitions are assigned without a consumer group, and no offset is committed.
"""

import time
from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from tierctl.errors import MetadataError
from tierctl.kafka import sdk
from tierctl.kafka.client_settings import ClientSettings, Right
from tierctl.kafka.librdkafka import error_of, make_client, translated
from tierctl.kafka.topic_client import CONSUMER_CONFIG, PASSING
from tierctl.model import IsolationLevel, TopicPartition
from tierctl.model.progress import WAITS

_POLL_S = 0.2
_AT_ONCE = 2000
_CONFIG = {
    **CONSUMER_CONFIG,
    # Leader epochs come with the cluster's metadata: the consumer must learn of an election soon (KIP-320).
    "topic.metadata.refresh.interval.ms": 1000,
}
_LAST_OFFSET = (1 << 63) - 1
_NOT_SERVED = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_BAD_MSG", "_LOG_TRUNCATION"})


class NotServedError(MetadataError):
    """The leader does not serve an offset: it is out of range, truncated or damaged, or no data arrived."""


class ServedRecord(NamedTuple):
    """A record as its leader serves it; null keys, values and header values are None.

    `leader_epoch` is None where the client does not report it.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


HeldPositions = dict[TopicPartition, ServedRecord | NotServedError]
"""The record that was read last of each partition, or why none was."""


class RecordConsumer:
    """One consumer; only one thread may use it, for one call at a time.

    Calls raise NotServedError, AuthenticationError, NotFoundError, and MetadataError for other failures.
    """

    def __init__(self, settings: ClientSettings, isolation: IsolationLevel) -> None:
        self._settings = settings
        config = {**_CONFIG, "isolation.level": str(isolation)}
        self._consumer, self._watch = make_client(sdk.confluent_kafka.Consumer, settings, config)

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def read(self, partition: TopicPartition, start_offset: int, end_offset: int) -> Iterator[ServedRecord]:
        """Yield the records in [start_offset, end_offset), or up to the end of what is readable."""
        self._assign({partition: start_offset})
        position = start_offset
        while position < end_offset:
            for message in self._messages(f"reading {partition} from offset {position} on", partition.topic):
                if self._is_end(message) or message.offset() >= end_offset:
                    return
                position = message.offset() + 1
                yield _record(message)

    def first(self, partition: TopicPartition, offset: int) -> ServedRecord | None:
        """Return the first record at or after `offset`, as after a seek; None at the end."""
        return next(self.read(partition, offset, _LAST_OFFSET), None)

    def hold(self, offsets: Mapping[TopicPartition, int]) -> HeldPositions:
        """Read one record of each partition from its offset on, and keep the position after it.

        Partitions whose end comes first are left out.
        """
        self._assign(offsets)
        return self._one_of_each(set(offsets))

    def resume(self, partitions: Set[TopicPartition]) -> HeldPositions:
        """Continue from the kept positions; return each partition's next record, and keep the new positions.

        A client that learns of a new leader epoch first asks the leader whether it still has the records up
        to the position; if not, the result for the partition is the error (truncation, KIP-320).
        """
        with translated("going on after the election", self._watch):
            self._consumer.resume([_client_partition(each) for each in partitions])
        return self._one_of_each(partitions)

    def poll(self) -> None:
        """Let the client process responses while its partitions are paused; raise errors that it reports."""
        with translated("holding a position", self._watch):
            message = self._consumer.poll(_POLL_S)
        if message is not None and not _is_passing(message):
            self._is_end(message)

    def _one_of_each(self, partitions: Set[TopicPartition]) -> HeldPositions:
        """Return the next record of each partition that is not at its end, and pause it there."""
        found: HeldPositions = {}
        ended: set[TopicPartition] = set()
        while waiting := partitions - found.keys() - ended:
            names = ", ".join(sorted(map(str, waiting)))
            try:
                (message,) = self._messages(f"reading a record of {names}", min(waiting).topic, at_once=1)
            except NotServedError as e:
                return found | dict.fromkeys(waiting, e)
            partition = TopicPartition(message.topic(), message.partition())
            if partition not in waiting:
                continue
            try:
                if self._is_end(message):
                    ended.add(partition)
                else:
                    found[partition] = _record(message)
            except NotServedError as e:
                found[partition] = e
            self._consumer.pause([_client_partition(partition)])
        return found

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        with translated("assigning partitions", self._watch):
            self._consumer.assign([_client_partition(each, offset) for each, offset in offsets.items()])

    def _messages(self, doing: str, topic: str, *, at_once: int = _AT_ONCE) -> list[Any]:
        """Return up to `at_once` messages; raise NotServedError if none arrive for `stall_timeout_ms`."""
        deadline = time.monotonic() + self._settings.stall_timeout_ms / 1000
        with translated(doing, self._watch, Right("Read", topic)), WAITS.waiting(doing):
            while (first := self._consumer.poll(_POLL_S)) is None or _is_passing(first):
                self._watch.check()
                if time.monotonic() > deadline:
                    raise NotServedError(
                        f"{doing}: no data arrived for {self._settings.stall_timeout_ms} "
                        f"ms{self._watch.facts}"
                    )
            more = self._consumer.consume(at_once - 1, 0) if at_once > 1 else []
        return [first, *(message for message in more if not _is_passing(message))]

    def _is_end(self, message: Any) -> bool:
        """Return whether a message reports the end of its partition; raise for any other error."""
        error = message.error()
        if error is None:
            return False
        name = error.name()
        if name == "_PARTITION_EOF":
            return True
        where = f"{message.topic()}-{message.partition()}"
        if name in _NOT_SERVED:
            raise NotServedError(f"{where}: {error.str()}")
        raise error_of(error, f"reading {where}", self._watch)


def _is_passing(message: Any) -> bool:
    """Return whether a message is about an error after which the client continues."""
    return message.error() is not None and message.error().name() in PASSING


def _client_partition(partition: TopicPartition, offset: int | None = None) -> Any:
    made = sdk.confluent_kafka.TopicPartition
    if offset is None:
        return made(partition.topic, partition.partition)
    return made(partition.topic, partition.partition, offset)


def _record(message: Any) -> ServedRecord:
    return ServedRecord(
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        leader_epoch=message.leader_epoch(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
