"""The build of the jar is reproducible and for Java 11, and a wheel contains the jar."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from tierctl.console_consumer import CLASS_NAME, SOURCES
from tierctl.console_consumer.build import build
from tierctl.errors import NotFoundError, UsageError

from tests.cli.shell import tierctl
from tests.support.kafka import OLDEST, fetch_release

JAVA_11 = 55
EARLIEST = (1980, 1, 1, 0, 0, 0)


def classpath() -> str:
    return f"{fetch_release(OLDEST).jars}/*"


@pytest.mark.matrix
@pytest.mark.kafka
def test_the_same_sources_make_the_same_bytes(jar: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere.jar"
    build(again, classpath())
    assert again.read_bytes() == jar.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


@pytest.mark.kafka
def test_it_holds_classes_for_java_11_and_nothing_else(jar: Path) -> None:
    with zipfile.ZipFile(jar) as found:
        manifest, *classes = found.infolist()
        heads = [found.read(entry)[:8] for entry in classes]
    assert manifest.filename == "META-INF/MANIFEST.MF"
    assert all(entry.filename.endswith(".class") for entry in classes)
    assert CLASS_NAME.replace(".", "/") + ".class" in {entry.filename for entry in classes}
    assert {entry.date_time for entry in (manifest, *classes)} == {EARLIEST}
    assert {int.from_bytes(head[6:]) for head in heads} == {JAVA_11}


@pytest.mark.kafka
def test_it_needs_nothing_but_kafka_clients(jar: Path) -> None:
    """The class path of Kafka's tools differs between versions, so the jar may only use kafka-clients."""
    done = subprocess.run(
        ["jdeps", "-verbose:package", "--multi-release", "11", "--ignore-missing-deps", str(jar)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    needed = {line.split("->")[1].split()[0] for line in done.stdout.splitlines() if "->" in line}
    packages = {name for name in needed if not name.startswith(("java.", "tierctl.")) and "/" not in name}
    assert packages - {"java.base", "not"} == {
        "org.apache.kafka.clients.consumer",
        "org.apache.kafka.common",
        "org.apache.kafka.common.config",
    }


@pytest.mark.kafka
def test_what_does_not_compile_is_told_and_leaves_the_old_jar(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, sources = tmp_path / "formatter.jar", tmp_path / "sources"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    (sources / "Text.java").write_text("package tierctl.formatter; class Text { int nothing() { } }")
    target.write_bytes(b"old")
    monkeypatch.setattr("tierctl.console_consumer.build.SOURCES", sources)
    with pytest.raises(UsageError, match=r"Style\.java:\d+: error: cannot find symbol"):
        build(target, classpath())
    assert target.read_bytes() == b"old"


def test_without_a_compiler_it_says_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="javac is not installed") as caught:
        build(tmp_path / "formatter.jar", "")
    assert "JDK" in (caught.value.hint or "")


def test_format_says_where_it_is_and_how_to_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "some.jar"
    monkeypatch.setattr("tierctl.console_consumer.JAR", target)
    ran = tierctl("format", "--formatter-jar")
    assert (ran.code, ran.out, "make formatter" in ran.err) == (10, "", True)
    target.touch()
    ran = tierctl("format", "--formatter-jar")
    assert (ran.code, ran.out) == (0, f"{target}\n")
    assert f"--formatter {CLASS_NAME}" in ran.err
