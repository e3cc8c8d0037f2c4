"""Real brokers for tests: a single KRaft node each, started in about three seconds.

    def test_offsets(brokers: Brokers) -> None:
        broker = brokers.shared("4.3.0")            # one a session, shared between tests
        topic_id = broker.create_topic("orders-1", tiered=True)
        broker.produce("orders-1", 3000)
        broker.await_idle()
        assert broker.offsets("earliest-local", "orders-1") == {("orders-1", 0): 2400}

A shared broker is for tests that use topics of their own and don't stop it; `brokers.own(...)` is for one
test. Only processes started here are ended, each by itself. Without Java these tests are skipped with a line
that says so; with CI=true that is a failure.
"""

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import Uuid

from tests.certificates import Certificates, make_certificates
from tests.kafka import RUN_TIMEOUT_S, VERSIONS, KafkaRelease, fetch_release

START_TIMEOUT_S = 60
CLIENT_TIMEOUT_S = 30
CLUSTER_ID = "dGllcmN0bC10ZXN0cy0wMQ"
NODE_ID = 7
USER, PASSWORD = "alice", 'al;ice"s \\ secret'
METADATA_PARTITIONS = 5

_SERVER = """process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@localhost:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
log.dirs={log_dir}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=500
"""
_TIERED = """remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
remote.log.metadata.manager.listener.name=PLAINTEXT
rsm.config.dir={remote_dir}
rsm.config.delete.on.close=false
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions={metadata_partitions}
rlmm.config.remote.log.metadata.topic.min.isr=1
remote.log.manager.task.interval.ms=500
"""
_TIERED_TOPIC = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": "1048576"}
_SECURED = """ssl.keystore.location={keystore}
ssl.keystore.password={password}
ssl.keystore.type=PKCS12
ssl.truststore.location={truststore}
ssl.truststore.password={password}
ssl.truststore.type=PKCS12
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{user_password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="thePrincipal";
"""


