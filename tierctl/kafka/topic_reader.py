"""Reads ranges of offsets of a topic through confluent-kafka: partitions are assigned, without a group."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from tierctl.errors import MetadataError
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.librdkafka import ErrorWatch, error_of, make_client, translated
from tierctl.kafka.raw_fetch import RawFetcher
from tierctl.model.progress import WAITS
from tierctl.wire.batches.chunks import RecordChunk

CHUNK_RECORDS_MAX = 20_000
CHUNK_BYTES_MAX = 8 << 20
_POLL_S = 0.2
# librdkafka always looks for the group's coordinator, although a client that may read the topic may have no
# right on groups.
PASSING = frozenset({"GROUP_AUTHORIZATION_FAILED", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT"})
CONSUMER_CONFIG = {
    # A consumer must name a group. It never joins: partitions are assigned and nothing is committed.
    "group.id": "tierctl",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 20,
    # The limit of fetched records that wait in memory.
    "queued.max.messages.kbytes": CHUNK_BYTES_MAX >> 10,
}


@dataclass(slots=True)
class _Rows:
    """The records of the next chunk."""

    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, message: Any) -> None:
        value = message.value()
        self.offsets.append(message.offset())
        self.timestamps_ms.append(message.timestamp()[1])
        self.values.append(value)
        self.size_bytes += 0 if value is None else len(value)

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= CHUNK_RECORDS_MAX or self.size_bytes >= CHUNK_BYTES_MAX

    def chunk(self, partition: int, next_offset: int) -> RecordChunk:
        return RecordChunk(
            partition,
            np.array(self.offsets, np.int64),
            np.array(self.timestamps_ms, np.int64),
            pa.array(self.values, pa.binary()),
            next_offset,
        )


class TopicReader:
    """Read `topic`; several reads may be in progress, in one thread or in several.

    Every read has its own consumer; up to `consumers_max` idle consumers are kept for later reads.
    """

    def __init__(self, settings: ClientSettings, topic: str, *, consumers_max: int = 4) -> None:
        self._settings = settings
        self._topic = topic
        self._consumers_max = consumers_max
        self._idle: list[tuple[Any, ErrorWatch]] = []
        self._lock = Lock()
        self._closed = False

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records in [start_offset, end_offset); end when the position reaches `end_offset`.

        Raises MetadataError without progress for `stall_timeout_ms`, AuthenticationError, NotFoundError.
        """
        if start_offset >= end_offset:
            return
        client = self._take()
        try:
            reading = _Reading(self._settings, self._topic, partition, end_offset=end_offset, client=client)
            yield from reading.chunks(start_offset)
        finally:
            self._give_back(client)

    def _take(self) -> tuple[Any, ErrorWatch]:
        with self._lock:
            if self._idle:
                return self._idle.pop()

        return make_client(sdk.confluent_kafka.Consumer, self._settings, CONSUMER_CONFIG)

    def _give_back(self, client: tuple[Any, ErrorWatch]) -> None:
        consumer, _ = client
        consumer.unassign()
        with self._lock:
            if not self._closed and len(self._idle) < self._consumers_max:
                self._idle.append(client)
                return
        consumer.close()

    def close(self) -> None:
        """Close the idle consumers; a read in progress closes its own."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for consumer, _ in idle:
            consumer.close()


class _Reading:
    """One read of one partition."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        partition: int,
        *,
        end_offset: int,
        client: tuple[Any, ErrorWatch],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._end = end_offset
        self._consumer, self._watch = client
        self._next = 0
        self._progress_s = 0.0
        self._doing = f"reading {topic}-{partition}"
        self._needs = Right("Read", topic)
        self._fetcher = RawFetcher(settings, topic)

    def chunks(self, start_offset: int) -> Iterator[RecordChunk]:
        """Yield the records from `start_offset` to the end."""
        try:
            self._assign(start_offset)
            while self._next < self._end:
                for chunk in self._some():
                    yield chunk
                    # The caller's own processing time does not count as a stall.
                    self._progress_s = time.monotonic()
        finally:
            self._fetcher.close()

    def _some(self) -> Iterator[RecordChunk]:
        """Yield the records that have arrived, up to the end or a full chunk."""
        rows = _Rows()
        while self._next < self._end and not rows.is_full:
            messages = self._messages(is_waiting=not rows.offsets)
            for message in messages:
                reached, is_damaged = self._reached(message)
                if reached > self._next or is_damaged:
                    # The consumer passed these offsets without a record: fetch the broker's batches to see
                    # why.
                    yield from self._flush(rows)
                    rows = _Rows()
                    yield from self._past_damage() if is_damaged else self._raw(reached)
                if message.error() is None and message.offset() == self._next < self._end:
                    rows.add(message)
                    self._advance(self._next + 1)
            if not messages and rows.offsets:
                break
        yield from self._flush(rows)

    def _assign(self, offset: int) -> None:

        with translated(self._doing, self._watch, self._needs):
            partition = sdk.confluent_kafka.TopicPartition(self._topic, self._partition, offset)
            self._consumer.assign([partition])
        self._advance(offset)

    def _advance(self, offset: int) -> None:
        self._next = offset
        self._progress_s = time.monotonic()

    def _messages(self, *, is_waiting: bool) -> list[Any]:
        """Return the messages that have arrived; wait for the first, but briefly unless `is_waiting`."""
        waiting = WAITS.waiting(f"{self._doing} at offset {self._next}, up to {self._end}")
        with translated(self._doing, self._watch, self._needs), waiting:
            while (first := self._consumer.poll(_POLL_S)) is None:
                self._check_stall()
                if not is_waiting:
                    return []
            return [first, *self._consumer.consume(CHUNK_RECORDS_MAX // 4, 0)]

    def _check_stall(self) -> None:
        self._watch.check()
        stall_ms = self._settings.stall_timeout_ms
        if time.monotonic() - self._progress_s > stall_ms / 1000:
            raise MetadataError(
                f"{self._doing}: no data arrived for {stall_ms} ms at offset {self._next}, and the end is "
                f"{self._end}{self._watch.facts}",
                hint="check that the partition's leader is running; default.api.timeout.ms in "
                "--command-config sets the time limit",
            )

    def _reached(self, message: Any) -> tuple[int, bool]:
        """Return the offset that the consumer has reached, and whether there is damage."""
        error = message.error()
        if error is None or error.name() == "_PARTITION_EOF":
            return min(message.offset(), self._end), False
        name = error.name()
        if name == "_AUTO_OFFSET_RESET":
            raise MetadataError(
                f"{self._doing}: offset {self._next} no longer exists, and the end was {self._end}",
                hint="records were deleted or lost while they were read: run again",
            )
        if name not in {"_BAD_MSG", *PASSING}:
            raise error_of(error, self._doing, self._watch, self._needs)
        self._check_stall()
        return self._next, name == "_BAD_MSG"

    def _flush(self, rows: _Rows) -> Iterator[RecordChunk]:
        if rows.offsets:
            yield rows.chunk(self._partition, self._next)

    def _raw(self, end_offset: int) -> Iterator[RecordChunk]:
        for chunk in self._fetcher.read(self._partition, self._next, end_offset):
            self._advance(chunk.next_offset)
            yield chunk

    def _past_damage(self) -> Iterator[RecordChunk]:
        """Read with Fetch requests until the damage is passed; the consumer would stop there for ever."""
        for chunk in self._raw(self._end):
            yield chunk
            if any(not bad.is_gap for bad in chunk.damage):
                break
        self._assign(self._next)
