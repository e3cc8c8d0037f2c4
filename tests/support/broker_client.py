"""Actions on a broker by standard clients and Kafka's own tools, without code of tierctl."""

import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import Uuid

from tests.support.broker_settings import TIERED_TOPIC, dotted
from tests.support.kafka import RUN_TIMEOUT_S, KafkaRelease

CLIENT_TIMEOUT_S = 30


class StockClient(ABC):
    """A broker at `bootstrap` whose folders are on this machine."""

    release: KafkaRelease
    _admin: Any

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Return the address of the listener without security."""

    @property
    @abstractmethod
    def log_dir(self) -> Path:
        """Return the log.dirs setting."""

    @property
    @abstractmethod
    def remote_dir(self) -> Path:
        """Return the rsm.config.dir setting."""

    @abstractmethod
    def said(self) -> str:
        """Return everything that the broker has printed."""

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait until `holds()` is true; on a timeout, fail with the end of the broker's output."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout_s:.0f} s for {what}; the broker said:\n{self.said()[-3000:]}")
            time.sleep(0.2)

    @property
    def admin(self) -> Any:
        """Return confluent-kafka's AdminClient."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, *, tiered: bool = False, replicas: int = 1, **settings: str
    ) -> Uuid:
        """Create a topic and return its id; `tiered` adds settings for tiering and short local retention."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        config = {**(TIERED_TOPIC if tiered else {"segment.bytes": "1048576"}), **dotted(settings)}
        for attempt in (1, 2, 3):
            future = self.admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name]
            try:
                future.result(CLIENT_TIMEOUT_S)
                break
            except KafkaException as e:
                # The client replaced its connections while it asked: the controller may have made the topic.
                if attempt > 1 and e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                if e.args[0].code() != KafkaError._DESTROY_BROKER:
                    raise
        self.wait_for(f"topic {name} to have leaders", lambda: self._has_leaders(name, partitions))
        return self.topic_id(name)

    def _has_leaders(self, name: str, partitions: int) -> bool:
        found = self.admin.list_topics(name, timeout=5).topics[name].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    def topic_id(self, name: str) -> Uuid:
        """Return a topic's id, as soon as the broker knows the topic."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        ids: list[str] = []

        def is_known() -> bool:
            futures = self.admin.describe_topics(TopicCollection([name]))
            try:
                ids.append(str(futures[name].result(CLIENT_TIMEOUT_S).topic_id))
            except KafkaException as e:
                if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            return bool(ids)

        self.wait_for(f"topic {name} to be known", is_known)
        (found,) = ids
        # The client prints ids in standard base64, Kafka in URL-safe base64.
        return Uuid(found.replace("+", "-").replace("/", "_"))

    def topic_settings(self, name: str) -> dict[str, str]:
        """Return a topic's settings, including defaults."""
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        (future,) = self.admin.describe_configs([resource]).values()
        return {key: entry.value for key, entry in future.result(CLIENT_TIMEOUT_S).items()}

    def alter_topic(self, name: str, **settings: str) -> None:
        """Set topic settings (`_` for `.` in their names)."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in dotted(settings).items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(CLIENT_TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it no longer exists."""
        for future in self.admin.delete_topics([name]).values():
            future.result(CLIENT_TIMEOUT_S)
        self.wait_for(f"{name} to be gone", lambda: name not in self.admin.list_topics(timeout=5).topics)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic."""
        from confluent_kafka.admin import NewPartitions

        for future in self.admin.create_partitions([NewPartitions(name, total)]).values():
            future.result(CLIENT_TIMEOUT_S)
        self.wait_for(f"{total} partitions of {name}", lambda: self._has_leaders(name, total))

    def delete_records(self, name: str, partition: int, before_offset: int) -> None:
        """Raise a partition's log start; repeat the request while the client does not know a new leader."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        request = [TopicPartition(name, partition, before_offset)]
        for pause_s in (0.5, 1.0, 2.0, None):
            try:
                for future in self.admin.delete_records(request).values():
                    future.result(CLIENT_TIMEOUT_S)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or pause_s is None:
                    raise
                time.sleep(pause_s)
            else:
                return

    def produce(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        size: int = 1000,
        seed: int = 1,
        batch: int = 50,
        timestamp_ms: int = 0,
        **settings: Any,
    ) -> None:
        """Produce `count` records of about `size` random bytes, which no codec compresses.

        Their timestamps are the current time, unless `timestamp_ms` is given.
        """
        from confluent_kafka import Producer

        config = {"linger.ms": 5, "batch.num.messages": batch, **dotted(settings)}
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **config})
        _send(producer, topic, partition, _values(count, size, seed), timestamp_ms)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0

    @contextmanager
    def transaction(
        self,
        topic: str,
        count: int,
        *,
        transactional_id: str,
        partition: int = 0,
        size: int = 1000,
        **settings: str,
    ) -> Iterator[Any]:
        """Produce within a transaction; the body receives the producer and may end the transaction.

        Brokers abort it after a minute, unless `transaction_timeout_ms` is given.
        """
        from confluent_kafka import Producer

        config = {"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5, **dotted(settings)}
        producer = Producer({**config, "transactional.id": transactional_id})
        producer.init_transactions(CLIENT_TIMEOUT_S)
        producer.begin_transaction()
        _send(producer, topic, partition, _values(count, size, seed=count))
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        yield producer

    def produce_transaction(self, topic: str, count: int, *, commit: bool = True, **more: Any) -> None:
        """Produce a complete transaction, committed or aborted."""
        name = f"{topic}-{random.randrange(1 << 30)}"
        with self.transaction(topic, count, transactional_id=name, **more) as producer:
            (producer.commit_transaction if commit else producer.abort_transaction)(CLIENT_TIMEOUT_S)

    def await_idle(self, quiet_s: float = 2.0, timeout_s: float = 90) -> None:
        """Wait until no local or remote segment has changed for `quiet_s`: four task intervals."""
        seen, since = self._segments(), time.monotonic()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() - since < quiet_s:
            if time.monotonic() > deadline:
                pytest.fail(f"the broker was still moving segments after {timeout_s:.0f} s")
            time.sleep(0.2)
            now = self._segments()
            if now != seen:
                seen, since = now, time.monotonic()

    def _segments(self) -> list[str]:
        found: list[str] = []
        for folder in (self.log_dir, self.remote_dir):
            for _, _, files in os.walk(folder):
                found += [name for name in files if re.search(r"\.log(\.deleted)?$", name)]
        return sorted(found)

    def tool(self, main_class: str, *arguments: str, timeout_s: float = RUN_TIMEOUT_S) -> str:
        """Run one of Kafka's tools against this broker; return its stdout."""
        return self.release.run(
            main_class, "--bootstrap-server", self.bootstrap, *arguments, timeout_s=timeout_s
        )

    def offsets(self, time_spec: str, *topics: str) -> dict[tuple[str, int], int]:
        """Return GetOffsetShell's offsets (earliest, earliest-local, ...) by topic and partition.

        A partition for which it prints no offset is left out.
        """
        text = self.tool("org.apache.kafka.tools.GetOffsetShell", "--time", time_spec)
        found: dict[tuple[str, int], int] = {}
        for line in text.splitlines():
            match = re.fullmatch(r"(\S+):(\d+):(-?\d+)", line)
            if match and (not topics or match[1] in topics):
                found[match[1], int(match[2])] = int(match[3])
        return found

    def console_consumer(self, topic: str, *arguments: str, timeout_ms: int = 5000) -> list[str]:
        """Return lines of Kafka's console consumer, until it receives no record for `timeout_ms`."""
        text = self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--timeout-ms", str(timeout_ms)),
            *arguments,
        )
        return text.splitlines()

    def records(
        self,
        topic: str,
        partition: int = 0,
        *,
        isolation: str = "read_uncommitted",
        start: int = 0,
        most: int | None = None,
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Return (offset, timestamp, key, value) of the records that a consumer reads from `start` on."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        config = {"group.id": "tests", "enable.auto.commit": False, "auto.offset.reset": "error"}
        config |= {"isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **config})
        found: list[Any] = []
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    facts = (message.offset(), message.timestamp()[1], message.key(), message.value())
                    found.append(facts)
                    if len(found) == most:
                        return found
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                elif error.code() != KafkaError.UNKNOWN:
                    raise KafkaException(error)
                # Else a broker that started has not read the metadata topic: the client repeats the fetch.
        finally:
            consumer.close()
        pytest.fail(f"{topic}-{partition} did not end within 60 s; {len(found)} records came")


def _values(count: int, size: int, seed: int) -> Iterator[bytes]:
    source = random.Random(seed)
    for _ in range(count):
        yield source.randbytes(size)


def _send(producer: Any, topic: str, partition: int, values: Iterator[bytes], timestamp_ms: int = 0) -> None:
    for number, value in enumerate(values):
        key = b"k%d" % (number % 10)
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
