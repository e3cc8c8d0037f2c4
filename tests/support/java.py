"""Java programs that tests start, and jars of Maven Central."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

FETCH_TIMEOUT_S = 900
_DEPENDENCY = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tierctl.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for short programs, which end before the second JIT compiler is useful."""

ARCHIVED = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Options for programs with an archive of loaded classes, which the JVM does without if it does not fit."""


def java(classpath: str, *words: str, heap: str = "384m") -> list[str]:
    """Return the command line of a short program: other options, the main class and its arguments."""
    return ["java", *SHORT_LIVED, f"-Xmx{heap}", "-cp", classpath, *words]


def copy_jars(artifacts: Iterable[tuple[str, str, str, str]], folder: Path) -> None:
    """Copy artifacts, each with group, name, version and more elements, and all that they need to `folder`.

    Raise SubprocessError without them.
    """
    with TemporaryDirectory() as project:
        pom = _POM.format("".join(_DEPENDENCY.format(*each) for each in artifacts))
        Path(project, "pom.xml").write_text(pom)
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run(
            command, cwd=project, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=True
        )
