"""One topic of a cluster through confluent-kafka: its admin requests, ranges of offsets, and appending."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tierctl import kafka as sdk
from tierctl.errors import (
    AuthenticationError,
    MetadataError,
    MetadataWriteFailed,
    MetadataWriteUnknown,
    NotFoundError,
    TierctlError,
    UsageError,
)
from tierctl.kafka import librdkafka
from tierctl.kafka.client_settings import ClientSettings, Right
from tierctl.kafka.leader_log import RawFetcher
from tierctl.kafka.librdkafka import (
    CHUNK_BYTES_MAX,
    CONSUMER_CONFIG,
    PASSING,
    ErrorWatch,
    NoLeaderError,
    answer,
    error_of,
    make_client,
    translated,
)
from tierctl.model import TopicPartition, Uuid
from tierctl.model.progress import WAITS
from tierctl.model.selection import counted
from tierctl.model.settings import clients
from tierctl.wire.arrays import ByteSlices
from tierctl.wire.batches.segment_file import RecordChunk

R = TypeVar("R")
_KNOWN_TIMES = 5
_LEADER_WAIT_S = 0.2
_ATTEMPT_S = 2.0
_NONE = -1
"""Instead of an offset: no record is as late as that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """The facts about a topic that must not change during a run."""

    topic_id: Uuid
    partition_count: int