@dataclass(kw_only=True)
class Broker:
    """A node and its folder; `log_dir` is its data, `remote_dir` the tier of LocalTieredStorage.

    `tiered` and `settings` count at the next `start`. Ports stay the same over restarts.
    """

    release: KafkaRelease
    folder: Path
    ports: tuple[int, int, int, int]
    tiered: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    certificates: Certificates | None = None
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    _admin: Any = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        """The listener without security."""
        return f"localhost:{self.ports[0]}"

    @property
    def bootstrap_sasl(self) -> str:
        """The SASL_SSL listener of a secured broker: PLAIN, SCRAM-SHA-512, OAUTHBEARER."""
        return f"localhost:{self.ports[2]}"

    @property
    def bootstrap_ssl(self) -> str:
        """The SSL listener of a secured broker, which wants a client's certificate."""
        return f"localhost:{self.ports[3]}"

    @property
    def log_dir(self) -> Path:
        """log.dirs."""
        return self.folder / "logs"

    @property
    def remote_dir(self) -> Path:
        """rsm.config.dir."""
        return self.folder / "remote"

    @property
    def properties(self) -> Path:
        """The server.properties it runs with."""
        return self.folder / "server.properties"

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, formatted when it is new, and wait until it answers."""
        assert not self.is_running
        self.remote_dir.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            self._format()
        with (self.folder / "broker.out").open("ab") as sink:
            self._process = subprocess.Popen(
                self.release.command("kafka.Kafka", [str(self.properties)]),
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self.wait_for("the broker to answer", self._answers, START_TIMEOUT_S)

    def stop(self, *, kill: bool = False) -> None:
        """End it as an operator would, by SIGTERM, or with kill -9."""
        self._admin = None
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=30)

    def restart(self, *, tiered: bool | None = None, **settings: str) -> None:
        """Stop it and start it again, with other settings (`_` for `.` in their names)."""
        self.stop()
        self.tiered = self.tiered if tiered is None else tiered
        self.settings |= dotted(settings)
        self.start()

    def _write_properties(self) -> None:
        listeners = f"PLAINTEXT://localhost:{self.ports[0]}"
        if self.certificates is not None:
            listeners += f",SASL_SSL://localhost:{self.ports[2]},SSL://localhost:{self.ports[3]}"
        text = _SERVER.format(node_id=NODE_ID, controller_port=self.ports[1], log_dir=self.log_dir)
        text += f"listeners={listeners},CONTROLLER://localhost:{self.ports[1]}\n"
        text += f"advertised.listeners={listeners}\n"
        if self.tiered:
            text += _TIERED.format(remote_dir=self.remote_dir, metadata_partitions=METADATA_PARTITIONS)
        if self.certificates is not None:
            text += _SECURED.format(
                keystore=self.certificates.server_keystore,
                truststore=self.certificates.truststore,
                password=self.certificates.password,
                user=USER,
                # Once for the JAAS string, once for the .properties file.
                user_password=jaas_quoted(PASSWORD).replace("\\", "\\\\"),
            )
        text += "".join(f"{key}={value}\n" for key, value in self.settings.items())
        self.properties.write_text(text)

    def _format(self) -> None:
        more = []
        if self.certificates is not None:
            more = ["--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"]
        self.release.run(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties), *more
        )

    def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            pytest.fail(f"the broker ended:\n{self.said()[-3000:]}")
        with suppress(OSError), socket.create_connection(("localhost", self.ports[0]), timeout=1):
            return any(broker.id == NODE_ID for broker in self._brokers().values())
        return False

    def _brokers(self) -> dict[int, Any]:
        from confluent_kafka import KafkaException

        try:
            brokers: dict[int, Any] = self.admin.list_topics(timeout=2).brokers
        except KafkaException:
            return {}
        return brokers

    def said(self) -> str:
        """Everything the broker printed so far."""
        return (self.folder / "broker.out").read_text(errors="replace")

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait until `holds()`; fails with the end of the broker's output."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout_s:.0f} s for {what}; the broker said:\n{self.said()[-3000:]}")
            time.sleep(0.2)

    # What tests do with it, by a stock client that knows nothing of tierctl.

    @property
    def admin(self) -> Any:
        """confluent-kafka's AdminClient."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, *, tiered: bool = False, **settings: str) -> Uuid:
        """Create a topic and return its id; `tiered` adds what makes a broker tier it and drop its copies."""
        from confluent_kafka.admin import NewTopic

        config = {**(_TIERED_TOPIC if tiered else {"segment.bytes": "1048576"}), **dotted(settings)}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(CLIENT_TIMEOUT_S)
        self.wait_for(f"topic {name} to have leaders", lambda: self._has_leaders(name, partitions))
        return self.topic_id(name)

    def _has_leaders(self, name: str, partitions: int) -> bool:
        found = self.admin.list_topics(name, timeout=5).topics[name].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    def topic_id(self, name: str) -> Uuid:
        """A topic's id."""
        from confluent_kafka import TopicCollection

        futures = self.admin.describe_topics(TopicCollection([name]))
        found = str(futures[name].result(CLIENT_TIMEOUT_S).topic_id)
        # It prints in plain base64, Kafka in that of addresses.
        return Uuid(found.replace("+", "-").replace("/", "_"))

    def topic_settings(self, name: str) -> dict[str, str]:
        """A topic's settings, defaults included."""
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
        """Delete a topic and wait until it is gone."""
        for future in self.admin.delete_topics([name]).values():
            future.result(CLIENT_TIMEOUT_S)
        self.wait_for(f"{name} to be gone", lambda: name not in self.admin.list_topics(timeout=5).topics)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        for future in self.admin.create_partitions([NewPartitions(name, total)]).values():
            future.result(CLIENT_TIMEOUT_S)
        self.wait_for(f"{total} partitions of {name}", lambda: self._has_leaders(name, total))

    def delete_records(self, name: str, partition: int, before_offset: int) -> None:
        """Raise a partition's log start."""
        from confluent_kafka import TopicPartition

        request = [TopicPartition(name, partition, before_offset)]
        for future in self.admin.delete_records(request).values():
            future.result(CLIENT_TIMEOUT_S)

    def produce(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        size: int = 1000,
        seed: int = 1,
        batch: int = 50,
        **settings: Any,
    ) -> None:
        """Produce `count` records of about `size` random bytes, which no codec makes smaller."""
        from confluent_kafka import Producer

        config = {"linger.ms": 5, "batch.num.messages": batch, **dotted(settings)}
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **config})
        _send(producer, topic, partition, _values(count, size, seed))
        assert producer.flush(CLIENT_TIMEOUT_S) == 0

    @contextmanager
    def transaction(
        self, topic: str, count: int, *, transactional_id: str, partition: int = 0, size: int = 1000
    ) -> Iterator[Any]:
        """Produce within a transaction; the body gets the producer and ends the transaction, or doesn't."""
        from confluent_kafka import Producer

        config = {"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5}
        producer = Producer({**config, "transactional.id": transactional_id})
        producer.init_transactions(CLIENT_TIMEOUT_S)
        producer.begin_transaction()
        _send(producer, topic, partition, _values(count, size, seed=count))
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        yield producer

    def produce_transaction(self, topic: str, count: int, *, commit: bool = True, **more: Any) -> None:
        """One whole transaction, committed or aborted."""
        name = f"{topic}-{random.randrange(1 << 30)}"
        with self.transaction(topic, count, transactional_id=name, **more) as producer:
            (producer.commit_transaction if commit else producer.abort_transaction)(CLIENT_TIMEOUT_S)

    def await_idle(self, quiet_s: float = 2.0, timeout_s: float = 90) -> None:
        """Wait until no segment came or went, here or in the tier, for `quiet_s`: four task intervals."""
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
        """Standard output of one of Kafka's tools against this broker."""
        return self.release.run(
            main_class, "--bootstrap-server", self.bootstrap, *arguments, timeout_s=timeout_s
        )

    def offsets(self, time_spec: str, *topics: str) -> dict[tuple[str, int], int]:
        """GetOffsetShell's answer (earliest, earliest-local, latest-tiered, latest) by topic and partition.

        A partition for which it names no offset is left out.
        """
        text = self.tool("org.apache.kafka.tools.GetOffsetShell", "--time", time_spec)
        found: dict[tuple[str, int], int] = {}
        for line in text.splitlines():
            match = re.fullmatch(r"(\S+):(\d+):(-?\d+)", line)
            if match and (not topics or match[1] in topics):
                found[match[1], int(match[2])] = int(match[3])
        return found

    def console_consumer(self, topic: str, *arguments: str, timeout_ms: int = 5000) -> list[str]:
        """Lines of the stock console consumer, from the beginning until nothing came for `timeout_ms`."""
        text = self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--timeout-ms", str(timeout_ms)),
            *arguments,
        )
        return text.splitlines()

    def records(
        self, topic: str, partition: int = 0, *, isolation: str = "read_uncommitted", start: int = 0
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """(offset, timestamp, key, value) of every record a stock consumer is served from `start` on."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        config = {"group.id": "tests", "enable.auto.commit": False, "auto.offset.reset": "error"}
        config |= {"isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **config})
        found = []
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
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        pytest.fail(f"{topic}-{partition} did not end within 60 s; {len(found)} records came")


def _values(count: int, size: int, seed: int) -> Iterator[bytes]:
    source = random.Random(seed)
    for _ in range(count):
        yield source.randbytes(size)


def _send(producer: Any, topic: str, partition: int, values: Iterator[bytes]) -> None:
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value=value, key=b"k%d" % (number % 10), partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as keyword arguments: retention_ms="1" is retention.ms=1."""
    return {key.replace("_", "."): value for key, value in settings.items()}


def jaas_quoted(text: str) -> str:
    """`text` as it stands between the quotation marks of a JAAS option."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


class Brokers:
    """Brokers of a test session; all that still run are ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[tuple[object, ...], Broker] = {}
        self._all: list[Broker] = []

    def shared(self, version: str, *, tiered: bool = True, secured: bool = False) -> Broker:
        """The broker of this kind that tests share; started when it is first asked for."""
        key = (version, tiered, secured)
        if key not in self._shared:
            self._shared[key] = self.own(version, tiered=tiered, secured=secured)
        return self._shared[key]

    def own(
        self, version: str, *, tiered: bool = True, secured: bool = False, start: bool = True, **settings: str
    ) -> Broker:
        """A broker for one test; the caller stops it when it is done with it."""
        release = fetch_release(version)
        folder = self._folder / f"{len(self._all)}-{version}"
        folder.mkdir(parents=True)
        broker = Broker(
            release=release,
            folder=folder,
            ports=_free_ports(),
            tiered=tiered,
            settings=dotted(settings),
            certificates=make_certificates(folder / "certificates") if secured else None,
        )
        self._all.append(broker)
        if start:
            broker.start()
        return broker

    def stop(self) -> None:
        """End every broker that still runs."""
        for broker in self._all:
            broker.stop()


def _free_ports() -> tuple[int, int, int, int]:
    """Ports nobody listens on, below those that systems give to outgoing connections.

    A broker that restarts wants its ports back.
    """
    found: list[int] = []
    for port in random.sample(range(20000, 32000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("localhost", port))
            found.append(port)
        if len(found) == 4:
            return found[0], found[1], found[2], found[3]
    raise OSError("no free ports")


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Real brokers, by version."""
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session", params=VERSIONS)
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> Broker:
    """A shared broker of each version, with tiering."""
    return brokers.shared(request.param)
