"""Kafka's own tools from Maven Central, for the tests that need them; brokers are in tests/support/broker.py.

    def test_dump(kafka: KafkaRelease) -> None:
        text = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))

One session tests one version of Kafka, VERSION, which $TEST_KAFKA_VERSION selects; `make matrix` runs
a session for each version of the matrix. Jars are kept in `.cache/kafka/<version>`, or below
$TEST_KAFKA. Without Java (4.4.0: a JDK) or Maven these tests are skipped with a line that says so;
with CI=true that is a failure.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.java import ARCHIVED, FETCH_TIMEOUT_S, copy_jars, java
from tests.support.made_once import make_once
from tests.support.servers import cannot

VERSION = os.environ.get("TEST_KAFKA_VERSION") or "4.4.0"
OLDEST = "3.9.1"
RUN_TIMEOUT_S = 120

_REPOSITORY = Path(__file__).parents[2]
_TEST_JAR = "<classifier>test</classifier>"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
# Maven Central lacks some jars of this release; those of an older release work with it and _SHIMS.
_BORROWED_FROM = {"4.4.0": "4.3.1"}
# Some tools are missing or call removed methods, so those of a complete older release are used instead.
_TOOLS_OF = {"4.4.0": "4.3.0"}
_LOG4J = {"4.3.0": "2.24.3", "4.4.0": "2.25.5"}
_SHIMS = Path(__file__).parent / "shims"
_LOGGING = Path(__file__).parent / "log4j2.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRelease:
    """One version of Kafka, unpacked in `jars`."""

    version: str
    jars: Path

    @property
    def number(self) -> tuple[int, ...]:
        """Return the version as numbers, as in `kafka.number < (4, 0)`."""
        return tuple(map(int, self.version.split(".")))

    def command(
        self,
        main_class: str,
        arguments: Sequence[str],
        *,
        heap: str = "384m",
        jar: Path | None = None,
        more: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line for a main class; `jar` is last on the class path, `more` for the JVM."""
        classpath = f"{self.jars}/*" if jar is None else f"{self.jars}/*:{jar}"
        loading = [f"-XX:SharedArchiveFile={self.class_archive}"] if self.class_archive.exists() else []
        options = [*loading, *ARCHIVED, *more, f"-Dlog4j2.configurationFile={_LOGGING}"]
        return java(classpath, *options, main_class, *arguments, heap=heap)

    @property
    def class_archive(self) -> Path:
        """Return the archive of loaded classes, which a JVM maps instead of reading the jars.

        With it, a broker starts with half the processor time. tests/support/broker.py writes it.
        """
        return self.jars.with_name(f"{self.version}-classes") / "broker.jsa"

    def run(self, main_class: str, *arguments: str, timeout_s: float = RUN_TIMEOUT_S) -> str:
        """Run a tool that must succeed; return its stdout."""
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

    def run_source(self, folder: Path, source: str, *arguments: str) -> str:
        """Run the class of a Java source text, which is written to `folder`; return its stdout."""
        file = folder / "Source.java"
        file.write_text(source)
        return self.run(str(file), *arguments)

    @property
    def with_tools(self) -> "KafkaRelease":
        """Return the release whose tools are complete: this one, or an older one."""
        return fetch_release(_TOOLS_OF.get(self.version, self.version))

    def dump_log(self, segment: Path | str, *options: str) -> str:
        """Return the output of kafka-dump-log for a segment or index, or for several joined by commas."""
        release = self.with_tools
        package = "kafka" if release.number < (4, 0) else "org.apache.kafka"
        return release.run(f"{package}.tools.DumpLogSegments", "--files", str(segment), *options)


def fetch_release(version: str) -> KafkaRelease:
    """Return Kafka of that version, from the cache or Maven Central; skip or fail without it."""
    root = Path(os.environ.get("TEST_KAFKA", _REPOSITORY / ".cache" / "kafka"))
    jars = root / version
    tools = ("java", "mvn", "javac") if version in _BORROWED_FROM else ("java", "mvn")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if "java" in missing or (missing and not jars.is_dir()):
        cannot("KAFKA", f"Kafka {version} needs {' and '.join(missing)}, which are not installed")
    make_once(jars, lambda folder: _fetch(version, folder))
    return KafkaRelease(version=version, jars=jars)


def _fetch(version: str, jars: Path) -> None:
    try:
        copy_jars(_artifacts(version), jars)
        if version in _BORROWED_FROM:
            _build_shims(jars)
    except subprocess.CalledProcessError as e:
        cannot("KAFKA", f"Kafka {version} could not be fetched or built: {(e.stdout + e.stderr)[-1500:]}")


def _build_shims(jars: Path) -> None:
    """Compile the classes of `_SHIMS` against `jars`, and put their jar there."""
    with TemporaryDirectory() as folder:
        options = ["-nowarn", "-proc:none", "-classpath", f"{jars}/*", "-d", f"{folder}/classes"]
        command = ["javac", *options, *map(str, _SHIMS.glob("*.java"))]
        subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=True)
        archive = shutil.make_archive(f"{folder}/shims", "zip", f"{folder}/classes")
        shutil.move(archive, jars / "shims.jar")


def _artifacts(version: str) -> Iterator[tuple[str, str, str, str]]:
    kafka, log4j = "org.apache.kafka", "org.apache.logging.log4j"
    for artifact in ("kafka_2.13", "kafka-clients", "kafka-storage", "kafka-server"):
        yield kafka, artifact, version, ""
    if version in _LOG4J:
        yield log4j, "log4j-slf4j-impl", _LOG4J[version], ""
        yield log4j, "log4j-core", _LOG4J[version], ""
    # LocalTieredStorage is in the test jar of kafka-storage, which needs that of kafka-clients.
    tests = ("kafka-storage", "kafka-clients")
    borrowed = _BORROWED_FROM.get(version)
    if borrowed is None:
        yield kafka, "kafka-tools", version, ""
        yield from ((kafka, artifact, version, _TEST_JAR) for artifact in tests)
    else:
        yield from ((kafka, artifact, borrowed, _ALONE) for artifact in ("kafka-tools", "kafka-tools-api"))
        yield from ((kafka, artifact, borrowed, _TEST_JAR + _ALONE) for artifact in tests)


@pytest.fixture(scope="session")
def kafka() -> KafkaRelease:
    """Return the version of Kafka with which this session compares tierctl."""
    return fetch_release(VERSION)
