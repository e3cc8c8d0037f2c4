"""Kafka's own tools from Maven Central, for the tests that need them; brokers are in tests/broker.py.

    def test_dump(kafka: KafkaRelease) -> None:
        text = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))

Jars are kept in `.cache/kafka/<version>`, or below $TIERCTL_TEST_KAFKA. Without Java or Maven these tests are
skipped with a line that says so; with CI=true that is a failure.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.java import java

VERSIONS = ("4.3.0", "3.9.1")
RUN_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 900

_REPOSITORY = Path(__file__).parents[2]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRelease:
    """One version of Kafka, unpacked in `jars`."""

    version: str
    jars: Path

    def command(self, main_class: str, arguments: Sequence[str], *, heap: str = "384m") -> list[str]:
        """The command line that runs a main class."""
        return java(f"{self.jars}/*", main_class, *arguments, heap=heap)

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

    def dump_log(self, segment: Path | str, *options: str) -> str:
        """What kafka-dump-log prints of a segment or index, or of several joined by commas."""
        package = "kafka" if self.version.startswith("3.") else "org.apache.kafka"
        return self.run(f"{package}.tools.DumpLogSegments", "--files", str(segment), *options)


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


@pytest.fixture(scope="session", params=VERSIONS)
def kafka(request: pytest.FixtureRequest) -> KafkaRelease:
    """Each of the Kafka versions that tierctl's files are held against."""
    return fetch_release(request.param)
