"""A session starts without output, reports why it can't start, and leaves no process behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.errors import EngineError, TierctlError, UsageError
from tierctl.spark.executors.transport import collect, watched
from tierctl.spark.session.jvm import SparkSettings, cause, engine_error
from tierctl.spark.session.open import choose_python, opened_session, require_reachable

from tests.cli.shell import environment, tierctl
from tests.spark.clusters import ROOT, SMALL, Driver, java_environment, ran_python, spark_home
from tests.support.servers import free_port

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RUN = """
import signal, sys
from tests.spark.clusters import SMALL
from tierctl.spark.session import jvm
from tierctl.spark.session.open import opened_session
from tierctl.spark.session.open import SparkSettings
from tests.spark.session.test_session import python_of
settings = SparkSettings(master="local[1]", conf=SMALL, verbose=sys.argv[1] == "loud")
with opened_session(settings) as session:
    print(jvm._started[0]._process.pid, python_of(session), signal.getsignal(signal.SIGINT).__name__)
    if sys.argv[1] == "loud":
        print("begins", flush=True)
        python_of(session, 600)
"""
CONNECT = pytest.param("connect_driver", marks=pytest.mark.matrix)


def python_of(session: "SparkSession", seconds: float = 0) -> str:
    """Return the interpreter of a Python worker, after some time."""

    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        time.sleep(seconds)
        for _ in batches:
            print("said by a worker")
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    frame = session.range(1).mapInArrow(look, "python string")
    return str(collect(frame, stopped=lambda: False)["python"][0])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("copy", "--log-dir", "local"), "no source of topic settings is named"),
        (("copy",), "--log-dir is missing"),
        (("sweep", "--log-start-offset", "bills-0=x"), "--log-start-offset bills-0=x: expected"),
        (("sweep", "--assume", "bills.retention.ms=1h", "--apply"), "--assume only shows a plan"),
        (("delete", "--find", "--apply"), "--find without --mark"),
        (("report", "--html", "missing/report.html"), "missing does not exist"),
    ],
)
def test_what_needs_no_reading_is_refused_before_a_session_starts(
    words: tuple[str, ...], expected: str, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(capture("untiered-broker"))
    where = ("--metadata", "tiered-metadata", "--remote", "tiered-remote")
    ran = tierctl(*words, *where, "--engine", "spark", "--master", f"spark://127.0.0.1:{free_port()}")
    assert (ran.code, expected in ran.err) == (2, True), ran.err


@contextmanager
def started(how: str, folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """Start RUN in a folder from which it takes no modules.

    RUN names its master: the variables for Spark Connect, which nobody serves, do not count.
    """
    spark_home()
    env = java_environment(PYTHONPATH=str(ROOT), SPARK_REMOTE="sc://127.0.0.1:1", SPARK_API_MODE="connect")
    run = subprocess.Popen(
        [sys.executable, "-P", "-W", "error", "-c", RUN, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=env,
        text=True,
    )
    try:
        yield run
    finally:
        run.kill()
        run.communicate()


@pytest.mark.matrix
def test_nothing_is_shown_and_nothing_is_left(tmp_path: Path) -> None:
    with started("quiet", tmp_path) as run:
        out, err = run.communicate(timeout=120)
    assert (run.returncode, err) == (0, "")
    jvm, python, handler = out.split()
    assert (python, handler) == (sys.executable, "default_int_handler")
    assert not Path("/proc", jvm).exists()


def test_what_spark_says_goes_to_stderr_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    """No module of the current folder runs, into which another user may have put some."""
    mark = tmp_path / "ran"
    for name in ("pandas", "pyarrow", "tierctl", "json", "secrets", "queue"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write('{name} ')\n")
    with started("loud", tmp_path) as run:
        assert run.stdout is not None
        jvm = run.stdout.readline().split()[0]
        assert run.stdout.readline() == "begins\n"
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == -signal.SIGINT
    assert out == ""
    assert "log4j" in err
    assert "KeyboardInterrupt" in err
    assert not Path("/proc", jvm).exists()
    assert not mark.exists()


OPEN = """
import os, sys
from tierctl.errors import TierctlError
from tierctl.spark.session.open import open_session
from tierctl.spark.session.open import SparkSettings
for home in sys.argv[1:]:
    os.environ |= {"JAVA_HOME": home} if home else {}
    try:
        open_session(SparkSettings(master="local[1]"))
    except TierctlError as e:
        print(type(e).__name__, e.message, "|", e.hint)
