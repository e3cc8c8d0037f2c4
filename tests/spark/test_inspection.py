"""`doctor` with Spark: faults of the session and of executors become results."""

import shutil
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tierctl.checks.environment import Versions
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.errors import EngineError, ExitCode
from tierctl.model.choices import EngineName, Severity
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.transport import Executors

from tests.cli.shell import environment, tierctl, tierctl_process
from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, worst
from tests.spark.worlds import Capture
from tests.support.servers import free_port

checks = import_module("tierctl.commands.doctor")

ALL = [check for check in DoctorCheck if check.startswith("spark_")]
MASTER = "local[2]"


def examined(capture: Capture, **more: Any) -> dict[DoctorCheck, Severity]:
    """Return the worst severity of each check about Spark, and of `event_clock`, for a captured tier."""
    root = capture("tiered-cluster")
    request = DoctorRequest(
        metadata=str(root / "before"),
        remote=str(root / "before-remote"),
        engine=EngineName.SPARK,
        master=MASTER,
        **more,
    )
    found = doctor(request).results
    for each in found:
        if each.severity in {PROBLEM, WARNING}:
            assert each.found, each.check
            assert each.why, each.check
            assert each.fix, each.check
    return {check: worst(found, check).severity for check in [*ALL, DoctorCheck.EVENT_CLOCK]}


def expected(severity: Severity = OK, checks: Iterable[DoctorCheck] = ()) -> dict[DoctorCheck, Severity]:
    """Return the outcomes beside a tier in folders, of which those of `checks` differ."""
    return {
        **dict.fromkeys([*ALL, DoctorCheck.EVENT_CLOCK], OK),
        DoctorCheck.SPARK_CLUSTER: NOT_CHECKED,
    } | dict.fromkeys(checks, severity)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [("python", None, OK), ("pyarrow", "1.0", WARNING)],
)
def test_versions_are_compared_with_the_driver(
    name: str, value: str | None, severity: Severity, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Versions.here()
    facts = {each: getattr(own, each) for each in ("python", "tierctl", "pyarrow", "numba")}
    # The executors are other processes, in which this has no effect.
    other = Versions(**(facts if value is None else facts | {name: value}))
    monkeypatch.setattr(Versions, "here", lambda: other)
    assert examined(capture) == expected(severity, [DoctorCheck.SPARK_PYTHON])


@pytest.mark.usefixtures("spark")
def test_executors_that_see_other_files(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(capture("tiered-cluster") / "before", tmp_path / "other")
    for log in (tmp_path / "other").rglob("*.log"):
        log.write_bytes(b"")
    of_driver = checks._driver_metadata
    other = {"metadata": TopicLocation(uri=(tmp_path / "other").as_uri())}
    monkeypatch.setattr(checks, "_driver_metadata", lambda resources: of_driver(resources) | other)
    assert examined(capture) == expected(PROBLEM, [DoctorCheck.SPARK_METADATA])


@pytest.mark.usefixtures("spark")
def test_no_executor_runs_a_task_in_time(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WAIT_S", 0.0)
    found = examined(capture)
    unmade = expected(
        NOT_CHECKED, [DoctorCheck.SPARK_SCRATCH, DoctorCheck.SPARK_METADATA, DoctorCheck.SPARK_STORE]
    )
    # This process makes the other checks.
    assert found == unmade | {DoctorCheck.SPARK_PYTHON: PROBLEM}


@pytest.mark.usefixtures("spark")
def test_a_job_that_fails(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_args: Any, **_more: Any) -> None:
        raise EngineError(
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version", hint="same Python"
        )

    monkeypatch.setattr(Executors, "probe_each", failed)
    assert examined(capture)[DoctorCheck.SPARK_PYTHON] is PROBLEM


def test_nobody_at_the_master_and_no_java(capture: Capture, tmp_path: Path) -> None:
    metadata = ("--metadata", capture("tiered-cluster") / "before")
    master = f"spark://127.0.0.1:{free_port()}"
    for where, env, found in (
        (master, environment(), "no Spark master answers"),
        ("local[1]", environment(JAVA_HOME=str(tmp_path)), "Spark needs Java"),
    ):
        ran = tierctl_process(
            "doctor", *metadata, "--engine", "spark", "--master", where, "-o", "json", env=env
        )
        assert ran.code == ExitCode.PARTIAL, ran.err
        outcomes = {row["check"]: (row["severity"], row["found"], row["fix"]) for row in ran.json}
        assert outcomes["spark_session"][0] == "error"
        assert found in outcomes["spark_session"][1]
        assert outcomes["spark_session"][2]
        assert outcomes["event_clock"][0] == "ok"
        assert outcomes["spark_metadata"][:2] == ("not_checked", "no executor works")


def test_doctor_without_spark(tmp_path: Path) -> None:
    rows = tierctl("doctor", "--state-dir", tmp_path, "-o", "json").json
    found = {row["check"]: row["found"] for row in rows}
    assert all(found[check].startswith("needs --engine spark") for check in ALL)
    wrong = tierctl("doctor", "--state-dir", tmp_path, "--engine", "spark", "--master", "nowhere")
    assert (wrong.code, "no master of Spark" in wrong.err) == (2, True)
