"""Makes the jar: `make formatter`, which is `python -m tierctl.console_consumer.build`.

Needs a JDK of 11 or newer, and Maven for the one library it is compiled against. The same sources and
compiler make the same bytes.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tierctl import __version__
from tierctl.console_consumer import JAR, SOURCES
from tierctl.console_consumer.descriptions import descriptions
from tierctl.errors import NotFoundError, TierctlError, UsageError

# The oldest Kafka it is held against: what this library has, newer ones have.
KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.1"
JAVA_RELEASE = 11
_TIMEOUT_S = 600
# The earliest time a zip file can say.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MANIFEST = f"""Manifest-Version: 1.0
Implementation-Title: tierctl formatter
Implementation-Version: {__version__}

"""


def build(target: Path, classpath: str) -> None:
    """Compiles the sources into the jar `target`; NotFoundError without javac, UsageError for its errors."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        classes, generated = folder / "classes", folder / "Descriptions.java"
        generated.write_text(descriptions())
        sources = [str(path) for path in (*sorted(SOURCES.glob("*.java")), generated)]
        options = ["--release", str(JAVA_RELEASE), "-encoding", "UTF-8", "-g:source,lines", "-proc:none"]
        warnings = ["-Xlint:all,-classfile", "-Werror"]
        _run(["javac", *options, *warnings, "-classpath", classpath, "-d", str(classes), *sources])
        jar = folder / "formatter.jar"
        _pack(classes, jar)
        jar.replace(target)


def _pack(classes: Path, jar: Path) -> None:
    """Nothing in the jar depends on when, where or by which zlib it was made."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as out:
        for name, content in _entries(classes):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o644 << 16
            out.writestr(entry, content)


def _entries(classes: Path) -> Iterator[tuple[str, bytes]]:
    yield "META-INF/MANIFEST.MF", _MANIFEST.replace("\n", "\r\n").encode()
    for path in sorted(classes.rglob("*.class")):
        yield path.relative_to(classes).as_posix(), path.read_bytes()


def fetch(folder: Path) -> Path:
    """The library from Maven Central, kept in `folder`."""
    _, artifact, version = KAFKA_CLIENTS.split(":")
    jar = folder / f"{artifact}-{version}.jar"
    if not jar.exists():
        wanted = [f"-Dartifact={KAFKA_CLIENTS}", f"-DoutputDirectory={folder}"]
        _run(["mvn", "-q", "-B", "dependency:copy", *wanted])
    return jar


def _run(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        raise NotFoundError(f"{command[0]} is not installed", hint="make formatter needs a JDK and Maven")
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise UsageError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main() -> int:
    """Builds the jar where the package, and so a wheel, has it."""
    try:
        build(JAR, str(fetch(SOURCES.parents[1] / ".cache" / "formatter")))
    except TierctlError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return error.exit_code
    sys.stdout.write(f"{JAR}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
