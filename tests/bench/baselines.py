"""Installs what tierctl is compared with, from package registries, into the cache of benches.

Each function returns the words that begin a command line, or raises MissingBaselineError.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import cache
from tests.bench.harness import MissingBaselineError
from tests.support.kafka import fetch_release
from tests.support.servers import go_tool

KAFKA_VERSION = "4.3.0"
"""The latest release that Maven Central has whole."""
INSTALL_TIMEOUT_S = 900

_JAVA = Path(__file__).parent / "java"


def kafka_tool(main_class: str, *options: str) -> list[str]:
    """Return the command line of one of Kafka's own tools, without arguments; `options` are the JVM's."""
    return ["java", *options, "-cp", f"{_kafka_jars()}/*", _logging(), main_class]


def kafka_program(name: str, *options: str) -> list[str]:
    """Return the command line of `java/<name>.java`, which uses Kafka's classes, without arguments."""
    jars, source = _kafka_jars(), _JAVA / f"{name}.java"

    def build(folder: Path) -> None:
        _run(["javac", "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(folder), str(source)])

    classes = cache.make_once(f"java/{name}", build, source=[source])
    package = re.match(r"package (.+);", source.read_text())
    main_class = f"{package[1]}.{name}" if package else name
    return ["java", *options, "-cp", f"{classes}:{jars}/*", _logging(), main_class]


def python_with(*requirements: str) -> list[str]:
    """Return the command line of a Python with packages, as in python_with("obstore==0.8.2")."""

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])

    name = "+".join(each.replace("/", "_") for each in sorted(requirements))
    made = cache.make_once(f"python/{name}", install)
    return [str(made / "bin" / "python")]


def go_program(name: str, module: str) -> list[str]:
    """Return the command line of a program built from a Go module with its version, as `path@v1.2.3`."""
    found = go_tool(name, module)
    if found is None:
        raise MissingBaselineError(f"{name} needs Go and its module proxy")
    return [str(found)]


def _kafka_jars() -> Path:
    try:
        return fetch_release(KAFKA_VERSION).jars
    except (pytest.skip.Exception, pytest.fail.Exception) as e:
        raise MissingBaselineError(str(e)) from e


def _logging() -> str:
    return f"-Dlog4j2.configurationFile={Path(__file__).parents[1] / 'support' / 'log4j2.properties'}"


def _run(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        raise MissingBaselineError(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode:
        raise MissingBaselineError(f"{' '.join(command[:4])}: {(done.stdout + done.stderr)[-500:].strip()}")
