"""Build the jar of the formatter: `make formatter` runs `python -m tierctl.console_consumer.build`.

The build needs JDK 11 or newer, and Maven to download the Kafka library that the sources are compiled
against. The same sources and compiler produce the same bytes.
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

# The oldest Kafka that tests run the formatter with; newer versions have the same interface.
KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.1"
JAVA_RELEASE = 11
_TIMEOUT_S = 600
# The earliest time that a zip file can contain.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MANIFEST = f"""Manifest-Version: 1.0
Implementation-Title: tierctl formatter
Implementation-Version: {__version__}

"""


def build(target: Path, classpath: str) -> None:
    """Compile the sources into the jar `target`.

    Raise NotFoundError if javac is not installed, and UsageError if it fails.
    """
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
    """Write the jar without times, modes of files or compression, so that its bytes are reproducible."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as out:
        for name, content in _entries(classes):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            out.writestr(entry, content)


def _entries(classes: Path) -> Iterator[tuple[str, bytes]]:
    yield "META-INF/MANIFEST.MF", _MANIFEST.replace("\n", "\r\n").encode()
    for path in sorted(classes.rglob("*.class")):
        yield path.relative_to(classes).as_posix(), path.read_bytes()


def fetch(folder: Path) -> Path:
    """Return the Kafka library in `folder`; download it from Maven Central if it is missing."""
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
    """Build the jar inside the package, so that a wheel contains it."""
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
