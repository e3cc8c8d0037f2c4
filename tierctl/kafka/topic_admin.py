"""Admin requests about one topic: its id, partitions and offsets, and its creation."""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, TierctlError
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.librdkafka import NoLeaderError, answer, make_client, translated
from tierctl.model import TopicPartition, Uuid
from tierctl.model.progress import WAITS

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
        """Raise AuthenticationError if the brokers do not allow all of `operations` on the topic."""

        allowed = self.operations([topic])[topic]
        if isinstance(allowed, TierctlError):
            raise allowed
        for operation in operations:
            # Brokers that do not report operations return none; a visible topic always allows Describe.
            if allowed and operation not in allowed:
                raise AuthenticationError(
                    f"{topic} on {self._settings.bootstrap}: {operation} is not allowed",
                    hint=Right(operation, topic).hint,
                )

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
        spec = (
            sdk.confluent_admin.OffsetSpec.latest() if latest else sdk.confluent_admin.OffsetSpec.earliest()
        )
        spec = spec if at_ms is None else sdk.confluent_admin.OffsetSpec.for_timestamp(at_ms)
        asked = {sdk.confluent_kafka.TopicPartition(p.topic, p.partition): spec for p in partitions}
        level = (
            sdk.confluent_kafka.IsolationLevel.READ_COMMITTED
            if committed
            else sdk.confluent_kafka.IsolationLevel.READ_UNCOMMITTED
        )
        with WAITS.waiting(f"asking {self._settings.bootstrap} for the offsets of {len(asked)} partitions"):
            return self._listed(asked, level, partitions, may_be_none=at_ms is not None)

    def _listed(
        self,
        asked: Mapping[Any, Any],
        level: Any,
        partitions: Collection[TopicPartition],
        *,
        may_be_none: bool,
    ) -> dict[TopicPartition, int]:
        """Return the offsets that `asked` names; retry while a leader does not answer."""
        deadline = time.monotonic() + self.request_timeout_s
        attempt_s = _ATTEMPT_S
        while True:
            # The first attempts are short, as a stopped leader never answers; later ones suit a slow leader.
            timeout_s = min(attempt_s, max(deadline - time.monotonic(), _LEADER_WAIT_S))
            futures = self.client.list_offsets(asked, isolation_level=level, request_timeout=timeout_s)
            try:
                found = self._offsets_in(futures, may_be_none=may_be_none)
                return {partition: offset for partition, offset in found.items() if offset >= 0}
            except MetadataError:
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
            if "TOPIC_ALREADY_EXISTS" not in e.message:
                raise
        # The controller responds before all brokers know the topic, and a request may be sent to any of them.
        deadline = time.monotonic() + self.request_timeout_s
        known = 0
        while known < _KNOWN_TIMES and time.monotonic() < deadline:
            known = known + 1 if self.exists(topic) else 0
            time.sleep(_LEADER_WAIT_S)

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
