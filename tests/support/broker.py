"""Real brokers for tests: KRaft nodes, started in about three seconds.

    def test_offsets(brokers: Brokers) -> None:
        broker = brokers.shared()                   # one a session, shared between tests
        topic_id = broker.create_topic("orders-1", tiered=True)
        broker.produce("orders-1", 3000)
        broker.await_idle()
        assert broker.offsets("earliest-local", "orders-1") == {("orders-1", 0): 2400}

A shared broker is for tests that use topics of their own and don't stop it; `brokers.disturbed(...)` is
shared, too, by tests that stop it and start it again; `brokers.own(...)` is for one test, and
`brokers.cluster(...)` several nodes of one cluster; their folders go with the module of the test. All are of
the session's version of Kafka (tests/support/kafka.py). Only processes started here are ended, each by itself
(never by name).
Without Java these tests are skipped with a line that says so; with CI=true that is a failure.
"""

import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tierctl.model import Uuid

from tests.support.broker_client import CLIENT_TIMEOUT_S, StockClient
from tests.support.broker_settings import (
    METADATA_PARTITIONS,
    NODE_ID,
    PASSWORD,
    SECURED,
    SERVER,
    TIERED,
    USER,
    dotted,
    jaas_quoted,
)
from tests.support.certificates import Certificates, make_certificates
from tests.support.kafka import VERSION, KafkaRelease, fetch_release
from tests.support.made_once import make_once

__all__ = [
    "CLIENT_TIMEOUT_S",
    "METADATA_PARTITIONS",
    "NODE_ID",
    "PASSWORD",
    "USER",
    "Broker",
    "Brokers",
    "jaas_quoted",
]

START_TIMEOUT_S = 180
CLUSTER_ID = "dGllcmN0bC10ZXN0cy0wMQ"
# How fast a cluster detects that a node was killed, and a node stores the progress of others.
QUICK: dict[str, Any] = {
    "broker_session_timeout_ms": "4000",
    "broker_heartbeat_interval_ms": "500",
    "replica_high_watermark_checkpoint_interval_ms": "200",
}


