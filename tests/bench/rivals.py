"""Install what tierctl is compared with; each function returns the words that begin a command line."""

import subprocess
import sys
from pathlib import Path

from tests.bench import cache
from tests.support.kafka import fetch_release

KAFKA_VERSION = "4.3.0"
"""The latest release that Maven Central has whole."""
PROGRAMS = Path(__file__).with_name("programs")

_LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).parents[1] / 'support' / 'log4j2.properties'}"


def kafka_tool(main_class: str, *options: str, classes: Path = PROGRAMS) -> list[str]:
    """Return the command line of a main class beside Kafka's own; `options` are the JVM's."""
    path = f"{classes}:{fetch_release(KAFKA_VERSION).jars}/*"
    return ["java", *options, "-cp", path, _LOGGING, main_class]


def segment_sizes() -> list[str]:
    """Return the command line of `java/SegmentSizes.java`, which follows a metadata topic as brokers do."""
    source, jars = Path(__file__).with_name("java") / "SegmentSizes.java", fetch_release(KAFKA_VERSION).jars

    def build(folder: Path) -> None:
        _run("javac", "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", folder, source)

    main_class = "org.apache.kafka.server.log.remote.metadata.storage.SegmentSizes"
    return kafka_tool(main_class, classes=cache.make_once("java", build, source))


def python_with(*requirements: str) -> list[str]:
    """Return the command line of a Python with packages, as in python_with("obstore==0.12.1")."""

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", folder)
        _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements)

    return [str(cache.make_once("python", install, requirements) / "bin" / "python")]


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=900)
