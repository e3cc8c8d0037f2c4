"""Kafka's own tools and brokers from Maven Central, for the tests that need them.

    def test_dump(kafka: KafkaRelease) -> None:
        text = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))

Jars are kept in `.cache/kafka/<version>`, or below $TIERCTL_TEST_KAFKA. Without Java or Maven these tests are
skipped with a line that says so; with CI=true that is a failure.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

VERSIONS = ("4.3.0", "3.9.1")
RUN_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 900
BROKER_START_TIMEOUT_S = 60

_REPOSITORY = Path(__file__).parents[1]
_ARTIFACTS = ("kafka_2.13", "kafka-tools", "kafka-storage")
_DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{more}
    </dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tierctl.tests</groupId><artifactId>kafka</artifactId><version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
_SERVER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
advertised.listeners=PLAINTEXT://localhost:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=1
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
rsm.config.dir={remote_dir}
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions=5
rlmm.config.remote.log.metadata.topic.min.isr=1
remote.log.manager.task.interval.ms=1000
log.initial.task.delay.ms=500
log.retention.check.interval.ms=2000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRelease:
    """One version of Kafka, unpacked in `jars`."""

    version: str
    jars: Path

    def command(self, main_class: str, arguments: Sequence[str]) -> list[str]:
        """The command line that runs a main class."""
        return ["java", "-Xmx512m", "-cp", f"{self.jars}/*", main_class, *arguments]

    def run(self, main_class: str, *arguments: str, timeout_s: float = RUN_TIMEOUT_S) -> str:
        """Standard output of a tool that must end well."""
        done = subprocess.run(
            self.command(main_class, arguments),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            pytest.fail(
                f"{main_class} {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}"
            )
        return done.stdout

    def dump_log(self, segment: Path, *options: str) -> str:
        """What kafka-dump-log prints of a segment or index."""
        package = "kafka" if self.version.startswith("3.") else "org.apache.kafka"
        return self.run(f"{package}.tools.DumpLogSegments", "--files", str(segment), *options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A single KRaft node that runs; `log_dir` is its data, `remote_dir` the tier of LocalTieredStorage."""

    release: KafkaRelease
    bootstrap: str
    log_dir: Path
    remote_dir: Path
    output: Path

    def tool(self, main_class: str, *arguments: str) -> str:
        """A tool against this broker."""
        return self.release.run(main_class, "--bootstrap-server", self.bootstrap, *arguments)

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait until `holds()`; fails with the end of the broker's output."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout_s:.0f} s for {what}; the broker said:\n{self.said()[-3000:]}")
            time.sleep(0.3)

    def said(self) -> str:
        """Everything the broker printed so far."""
        return self.output.read_text(errors="replace")


def fetch_release(version: str) -> KafkaRelease:
    """Kafka of that version, from the cache or Maven Central; skips, or fails under CI, without it."""
    root = Path(os.environ.get("TIERCTL_TEST_KAFKA", _REPOSITORY / ".cache" / "kafka"))
    jars = root / version
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if "java" in missing or (missing and not jars.is_dir()):
        _cannot(f"Kafka {version} needs {' and '.join(missing)}, which are not installed")
    if not jars.is_dir():
        _fetch(version, root, jars)
    return KafkaRelease(version=version, jars=jars)


def _cannot(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED AGAINST KAFKA: {reason}")


def _fetch(version: str, root: Path, jars: Path) -> None:
    """Jars arrive in a folder of our own first: tests that run side by side see all of them or none."""
    mine = root / f"{version}.{os.getpid()}"
    mine.mkdir(parents=True)
    (mine / "pom.xml").write_text(_pom(version))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={mine / 'jars'}"]
    try:
        done = subprocess.run(
            command, cwd=mine, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
        if done.returncode:
            _cannot(f"Maven could not fetch Kafka {version}: {done.stdout[-1500:]}")
        with suppress(OSError):
            (mine / "jars").rename(jars)
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def _pom(version: str) -> str:
    wanted = [("org.apache.kafka", artifact, version, "") for artifact in _ARTIFACTS]
    # LocalTieredStorage lives in the tests of kafka-storage, which need those of kafka-clients.
    tests = "<classifier>test</classifier>"
    wanted += [
        ("org.apache.kafka", artifact, version, tests) for artifact in ("kafka-storage", "kafka-clients")
    ]
    if not version.startswith("3."):
        wanted.append(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3", ""))
        wanted.append(("org.apache.logging.log4j", "log4j-core", "2.24.3", ""))
    dependencies = "".join(
        _DEPENDENCY.format(group=group, artifact=artifact, version=number, more=more)
        for group, artifact, number, more in wanted
    )
    return _POM.format(version=version, dependencies=dependencies)


@contextmanager
def running_broker(
    release: KafkaRelease, folder: Path, ports: tuple[int, int], settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker over `folder`, formatted when it is new; stopped as an operator would, by SIGTERM."""
    log_dir, remote_dir = folder / "logs", folder / "remote"
    remote_dir.mkdir(parents=True, exist_ok=True)
    server = folder / "server.properties"
    text = _SERVER.format(port=ports[0], controller_port=ports[1], log_dir=log_dir, remote_dir=remote_dir)
    server.write_text(text + "".join(f"{key}={value}\n" for key, value in (settings or {}).items()))
    if not (log_dir / "meta.properties").exists():
        cluster_id = "dGllcmN0bC10ZXN0cy0wMQ"
        release.run("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(server))
    output = folder / "broker.out"
    with output.open("ab") as sink:
        process = subprocess.Popen(
            release.command("kafka.Kafka", [str(server)]), stdout=sink, stderr=subprocess.STDOUT, cwd=folder
        )
        try:
            broker = Broker(
                release=release,
                bootstrap=f"localhost:{ports[0]}",
                log_dir=log_dir,
                remote_dir=remote_dir,
                output=output,
            )
            _await_listener(broker, process, ports[0])
            yield broker
        finally:
            _stop(process)


def _await_listener(broker: Broker, process: "subprocess.Popen[bytes]", port: int) -> None:
    import socket

    def listens() -> bool:
        if process.poll() is not None:
            pytest.fail(f"the broker ended with {process.returncode}:\n{broker.said()[-3000:]}")
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return True
        return False

    broker.wait_for("the broker to listen", listens, BROKER_START_TIMEOUT_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the broker we started, and nobody else."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=30)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    import socket

    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@pytest.fixture(scope="session", params=VERSIONS)
def kafka(request: pytest.FixtureRequest) -> KafkaRelease:
    """Each of the Kafka versions that tierctl's files are held against."""
    return fetch_release(request.param)