"""
OF_JAVA = {
    None: "UsageError Spark needs Java: there is no java on PATH, and no JAVA_HOME | install Java 17",
    "": "UsageError Spark needs Java: JAVA_HOME={home} has no bin/java | install Java 17",
    "Exception java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main": (
        "UsageError Spark needs a newer Java than the one found | install Java 17"
    ),
    "Not enough memory": "EngineError Spark's JVM did not start: Not enough memory | ",
}
"""The errors without JAVA_HOME, with a folder that has no java, and with one whose java says this."""


def test_a_java_that_can_not_run_spark(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "env", "head", "ps"):
        (tools / name).symlink_to(Path("/bin", name))
    homes = [None if said is None else tmp_path / str(number) for number, said in enumerate(OF_JAVA)]
    for home, said in zip(homes, OF_JAVA, strict=True):
        if home is not None and said:
            java = home / "bin" / "java"
            java.parent.mkdir(parents=True)
            java.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
            java.chmod(0o755)
    done = ran_python(OPEN, *(home or "" for home in homes), env={"PATH": str(tools)})
    for line, home, expected in zip(done.stdout.splitlines(), homes, OF_JAVA.values(), strict=True):
        assert line.startswith(expected.format(home=home))
    assert done.stderr == ""


DEFAULTS = """
import os
from tierctl.spark.session.open import SparkSettings, open_session
print(open_session(SparkSettings()).sparkContext.master, os.environ["PYSPARK_PYTHON"])
"""


def test_sparks_own_settings_name_master_interpreter_and_java(tmp_path: Path) -> None:
    spark_home()
    java = Path(shutil.which("java") or "java").resolve()
    (tmp_path / "spark-env.sh").write_text(f"JAVA_HOME='{java.parents[1]}'\n")
    own = {"spark.master": "local[1]", "spark.pyspark.python": "/opt/python"}
    lines = [f"{name} {value}\n" for name, value in (SMALL | own).items()]
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    done = ran_python(DEFAULTS, env=java_environment(SPARK_CONF_DIR=str(tmp_path)) | {"JAVA_HOME": "/no"})
    assert done.stdout == "local[1] /opt/python\n"


@pytest.mark.parametrize(
    ("master", "chosen", "variable", "expected"),
    [
        ("local[2]", "", None, sys.executable),
        ("spark://h:7077", "", "/variable/python", "/variable/python"),
        ("yarn", "", None, None),
        ("k8s://https://h", "/setting/python", "/variable/python", "/setting/python"),
    ],
)
def test_the_interpreter_of_workers(
    master: str, chosen: str, variable: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {} if variable is None else {"PYSPARK_PYTHON": variable})
    choose_python(master, chosen)
    assert os.environ.get("PYSPARK_PYTHON") == expected


AGAIN = """
from tests.spark.clusters import SMALL
from tierctl.spark.session import jvm
from tierctl.spark.session.open import SparkSettings, opened_session
for number in range(2):
    with opened_session(SparkSettings(master="local[1]", conf=SMALL)) as session:
        print(session.range(3).count(), flush=True)
        jvm._started[0].kill()
        jvm._started[0]._process.wait()
"""


def test_a_session_whose_jvm_ended_is_followed_by_another() -> None:
    """Otherwise a program that calls the Python API had to end, after a driver without memory."""
    spark_home()
    done = ran_python(AGAIN, env=java_environment(PYTHONWARNINGS="ignore"))
    assert done.stdout == "3\n3\n"


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, "tierctl.spark.session.open")
    with pytest.raises(UsageError, match="PySpark is not installed") as caught:
        import_module("tierctl.spark.session.open").open_session(SparkSettings(master="local[2]"))
    assert caught.value.hint == "pip install 'tierctl[spark]'"


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_nobody_at_the_master(scheme: str, tmp_path: Path) -> None:
    port = free_port()
    begun = time.monotonic()
    with pytest.raises(EngineError, match=f"answers at 127.0.0.1:{port}: Connection refused"):
        require_reachable(f"{scheme}://127.0.0.1:{port}")
    with pytest.raises(UsageError, match="has no host"):
        require_reachable(f"{scheme}://")
    assert time.monotonic() - begun < 5
    for master in ("local[2]", "yarn", "k8s://https://h", None):
        require_reachable(master)


SILENT = """
import sys
from tierctl.errors import TierctlError
from tierctl.spark.session import open as session
session.CONNECT_TIMEOUT_S = 1
try:
    session.open_session(session.SparkSettings(master=sys.argv[1]))
except TierctlError as e:
    print(type(e).__name__, e.message)
