"""Spark in tests: clusters that the tests start on free loopback ports, and drivers for them.

    def test_plans_are_equal(engine: Engine) -> None:
        ran = engine.tierctl("sweep", "--metadata", folder, "--remote", tier)
        rows = engine.call(read_rows, str(folder))      # read_rows(spark, folder), in the driver

`engine` is each of ENGINES in turn. A process can have only one SparkContext, so every master has its own
driver process, which runs as long as the tests. Except with local[2], the executors' interpreter has no
tierctl: they run the code that was shipped to them, and no code of tests/.

Without Java these tests are skipped with a message; with CI=true they fail. Only processes started here are
ended, each by its id.
"""

import functools
import json
import os
import pickle
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any
from urllib.request import urlopen

from tests.cli.shell import Ran, environment, tierctl
from tests.support.amounts import rest_in_matrix
from tests.support.java import SHORT_LIVED
from tests.support.kernels import keep_for_workers
from tests.support.servers import answers, cannot, free_port, process
from tests.support.spark_classes import USES_ARCHIVE, make_class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = rest_in_matrix(["local[2]", "connect", "local-cluster[2,1,1024]", "standalone"])
WORKERS = 2
ROOT = Path(__file__).parents[2]
END_TIMEOUT_S = 30
# Python workers that the JVM starts must not find tierctl in the working directory or PYTHONPATH.
_DRIVER = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.spark.driver import main; main(*sys.argv[1:])"
)

ONE_CORE_EACH = {"spark.cores.max": "2", "spark.executor.cores": "1"}
"""Settings with which a cluster of two workers has one executor of one core on each."""

LOOPBACK = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    **ONE_CORE_EACH,
}
"""Settings that keep Spark small, and on the loopback interface."""

SHORT_LIVED_JVMS = {
    f"spark.{process}.extraJavaOptions": " ".join([*SHORT_LIVED, *USES_ARCHIVE])
    for process in ("driver", "executor")
}

SMALL = LOOPBACK | SHORT_LIVED_JVMS
"""Spark settings of a test."""


def spark_home() -> Path:
    """Return the folder of PySpark's Spark; skip the test without Java."""
    import pyspark

    if shutil.which("java") is None:
        cannot("SPARK", "Java is not installed")
    make_class_archive()
    keep_for_workers()
    return Path(pyspark.__file__).parent


def spark_environment(python: Path, **extra: str) -> dict[str, str]:
    """Return an environment in which Spark's programs use the loopback interface and little memory."""
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    own |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join([*SHORT_LIVED, *USES_ARCHIVE])}
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    return kept | own | extra


def python_without_tierctl(folder: Path) -> Path:
    """Return an interpreter with the installed libraries and without tierctl."""
    python = folder / "python"
    if not python.exists():
        libraries = os.pathsep.join(site.getsitepackages())
        # Without site.py, the .pth file that points to the checkout is not read.
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n'
        )
        python.chmod(0o755)
    return python


def ran_python(
    code: str, *words: object, cwd: Path = ROOT, env: Mapping[str, str], python: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run Python code in a process with these variables, which must succeed; return what it said."""
    done = subprocess.run(
        [str(python or sys.executable), "-c", code, *map(str, words)],
        capture_output=True,
        cwd=cwd,
        env=dict(env),
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def java_environment(**extra: str) -> dict[str, str]:
    """Return an operator's environment for programs of Spark on the loopback interface."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    return environment(SPARK_LOCAL_IP="127.0.0.1", **kept, **extra)


def spark_program(*words: str, home: Path, python: Path, **environment: str) -> list[str]:
    """Return the command line of a class of Spark; its process is the JVM itself."""
    settings = spark_environment(python, **environment)
    return ["env", *(f"{k}={v}" for k, v in settings.items()), str(home / "bin" / words[0]), *words[1:]]


_served = functools.partial(process, timeout_s=300)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Start a standalone master and two workers, with room for two applications; yield its URL."""
    home, python = spark_home(), python_without_tierctl(folder)
    port, web_port = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--webui-port"]
    package = "org.apache.spark.deploy"
    start = functools.partial(spark_program, "spark-class", home=home, python=python)
    command = start(f"{package}.master.Master", *where, str(web_port), "--port", str(port))
    with ExitStack() as running:
        running.enter_context(_served(command, folder / "master.log", lambda: answers(port)))
        for number in range(WORKERS):
            command = start(f"{package}.worker.Worker", *where, "0")
            command += ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / f"work-{number}")]
            command += [master]
            is_ready = functools.partial(_has_workers, web_port, number + 1)
            running.enter_context(_served(command, folder / f"worker-{number}.log", is_ready))
        yield master


def _has_workers(web_port: int, count: int) -> bool:
    with suppress(OSError, ValueError), urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"]) == count
    return False


@contextmanager
def spark_connect_server(folder: Path) -> Iterator[str]:
    """Start a Spark Connect server over local[2]; yield sc://127.0.0.1:port."""
    home, python = spark_home(), python_without_tierctl(folder)
    port = free_port()
    conf = SMALL | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    command = spark_program(
        "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        home=home,
        python=python,
        # Spark takes the memory of its servers from this variable.
        SPARK_DAEMON_MEMORY="768m",
    )
    with _served(command, folder / "connect.log", lambda: answers(port)):
        yield f"sc://127.0.0.1:{port}"


class Driver:
    """A process with one Spark session, in which commands and functions run one after the other."""

    def __init__(
        self,
        master: str,
        folder: Path,
        *,
        conf: Mapping[str, str] = MappingProxyType(SMALL),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add `environment` to the variables that Spark's programs have in tests."""
        self.master = master
        # A Spark Connect server has its own settings.
        settings = {} if master.startswith("sc://") else dict(conf)
        self.log = folder / "driver.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _DRIVER, master, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=spark_environment(python_without_tierctl(folder), **environment),
            )

    @property
    def pid(self) -> int:
        """Return the id of the process, whose child the JVM is."""
        return self._process.pid

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call function(spark, *args) in the driver; raise the exception that it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, args), self._process.stdin)
            self._process.stdin.flush()
            is_good, answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError) as e:
            text = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the driver of {self.master} has died:\n{text}") from e
        if not is_good:
            raise answer
        return answer

    def close(self) -> None:
        """End the process and Spark."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(session: "SparkSession", requests: IO[bytes], answers_to: IO[bytes]) -> None:
    """Serve requests in a driver process, one response per request, until the input ends."""
    while True:
        try:
            function, args = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = (True, function(session, *args))
        except Exception as e:
            answer = (False, e if _can_be_sent(e) else RuntimeError(f"{type(e).__name__}: {e}"))
        pickle.dump(answer, answers_to)
        answers_to.flush()


def _can_be_sent(error: Exception) -> bool:
    with suppress(Exception):
        pickle.loads(pickle.dumps(error))
        return True
    return False


def run_command(_session: "SparkSession", args: Sequence[str], folder: Path | None = None) -> Ran:
    """Run one command line of tierctl in a process with an open Spark session."""
    return tierctl(*args, cwd=folder)


@dataclass(frozen=True, slots=True)
class Engine:
    """A kind of Spark: a session in this process, or a driver in another one."""

    name: str
    master: str
    driver: Driver | None
    session: "SparkSession | None"

    def tierctl(self, *args: object) -> Ran:
        """Run one command line on this engine."""
        words = [*map(str, args), "--engine", "spark", "--master", self.master]
        return tierctl(*words) if self.driver is None else self.driver.call(run_command, words)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call function(spark, *args) of a module."""
        return function(self.session, *args) if self.driver is None else self.driver.call(function, *args)
