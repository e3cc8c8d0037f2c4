"""What executors report, without Spark: versions, space, and the sources that they reach."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.checks.environment import (
    SEGMENT_BYTES,
    ExecutorFacts,
    Versions,
    check_reached,
    check_scratch,
    check_versions,
)
from tierctl.checks.registry import DoctorCheck
from tierctl.errors import EngineError, TierctlError
from tierctl.metadata.topic import open_topic
from tierctl.model.choices import Severity
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.examined import Sources, executor_facts, reach_sources
from tierctl.spark.executors.task import decoded, dumps
from tierctl.storage.open_tier import TierSpec

from tests.doctor.cases import OK, PROBLEM, WARNING

OWN = Versions(python="3.11", tierctl="1.0", pyarrow="26.0", numba="0.62")
GOOD = ExecutorFacts(versions=OWN, scratch="/tmp", free_bytes=SEGMENT_BYTES * 8)


@pytest.mark.parametrize(
    ("versions", "severity"),
    [
        (OWN, OK),
        (replace(OWN, python="3.12"), PROBLEM),
        (replace(OWN, tierctl="0.9"), PROBLEM),
        (replace(OWN, pyarrow="25.0"), WARNING),
        (replace(OWN, numba="0.61"), WARNING),
        (replace(OWN, numba=None), WARNING),
    ],
)
def test_versions_of_executors(versions: Versions, severity: Severity) -> None:
    found = list(check_versions({"a": [GOOD], "b": [replace(GOOD, versions=versions)]}, OWN))
    assert {each.severity for each in found} == {OK, severity}
    worst = found[-1]
    if severity is OK:
        assert worst.subject == "executors on 2 hosts: a, b"
        return
    assert worst.subject == "executor b"
    assert str(versions) in worst.found
    assert worst.why
    assert worst.fix


@pytest.mark.parametrize("numba", ["0.62", None])
def test_executors_need_no_numba_where_the_driver_has_none(numba: str | None) -> None:
    """There is no wheel for every Python."""
    executors = {"a": [replace(GOOD, versions=replace(OWN, numba=numba))]}
    (found,) = check_versions(executors, replace(OWN, numba=None))
    assert found.severity is OK


@pytest.mark.parametrize(
    ("tasks", "severity", "found"),
    [
        ([GOOD] * 8, OK, "room for segments of 8 tasks"),
        ([GOOD] * 9, WARNING, "8.0 GiB free for segments of 9 tasks"),
        ([GOOD, replace(GOOD, free_bytes=5)], WARNING, "5 B free for segments of 2 tasks"),
        (
            [GOOD, replace(GOOD, scratch_error="Read-only file system")],
            PROBLEM,
            "can't be written: Read-only",
        ),
        # Folders of their own, as in containers with the same host name.
        ([GOOD] * 8 + [replace(GOOD, scratch="/mnt")] * 8, OK, "/mnt has room for segments of 8 tasks"),
    ],
)
def test_space_of_executors(tasks: list[ExecutorFacts], severity: Severity, found: str) -> None:
    results = list(check_scratch({"a": tasks}))
    assert {each.severity for each in results} == {severity}
    assert any(found in each.found for each in results)


def test_this_process_as_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = executor_facts()
    assert decoded(dumps(facts), object) == facts
    assert (facts.versions, facts.scratch_error) == (Versions.here(), None)
    assert facts.free_bytes > 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert executor_facts().scratch_error == "No such file or directory"


def test_findings_of_hosts_are_joined() -> None:
    failed = EngineError("refused", hint="grant it")
    found = [("a", "read it"), ("b", failed), ("c", "read it"), ("a", "read it")]
    good, bad = check_reached(DoctorCheck.SPARK_STORE, found)
    assert (good.severity, good.subject) == (OK, "executors on 2 hosts: a, c")
    assert (bad.severity, bad.subject, bad.found, bad.fix) == (PROBLEM, "executor b", "refused", "grant it")


def cut_short(folder: Path) -> Path:
    """Remove the records of a metadata partition, as on a machine with an older copy of the folder."""
    partition = next(each for each in sorted(folder.glob("__remote_log_metadata-*")) if any(each.iterdir()))
    for file in partition.glob("*.log"):
        file.write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: folder, None),
        (lambda folder: folder / "nowhere", "nowhere"),
        (cut_short, "ends at offset 0, but at"),
    ],
)
def test_metadata_that_an_executor_sees(
    change: Callable[[Path], Path], message: str | None, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    own, other = capture("tiered-cluster") / "before", tmp_path / "other"
    shutil.copytree(own, other)
    ends = open_topic(TopicLocation(uri=own.as_uri())).end_offsets()
    there = TopicLocation(uri=change(other).as_uri())
    found = reach_sources(Sources(metadata=there, end_offsets=ends), str(tmp_path))[
        DoctorCheck.SPARK_METADATA
    ]
    require(found, message, "read the last record")


@pytest.mark.parametrize(
    ("part", "suffix", "message"),
    [
        ("before-remote", "", None),
        ("before-remote", ".gone", "log.gone"),
        ("nowhere", "", "there is no tier at"),
        ("before", "", "there is no tier at"),
    ],
)
def test_a_store_that_an_executor_sees(
    part: str, suffix: str, message: str | None, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    root = capture("tiered-cluster")
    key = next(each for each in sorted((root / "before-remote").rglob("*.log")))
    spec = TierSpec.from_settings((root / part).as_uri(), {}, layout="kafka")
    sources = Sources(tier=spec, key=key.relative_to(root / "before-remote").as_posix() + suffix)
    found = reach_sources(sources, str(tmp_path))[DoctorCheck.SPARK_STORE]
    require(found, message, "read the first byte")


def require(found: str | TierctlError, message: str | None, text: str) -> None:
    """Require `text`, or an error with `message` that advises a shared file system."""
    if message is None:
        assert isinstance(found, str)
        assert text in found
        return
    assert isinstance(found, TierctlError)
    assert message in found.message
    assert "shared file system" in (found.hint or "")
    assert decoded(dumps(found), TierctlError).message == found.message
