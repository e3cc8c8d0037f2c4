"""`doctor` and `config` with Spark: faults of the session and of executors become results."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.commands import DoctorRequest, doctor
from tierctl.commands.insight import executors as checks
from tierctl.doctor.checks import Check
from tierctl.doctor.executors import Versions
from tierctl.doctor.result import Outcome
from tierctl.errors import EngineError, ExitCode
from tierctl.model.engine import EngineName
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.transport import Executors
from tierctl.spark.inspection import mistyped_names, session_settings
from tierctl.spark.session import SparkSettings

from tests.cli.shell import environment, tierctl, tierctl_process
from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, worst
from tests.support.servers import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = Callable[[str], Path]
ALL = [check for check in Check if check.startswith("spark_")]
MASTER = "local[2]"


def examined(capture: Capture, **more: Any) -> dict[Check, Outcome]:
    """Return the worst outcome of each check about Spark, and of `event_clock`, for a captured tier."""
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
        if each.outcome in {PROBLEM, WARNING}:
            assert each.found, each.check
            assert each.why, each.check
            assert each.fix, each.check
    return {check: worst(found, check).outcome for check in [*ALL, Check.EVENT_CLOCK]}


def expected(outcome: Outcome = OK, checks: Iterable[Check] = ()) -> dict[Check, Outcome]:
    """Return the outcomes beside a tier in folders, of which those of `checks` differ."""
    return {**dict.fromkeys([*ALL, Check.EVENT_CLOCK], OK), Check.SPARK_CLUSTER: NOT_CHECKED} | dict.fromkeys(
        checks, outcome
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "value", "outcome"),
    [
        ("python", None, OK),
        ("python", "3.1", PROBLEM),
        ("tierctl", "0.0.1", PROBLEM),
        ("pyarrow", "1.0", WARNING),
    ],
)
def test_versions_are_compared_with_the_driver(
    name: str, value: str | None, outcome: Outcome, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Versions.here()
    facts = {each: getattr(own, each) for each in ("python", "tierctl", "pyarrow")}
    # The executors are other processes, in which this has no effect.
    other = Versions(**(facts if value is None else facts | {name: value}))
    monkeypatch.setattr(Versions, "here", lambda: other)
    assert examined(capture) == expected(outcome, [Check.SPARK_PYTHON])


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
    assert examined(capture) == expected(PROBLEM, [Check.SPARK_METADATA])


@pytest.mark.usefixtures("spark")
def test_no_executor_runs_a_task_in_time(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WAIT_S", 0.0)
    found = examined(capture)
    unmade = expected(NOT_CHECKED, [Check.SPARK_SCRATCH, Check.SPARK_METADATA, Check.SPARK_STORE])
    # This process makes the other checks.
    assert found == unmade | {Check.SPARK_PYTHON: PROBLEM}


@pytest.mark.usefixtures("spark")
def test_a_job_that_fails(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_args: Any, **_more: Any) -> None:
        raise EngineError(
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version", hint="same Python"
        )

    monkeypatch.setattr(Executors, "probe_each", failed)
    assert examined(capture)[Check.SPARK_PYTHON] is PROBLEM


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
        outcomes = {row["check"]: (row["outcome"], row["found"], row["fix"]) for row in ran.json}
        assert outcomes["spark_session"][0] == "problem"
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


def test_names_that_spark_does_not_have(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    of_sql = ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions")
    names = ["spark.executor.memry", of_sql[0], "spark.executor.memory", "spark.kubernetes.namespace"]
    of_core = ("spark.executor.memry", "spark.executor.memory")
    assert list(mistyped_names(spark, names)) == [of_core, of_sql]
    # Over Spark Connect, and with another version of Spark, only the settings of Spark SQL are known.
    monkeypatch.setattr("tierctl.spark.inspection.session._registry", lambda: None)
    assert list(mistyped_names(spark, names)) == [of_sql]


def test_settings_of_a_session_with_their_origins(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with the session of these tests, which has 1 core per executor, and 2 in total."""
    secret = "spark.sql.my.secret.key"
    lines = ["spark.cores.max 2", "spark.executor.cores = 7", f"{secret}=hunter2", "spark.unused 1"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    spark.conf.set(secret, "hunter2")
    try:
        settings = SparkSettings(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
        found = session_settings(spark, settings, {})
    finally:
        spark.conf.unset(secret)
    places = {name: (value, origin_text(found.origin(name))) for name, value in found.items()}
    defaults = tmp_path / "spark-defaults.conf"
    assert places["spark.cores.max"] == ("2", f"Spark defaults file {defaults}, line 1")
    assert places["spark.executor.cores"] == ("1", "Spark None")
    assert places[secret] == ("[hidden]", f"Spark defaults file {defaults}, line 3")
    assert "spark.unused" not in places
    assert places["spark.sql.shuffle.partitions"] == ("2", "option None")
    assert places["spark.master"] == ("local[2]", "option None")
    assert places["spark.sql.session.timeZone"] == ("UTC", "tierctl None")


def origin_text(origin: Any) -> str:
    return f"{origin.source} {origin.place}"


@pytest.mark.usefixtures("spark")
def test_a_profile_states_the_spark_settings(tmp_path: Path) -> None:
    (tmp_path / "tierctl.toml").write_text(
        '[profiles.default]\nengine = "spark"\nmaster = "local[2]"\n'
        'spark-conf = ["spark.executor.memry=1g"]\n'
    )
    # A profile alone does not start Spark.
    assert not [row for row in tierctl("config", "show", "-o", "json", cwd=tmp_path).json if is_spark(row)]
    assert tierctl("config", "check", cwd=tmp_path).code == 0
    shown = tierctl("config", "show", "--engine", "spark", "-o", "json", cwd=tmp_path)
    rows = {row["setting"]: row for row in shown.json if is_spark(row)}
    assert (rows["spark.master"]["source"], rows["spark.master"]["line"]) == ("profile", 3)
    assert rows["executor.python"]["value"] == Versions.here().python
    assert rows["executor.python"]["place"].startswith("executor ")
    checked = tierctl("config", "check", "--engine", "spark", "-o", "json", cwd=tmp_path)
    assert checked.code == ExitCode.PARTIAL
    (problem,) = checked.json
    assert (problem["kind"], problem["severity"], problem["line"]) == ("unknown_setting", "warning", 4)
    assert "spark.executor.memory" in problem["hint"]
    # The engine of a COMMAND is a setting to show, and starts nothing.
    of_command = ("sweep", "--engine", "local")
    assert not [
        r for r in tierctl("config", "show", "-o", "json", *of_command, cwd=tmp_path).json if is_spark(r)
    ]


def is_spark(row: dict[str, Any]) -> bool:
    return bool(row["scope"] == "spark")


@pytest.mark.usefixtures("spark")
def test_faults_of_executors_are_problems_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "WAIT_S", 0.0)
    ran = tierctl("config", "check", "--engine", "spark", "--master", MASTER, "-o", "json", cwd=tmp_path)
    assert ran.code == ExitCode.USAGE
    (problem,) = ran.json
    assert (problem["kind"], problem["setting"]) == ("unusable", "master")
    assert "no executor has finished a task" in problem["found"]