class TopicAdmin:
    """An admin client of one cluster; every call returns or raises within `request_timeout_ms`.

    Raises AuthenticationError, NotFoundError, MetadataError, and UsageError for invalid settings. Several
    threads may use it.
    """

    def __init__(self, settings: ClientSettings) -> None:

        self._settings = settings
        self.client: Any
        self.client, self._watch = make_client(sdk.confluent_admin.AdminClient, settings)

    def answer(self, future: Future[R], doing: str, needs: Right | None = None) -> R:
        """Wait for the result of an admin call; `needs` is the right that it requires."""
        timeout_ms = self._settings.request_timeout_ms
        return answer(self.client, self._watch, future, doing, timeout_ms=timeout_ms, needs=needs)

    @property
    def request_timeout_s(self) -> float:
        """Return the timeout for the calls of the client library."""
        return self._settings.request_timeout_ms / 1000

    def describe_cluster(self) -> Any:
        """Return confluent-kafka's DescribeClusterResult: the cluster's id and its running brokers."""
        future = self.client.describe_cluster(request_timeout=self.request_timeout_s)
        return self.answer(future, f"asking {self._settings.bootstrap} for the cluster's brokers")

    def shape(self, topic: str) -> TopicShape:
        """Return a topic's id and partition count; raise NotFoundError if the topic does not exist."""

        futures = self.client.describe_topics(
            sdk.confluent_kafka.TopicCollection([topic]), request_timeout=self.request_timeout_s
        )
        doing = f"asking {self._settings.bootstrap} for topic {topic}"
        found = self.answer(futures[topic], doing, Right("Describe", topic))
        return TopicShape(topic_id=uuid_of(found.topic_id), partition_count=len(found.partitions))

    def require(self, topic: str, *operations: str) -> None:
        """Raise AuthenticationError if the brokers do not allow all of `operations` on the known topic."""

        allowed = librdkafka.until_heard(lambda: self._operations_of(topic))
        for operation in operations:
            # Brokers that do not report operations return none; a visible topic always allows Describe.
            if allowed and operation not in allowed:
                raise AuthenticationError(
                    f"{topic} on {self._settings.bootstrap}: {operation} is not allowed",
                    hint=Right(operation, topic).hint,
                )

    def _operations_of(self, topic: str) -> frozenset[str]:
        found = self.operations([topic])[topic]
        if isinstance(found, TierctlError):
            raise found
        return found

    def operations(self, topics: Collection[str]) -> dict[str, frozenset[str] | TierctlError]:
        """Return the operations that each topic allows this login, by their names in kafka-acls.

        None are returned by brokers that do not report operations. A topic that can't be asked for has the
        error.
        """
        if not topics:
            return {}
        futures = self.client.describe_topics(
            sdk.confluent_kafka.TopicCollection(sorted(topics)),
            include_authorized_operations=True,
            request_timeout=self.request_timeout_s,
        )
        found: dict[str, frozenset[str] | TierctlError] = {}
        for topic, future in futures.items():
            doing = f"asking {self._settings.bootstrap} for our rights on topic {topic}"
            try:
                answer = self.answer(future, doing, Right("Describe", topic))
                found[topic] = named_operations(answer.authorized_operations)
            except TierctlError as e:
                found[topic] = e
        return found

    def cluster_operations(self) -> frozenset[str]:
        """Return the operations that the cluster allows this login, as `operations` does for topics."""
        future = self.client.describe_cluster(
            include_authorized_operations=True, request_timeout=self.request_timeout_s
        )
        answer = self.answer(future, f"asking {self._settings.bootstrap} for our rights on the cluster")
        return named_operations(answer.authorized_operations)

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        *,
        latest: bool = False,
        committed: bool = False,
        at_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, or with `latest` the offset after its last record.

        `latest` is the high watermark, with `committed` the last stable offset. With `at_ms`, the offset is
        that of the first record with this timestamp or a later one; partitions without such a record are left
        out.
        """

        if not partitions:
            return {}
        specs, levels = sdk.confluent_admin.OffsetSpec, sdk.confluent_kafka.IsolationLevel
        spec = specs.latest() if latest else specs.earliest()
        spec = spec if at_ms is None else specs.for_timestamp(at_ms)
        asked = {sdk.confluent_kafka.TopicPartition(p.topic, p.partition): spec for p in partitions}
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        with WAITS.waiting(
            f"asking {self._settings.bootstrap} for the offsets of {counted(len(asked), 'partition')}"
        ):
            return self._listed(asked, level, partitions, may_be_none=at_ms is not None)

    def _listed(
        self,
        asked: Mapping[Any, Any],
        level: Any,
        partitions: Collection[TopicPartition],
        *,
        may_be_none: bool,
    ) -> dict[TopicPartition, int]:
        """Return the offsets that `asked` names; retry while a leader does not answer or know them."""
        deadline = time.monotonic() + self.request_timeout_s
        attempt_s = _ATTEMPT_S
        while True:
            # The first attempts are short, as a stopped leader never answers; later ones suit a slow leader.
            timeout_s = min(attempt_s, max(deadline - time.monotonic(), _LEADER_WAIT_S))
            futures = self.client.list_offsets(asked, isolation_level=level, request_timeout=timeout_s)
            try:
                found = self._offsets_in(futures, may_be_none=may_be_none)
                return {partition: offset for partition, offset in found.items() if offset >= 0}
            except (MetadataError, NotFoundError):
                # A broker may hear of a new topic later than the one that described it.
                if time.monotonic() > deadline:
                    raise
                self._check_exist(partitions)
                time.sleep(_LEADER_WAIT_S)
                attempt_s *= 2

    def _offsets_in(
        self, futures: Mapping[Any, Future[Any]], *, may_be_none: bool
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for key, future in futures.items():
            partition = TopicPartition(key.topic, key.partition)
            doing = f"asking for the offsets of {partition}"
            offset = int(self.answer(future, doing, Right("Describe", partition.topic)).offset)
            if offset < (_NONE if may_be_none else 0):
                # librdkafka reports a leader that did not answer by such an offset, without an error.
                raise NoLeaderError(
                    f"{doing}: its leader did not answer",
                    hint="check that the leader is running, then run again",
                )
            found[partition] = offset
        return found

    def _check_exist(self, partitions: Collection[TopicPartition]) -> None:
        counts = {topic: self.shape(topic).partition_count for topic in {p.topic for p in partitions}}
        for partition in partitions:
            if counts[partition.topic] <= partition.partition:
                raise NotFoundError(f"topic {partition.topic} has no partition {partition.partition}")

    def offsets(self, topic: str, count: int, *, latest: bool) -> dict[int, int]:
        """Return `list_offsets` for all `count` partitions of a topic, by number."""
        found = self.list_offsets([TopicPartition(topic, number) for number in range(count)], latest=latest)
        return {partition.partition: offset for partition, offset in found.items()}

    def offsets_for_time(self, topic: str, numbers: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Return the offset of the first record at or after a time; omit partitions without one."""
        asked = [TopicPartition(topic, number) for number in numbers]
        # Brokers interpret negative timestamps otherwise; every record is later than 0.
        found = self.list_offsets(asked, at_ms=max(timestamp_ms, 0))
        return {partition.partition: offset for partition, offset in found.items()}

    def names(self) -> list[str]:
        """Return the names of all topics, including internal topics."""
        # list_topics reports a refused connection only after request.timeout.ms; this does it at once.
        self.describe_cluster()
        with translated(f"asking {self._settings.bootstrap} for its topics", self._watch):
            return list(self.client.list_topics(timeout=self.request_timeout_s).topics)

    def create(
        self, topic: str, *, partition_count: int, replication_factor: int, settings: Mapping[str, str]
    ) -> None:
        """Create a topic with `settings` (its configuration) and wait until brokers know the topic.

        Another process may create the topic at the same time.
        """

        new = sdk.confluent_admin.NewTopic(topic, partition_count, replication_factor, config=dict(settings))
        futures = self.client.create_topics([new], request_timeout=self.request_timeout_s)
        try:
            self.answer(futures[topic], f"making topic {topic}", Right("Create", topic))
        except MetadataError as e:
            if "INVALID_REPLICATION_FACTOR" in e.message:
                raise UsageError(
                    f"topic {topic} can't be made with {replication_factor} replicas: the cluster has fewer "
                    "running brokers",
                    hint=f"state {clients.TOPIC_REPLICATION_FACTOR.name} in --broker-config or --override, "
                    "with its prefix rlmm.config., or start the other brokers",
                ) from None
            if "TOPIC_ALREADY_EXISTS" not in e.message:
                raise
        # The controller responds before all brokers know the topic, and a request may be sent to any of them.
        deadline = time.monotonic() + self.request_timeout_s
        known = 0
        while known < _KNOWN_TIMES and time.monotonic() < deadline:
            known = known + 1 if self.exists(topic) else 0
            time.sleep(_LEADER_WAIT_S)

    def why_refused(self, topic: str, settings: Mapping[str, str]) -> str | None:
        """Return why the controller would refuse a new topic with `settings`; None if it would make it.

        Nothing is created. AuthenticationError if this login may not create the topic.
        """
        new = sdk.confluent_admin.NewTopic(topic, 1, 1, config=dict(settings))
        futures = self.client.create_topics([new], request_timeout=self.request_timeout_s, validate_only=True)
        try:
            self.answer(futures[topic], f"asking about a new topic {topic}", Right("Create", topic))
        except MetadataError as e:
            cause = e.__cause__
            if (
                isinstance(cause, sdk.confluent_kafka.KafkaException)
                and cause.args[0].name() == "INVALID_CONFIG"
            ):
                return str(cause.args[0].str())
            raise
        return None

    def exists(self, topic: str) -> bool:
        """Return whether the topic exists."""
        try:
            self.shape(topic)
        except NotFoundError:
            return False
        return True