@dataclass(kw_only=True)
class Broker(StockClient):
    """A node and its folder; `log_dir` is its data, `remote_dir` the tier of LocalTieredStorage.

    `tiered`, `roles` and `settings` take effect at the next `start`. Ports stay the same over restarts.
    `voters` are the controllers of a cluster of several nodes. `proxied_at` is the port of a proxy in front
    of `ports[2]`; clients of that listener are told to connect to it.
    """

    release: KafkaRelease
    folder: Path
    ports: tuple[int, ...]
    tiered: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    certificates: Certificates | None = None
    node_id: int = NODE_ID
    voters: str = ""
    remote: Path | None = None
    heap: str = "384m"
    jvm_options: tuple[str, ...] = ()
    proxied_at: int | None = None
    roles: str = "broker,controller"
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    _admin: Any = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        """Return the address of the listener without security."""
        return f"localhost:{self.ports[0]}"

    @property
    def bootstrap_sasl(self) -> str:
        """Return the address of the SASL_SSL listener: PLAIN, SCRAM-SHA-512, OAUTHBEARER."""
        return f"localhost:{self.ports[2]}"

    @property
    def bootstrap_ssl(self) -> str:
        """Return the address of the SSL listener, which requires a client's certificate."""
        return f"localhost:{self.ports[3]}"

    @property
    def log_dir(self) -> Path:
        """Return the log.dirs setting."""
        return self.folder / "logs"

    @property
    def remote_dir(self) -> Path:
        """Return the rsm.config.dir setting."""
        return self.remote or self.folder / "remote"

    @property
    def properties(self) -> Path:
        """Return the path of its server.properties."""
        return self.folder / "server.properties"

    @property
    def is_running(self) -> bool:
        """Return whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker, format it if it is new, and wait until it responds."""
        self.launch()
        self.await_up()

    def await_up(self) -> None:
        """Wait until the broker responds."""
        self.wait_for("the broker to answer", self._answers, START_TIMEOUT_S)

    def launch(self) -> None:
        """Start the broker without waiting."""
        assert not self.is_running
        self.remote_dir.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            self.format()
        with (self.folder / "broker.out").open("ab") as sink:
            self._process = subprocess.Popen(
                self.release.command(
                    "kafka.Kafka", [str(self.properties)], heap=self.heap, more=self.jvm_options
                ),
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def stop(self, *, kill: bool = False) -> None:
        """Stop the broker by SIGTERM, or with kill -9."""
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
        """Stop the broker and start it with other settings (`_` for `.` in their names)."""
        self.stop()
        self.tiered = self.tiered if tiered is None else tiered
        self.settings |= dotted(settings)
        self.start()

    def _write_properties(self) -> None:
        listeners = advertised = f"PLAINTEXT://localhost:{self.ports[0]}"
        if self.certificates is not None:
            listeners += f",SASL_SSL://localhost:{self.ports[2]},SSL://localhost:{self.ports[3]}"
            advertised = listeners
        elif self.proxied_at is not None:
            listeners += f",PROXIED://localhost:{self.ports[2]}"
            advertised += f",PROXIED://localhost:{self.proxied_at}"
        voters = self.voters or f"{self.node_id}@localhost:{self.ports[1]}"
        text = SERVER.format(roles=self.roles, node_id=self.node_id, voters=voters, log_dir=self.log_dir)
        controller = f"CONTROLLER://localhost:{self.ports[1]}"
        if self.roles == "controller":
            text += f"listeners={controller}\n"
        else:
            text += f"listeners={listeners},{controller}\nadvertised.listeners={advertised}\n"
        if self.tiered:
            text += TIERED.format(remote_dir=self.remote_dir, metadata_partitions=METADATA_PARTITIONS)
        if self.certificates is not None:
            text += SECURED.format(
                keystore=self.certificates.server_keystore,
                truststore=self.certificates.truststore,
                password=self.certificates.password,
                user=USER,
                # Escaped once for the JAAS string, and once for the .properties file.
                user_password=jaas_quoted(PASSWORD).replace("\\", "\\\\"),
            )
        text += "".join(f"{key}={value}\n" for key, value in self.settings.items())
        self.properties.write_text(text)

    def format(self) -> None:
        """Format the log directory of the node."""
        self._write_properties()
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
            return any(broker.id == self.node_id for broker in self._brokers().values())
        return False

    def _brokers(self) -> dict[int, Any]:
        from confluent_kafka import KafkaException

        try:
            brokers: dict[int, Any] = self.admin.list_topics(timeout=2).brokers
        except KafkaException:
            return {}
        return brokers

    def said(self) -> str:
        """Return everything that the broker has printed."""
        return (self.folder / "broker.out").read_text(errors="replace")


class Brokers:
    """The brokers of a test session; all running ones are stopped at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[tuple[object, ...], Broker] = {}
        self._all: list[Broker] = []
        self._own: list[Broker] = []

    def shared(self, *, tiered: bool = True, secured: bool = False) -> Broker:
        """Return the shared broker of this kind, and start it at the first call."""
        key = ("shared", tiered, secured)
        if key not in self._shared:
            self._shared[key] = self.own(tiered=tiered, secured=secured, kept=True)
        return self._shared[key]

    def disturbed(self) -> Broker:
        """Return a tiering broker for tests that stop and start it, or use it through a proxy."""
        key = ("disturbed",)
        if key not in self._shared:
            broker = self.own(start=False, kept=True, **QUICK)
            (broker.proxied_at,) = _free_ports(1)
            broker.start()
            self._shared[key] = broker
        broker = self._shared[key]
        if not broker.is_running:
            broker.start()
        return broker

    def guarded(self) -> Broker:
        """Return a broker that does not tier, and where tests set the rights of USER."""
        key = ("guarded",)
        if key not in self._shared:
            self._shared[key] = self.own(
                tiered=False,
                secured=True,
                kept=True,
                authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                super_users="User:ANONYMOUS",
                remote_log_manager_task_interval_ms="60000",
                **QUICK,
            )
        return self._shared[key]

    def cluster(
        self, nodes: int, *, tiered: bool = False, start: bool = True, **settings: str
    ) -> list[Broker]:
        """Return nodes of one cluster with one tier, each with a small heap, as broker and controller."""
        made = [self.own(tiered=tiered, start=False) for _ in range(nodes)]
        voters = ",".join(f"{number}@localhost:{broker.ports[1]}" for number, broker in enumerate(made, 1))
        for number, broker in enumerate(made, 1):
            broker.node_id, broker.voters, broker.heap = number, voters, "256m"
            broker.remote = made[0].folder / "remote"
            broker.settings |= dotted({**QUICK, **settings})
        made[0].format()
        for broker in made[1:]:
            shutil.copytree(made[0].log_dir, broker.log_dir)
            properties = broker.log_dir / "meta.properties"
            text = properties.read_text().replace("node.id=1", f"node.id={broker.node_id}")
            own_id = Uuid.from_bytes(uuid4().bytes)
            properties.write_text(re.sub("(?m)^directory.id=.*$", f"directory.id={own_id}", text))
        if start:
            for broker in made:
                broker.launch()
            for broker in made:
                broker.await_up()
        return made

    def own(
        self,
        *,
        tiered: bool = True,
        secured: bool = False,
        start: bool = True,
        kept: bool = False,
        **settings: str,
    ) -> Broker:
        """Return a broker for one test, which must stop it; one for several modules is `kept`."""
        release = fetch_release(VERSION)
        self._make_class_archive(release)
        folder = self._folder / f"{len(self._all)}-{VERSION}"
        folder.mkdir(parents=True)
        broker = Broker(
            release=release,
            folder=folder,
            ports=_free_ports(4),
            tiered=tiered,
            settings=dotted(settings),
            certificates=make_certificates(folder / "certificates") if secured else None,
        )
        self._all.append(broker)
        if not kept:
            self._own.append(broker)
        if start:
            broker.start()
        return broker

    def _make_class_archive(self, release: KafkaRelease) -> None:
        """Make the archive of Kafka's classes once for all sessions: a broker writes it when it ends."""

        def make(folder: Path) -> None:
            broker = Broker(
                release=release,
                folder=self._folder / "class-archive",
                ports=_free_ports(4),
                tiered=False,
                jvm_options=(f"-XX:ArchiveClassesAtExit={folder / release.class_archive.name}",),
            )
            broker.folder.mkdir()
            broker.start()
            broker.create_topic("archive", tiered=False)
            broker.produce("archive", 100)
            broker.stop()

        make_once(release.class_archive.parent, make)

    def end_module(self) -> None:
        """Stop the brokers of the module's tests, and delete their folders of up to 400 MB."""
        for broker in self._own:
            broker.stop(kill=True)
            shutil.rmtree(broker.folder, ignore_errors=True)
        self._own.clear()

    def stop(self) -> None:
        """Stop every running broker."""
        for broker in self._all:
            # A node of a cluster waits for a quorum whose other nodes are ending, too.
            broker.stop(kill=bool(broker.voters))


def _free_ports(count: int) -> tuple[int, ...]:
    """Return unused ports below the range for outgoing connections.

    A broker that restarts needs the same ports again.
    """
    found: list[int] = []
    for port in random.sample(range(20000, 32000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("localhost", port))
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise OSError("no free ports")


@pytest.fixture(scope="session")
def session_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Return real brokers of the session's version."""
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def brokers(session_brokers: Brokers) -> Iterator[Brokers]:
    """Return the brokers of the session; those that the module's tests made for themselves end with it."""
    yield session_brokers
    session_brokers.end_module()


@pytest.fixture(scope="session")
def broker(session_brokers: Brokers) -> Broker:
    """Return the shared broker with tiering."""
    return session_brokers.shared()