"""


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"sc://127.0.0.1:{server.getsockname()[1]}"
        done = ran_python(SILENT, address, env=environment())
    assert done.stdout == f"EngineError Spark Connect at {address} has not answered for 1 s\n"


@pytest.mark.parametrize("kind", ["spark", CONNECT])
def test_a_failed_job_is_said_in_its_own_words(kind: str, request: pytest.FixtureRequest) -> None:
    session = request.getfixturevalue(kind)
    with pytest.raises(TierctlError) as caught:
        session.call(failed_job) if isinstance(session, Driver) else failed_job(session)
    assert isinstance(caught.value, EngineError)
    assert "failed: ValueError: the task's own words" in str(caught.value)


def failed_job(session: "SparkSession") -> None:
    """Run a job whose only task fails, in a session that tierctl opened."""
    from tierctl.spark.session.jvm import failures

    def fail(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        raise ValueError("the task's own words")

    with failures(None):
        session.range(1).mapInArrow(fail, "id long").toArrow()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no reason given"),
        (
            "\n[X] first\n\tat a.b.C\nCaused by: java.io.IOException: disk\n\tat d",
            "java.io.IOException: disk",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.Error: stopped\n\tat a",
            "java.lang.Error: stopped",
        ),
        (
            "[Y] job\nTraceback (most recent call last):\n  File x\nKeyError: 1\n\n\tat a.b.C\n",
            "KeyError: 1",
        ),
    ],
)
def test_the_line_that_says_most(text: str, expected: str) -> None:
    assert cause(text) == expected


@pytest.mark.parametrize(
    ("logged", "message", "hint"),
    [
        (
            ["ERROR S: Application has been killed. Reason: All masters are unresponsive!", "ERROR X: later"],
            "no Spark master answers at spark://h:1",
            "check the port",
        ),
        (
            ["ERROR X: earlier", "Terminating due to java.lang.OutOfMemoryError: Java heap space"],
            "the memory of Spark's driver at spark://h:1 is too small for the results",
            "spark.driver.memory",
        ),
        # -v alone does not show it.
        ([], "Spark at spark://h:1 failed: no reason given", "see -vv for Spark's own log"),
    ],
)
def test_errors_of_which_spark_only_logs_the_cause(
    logged: list[str], message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierctl.spark.session.jvm.last_errors", lambda: logged)
    error = engine_error(RuntimeError("An error occurred while calling None.x"), "spark://h:1")
    assert (error.message, error.exit_code) == (message, 5)
    assert hint in (error.hint or "")


def slow_job(session: "SparkSession", seconds: float) -> list[tuple[int, int]]:
    """Return the progress that was reported for two tasks while they ran."""
    heard: list[tuple[int, int]] = []

    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        time.sleep(seconds)
        yield from batches

    with watched(session, lambda *tasks: heard.append(tasks), every_s=0.05):
        session.range(0, 2, 1, 2).mapInArrow(look, "id long").toArrow()
    return heard


@pytest.mark.parametrize("kind", ["spark", CONNECT])
def test_progress(kind: str, request: pytest.FixtureRequest) -> None:
    session = request.getfixturevalue(kind)
    # A Spark Connect server reports progress every two seconds.
    heard = session.call(slow_job, 3) if isinstance(session, Driver) else slow_job(session, 0.5)
    assert heard
    assert heard == sorted(heard)
    assert {total for _, total in heard} == {2}
    assert threading.active_count() < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "spark-progress"]


def test_a_session_of_another_master_is_not_taken(spark: "SparkSession", tmp_path: Path) -> None:
    other = opened_session(SparkSettings(master="local[1]", conf=SMALL))
    with pytest.raises(UsageError, match=r"has a session of local\[2\] already"):
        other.__enter__()
    assert tierctl("verify", "--metadata", tmp_path, "--engine", "spark").code == 10
    assert spark.range(3).count() == 3


@pytest.mark.parametrize("rows", ["0", "-1"])
def test_arrow_batches_without_a_limit_are_refused(rows: str, spark: "SparkSession") -> None:
    """Spark's documentation offers them, but PySpark ends with a ValueError and an AssertionError."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, rows)
    try:
        with (
            pytest.raises(UsageError, match=f"maxRecordsPerBatch is {rows}"),
            opened_session(SparkSettings()),
        ):
            pass
    finally:
        spark.conf.set(name, before)


def test_options_of_the_jvm(spark: "SparkSession") -> None:
    """A driver without memory ends, and code is compiled fast rather than well.

    Spark alone would wait for ever, because it loses the thread that receives results.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    options = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert {"-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1"} <= set(options)