def named_operations(operations: Collection[Any] | None) -> frozenset[str]:
    """Return the names of confluent-kafka's AclOperations as kafka-acls has them, such as DescribeConfigs."""
    return frozenset(each.name.title().replace("_", "") for each in operations or ())


def uuid_of(found: Any) -> Uuid:
    """Convert confluent-kafka's Uuid to tierctl's."""
    return Uuid.from_bytes(
        b"".join(
            (number & (1 << 64) - 1).to_bytes(8, "big")
            for number in (found.get_most_significant_bits(), found.get_least_significant_bits())
        )
    )


CHUNK_RECORDS_MAX = 20_000
_POLL_S = 0.2


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
            ByteSlices.of(pa.array(self.values, pa.binary())),
            next_offset,
        )


_IDLE_MAX = 4


class TopicReader:
    """Read `topic`; several reads may be in progress, in one thread or in several.

    Every read has its own consumer; up to _IDLE_MAX idle consumers are kept for later reads.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
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
            if not self._closed and len(self._idle) < _IDLE_MAX:
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


_DELIVERY_POLL_S = 0.1
_REFUSALS_S = 2.0
_LAST_REPORTS_S = 5.0
_CONFIG = {
    "acks": "all",
    "enable.idempotence": True,
    # The records of a partition stay in order: no record is written after one that failed.
    "enable.gapless.guarantee": True,
    # A single record that times out would leave a gap; the whole append has a deadline instead.
    "message.timeout.ms": 0,
    "linger.ms": 5,
    "compression.type": "none",
}
_REFUSALS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
_HINT_UNKNOWN = "what was written shows when the metadata are read again: run the command once more"


class TopicPublisher:
    """Append to `topic`; concurrent calls of `append` are executed one after the other."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = Lock()
        self._producer: tuple[Any, ErrorWatch] | None = None

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs with null keys; return their offsets once replicated.

        All in-sync replicas then have the records. The call takes at most `delivery_timeout_ms`. Raises
        MetadataWriteFailed if no record was written, MetadataWriteUnknown if some may have been,
        AuthenticationError if the broker refuses the client.
        """
        with self._lock:
            if self._producer is None:
                self._producer = make_client(sdk.confluent_kafka.Producer, self._settings, _CONFIG)
            append = _Append(*self._producer, self._topic, len(records))
            complete = False
            try:
                offsets = append.run(records, self._settings.delivery_timeout_ms)
                complete = True
                return offsets
            finally:
                if not complete:
                    # The producer is not used again: its sequence numbers may have a gap, or records may
                    # still be queued.
                    append.abandon()
                    self._producer = None

    def close(self) -> None:
        """Disconnect; no append may be in progress."""
        with self._lock:
            self._producer = None


class _Append:
    """One append, and the result for each of its records."""

    def __init__(self, producer: Any, watch: ErrorWatch, topic: str, count: int) -> None:
        self._producer = producer
        self._watch = watch
        self._topic = topic
        self._offsets: list[int | None] = [None] * count
        self._errors: dict[int, Any] = {}
        self._reported = 0
        self._fatal: str | None = None

    def run(self, records: Sequence[tuple[int, bytes]], timeout_ms: int) -> list[int]:
        deadline = time.monotonic() + timeout_ms / 1000
        for index, (partition, value) in enumerate(records):
            self._send(index, partition, value, deadline)
        while self._reported < len(records):
            self._wait(deadline)
        offsets = [offset for offset in self._offsets if offset is not None]
        if self._errors or len(offsets) < len(records):
            raise self._failure("")
        return offsets

    def _send(self, index: int, partition: int, value: bytes, deadline: float) -> None:

        def delivered(error: Any, message: Any) -> None:
            self._reported += 1
            if error is not None:
                self._errors[index] = error
            elif message.offset() is not None and message.offset() >= 0:
                self._offsets[index] = message.offset()

        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            except BufferError:
                self._wait(deadline)
            except sdk.confluent_kafka.KafkaException as e:
                self._errors[index] = e.args[0]
                raise self._failure(f"record {index} was not taken") from None
            else:
                return

    def _wait(self, deadline: float) -> None:
        self._poll()
        if self._errors or self._fatal:
            raise self._failure("")
        try:
            self._watch.check()
        except AuthenticationError:
            if self._is_untouched:
                raise
            raise self._failure("the broker refuses us now") from None
        if time.monotonic() > deadline:
            raise self._failure("no acknowledgement in time")

    def _poll(self) -> None:

        try:
            self._producer.poll(_DELIVERY_POLL_S)
        except sdk.confluent_kafka.KafkaException as e:
            # The error is fatal for the producer; delivery reports have the result for each record.
            self._fatal = e.args[0].str()

    @property
    def _is_untouched(self) -> bool:
        """Return whether no record of this append was acknowledged."""
        return all(offset is None for offset in self._offsets)

    def _failure(self, why: str) -> Exception:
        # Wait for more delivery reports, which show whether the append failed or its outcome is unknown.
        deadline = time.monotonic() + _REFUSALS_S
        while len(self._producer) and time.monotonic() < deadline and (self._errors or self._fatal):
            self._poll()
        self.abandon()
        count, written = len(self._offsets), sum(offset is not None for offset in self._offsets)
        doing = f"appending {counted(count, 'record')} to {self._topic}"
        first = next(iter(self._errors.values()), None)
        needs = Right("Write", self._topic)
        cause = error_of(first, doing, self._watch, needs) if first is not None else None
        if written == 0 and cause is not None and all(map(_is_refusal, self._errors.values())):
            if isinstance(cause, AuthenticationError):
                return cause
            return MetadataWriteFailed(f"{cause.message}; none was written", hint=cause.hint)
        reason = why or self._fatal or (first.str() if first is not None else "the offsets were not told")
        return MetadataWriteUnknown(
            f"{doing}: {reason}; {written} were acknowledged, the others may or may not be written"
            f"{self._watch.facts}",
            hint=_HINT_UNKNOWN,
        )

    def abandon(self) -> None:
        """Drop the records that are not sent, and wait for the delivery reports of the others."""
        self._producer.purge()
        deadline = time.monotonic() + _LAST_REPORTS_S
        while len(self._producer) and time.monotonic() < deadline:
            self._poll()


def _is_refusal(error: Any) -> bool:
    """Return whether the error states that the record was not written."""
    return error.name() in _REFUSALS
