"""Open the Spark session that a command runs on.

    with opened_session(SparkSettings(master="spark://host:7077")) as spark:
        register(spark)

Jobs use the DataFrame API only, so that the session may be one of Spark Connect.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from tierctl.errors import EngineError, SafetyRefusal, UsageError
from tierctl.in_order import in_background
from tierctl.model.progress import WAITS
from tierctl.spark.session import jvm
from tierctl.spark.session.jvm import SPECULATION, SparkSettings, failures, is_connect, is_speculative, ship
from tierctl.storage.stores.base import why_refused

T = TypeVar("T")

_PORTS = {"spark": 7077, "sc": 15002}


def require_reachable(master: str | None) -> None:
    """Raise EngineError if no address of a spark:// or sc:// master accepts connections.

    Other masters are not checked. Raise UsageError for a malformed address.
    """
    scheme, _, rest = (master or "").partition("://")
    if scheme not in _PORTS:
        return
    reasons = []
    for address in rest.partition("/")[0].partition(";")[0].split(","):
        reason = _why_not(str(master), address, _PORTS[scheme])
        if reason is None:
            return
        reasons.append(f"{address}: {reason}")
    server = "Spark Connect server" if scheme == "sc" else "Spark master"
    raise EngineError(
        f"no {server} answers at {'; '.join(reasons)}",
        hint="check that it is running and reachable from here",
    )


def _why_not(master: str, address: str, default_port: int) -> str | None:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port or default_port
    except ValueError as e:
        raise UsageError(f"--master {master}: {e}") from None
    if not host:
        raise UsageError(f"--master {master} has no host", hint="as spark://host:7077 or sc://host:15002")
    return why_refused(host, port)


def within(timeout_s: float, call: Callable[[], T], error: EngineError) -> T:
    """Return or raise the result of `call`; raise `error` if it takes longer than `timeout_s`.

    A call that takes longer keeps running on its own thread.
    """
    answer = in_background(call, "spark-start")
    wait([answer], timeout_s)
    if not answer.done():
        raise error
    return answer.result()


try:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
except ImportError as e:
    raise UsageError("PySpark is not installed", hint="pip install 'tierctl[spark]'") from e

Session = SparkSession
"""The type of a session, for packages that must not import PySpark."""

CONNECT_TIMEOUT_S = 60
START_TIMEOUT_S = 600
"""Long, because a queue of YARN may be full; unreachable masters are found much earlier."""

_EVERYWHERE = {
    # Arrow transfers rows between the JVM and Python; Spark pushes filters to data sources in Python.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_SAFE_PATH = "PYTHONSAFEPATH"
"""Python does not import modules from the current folder, in which other users may put some."""
_CLASSIC = {
    f"spark.executorEnv.{_SAFE_PATH}": "1",
    # Arrow's own pools keep freed memory: 17 MB more in a worker that builds flat files.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # By default glibc returns the memory of large arrays to the system, which clears each page that it hands
    # out again: a worker that folds many small metadata partitions spends a twentieth of its time on that.
    # Some versions of glibc accept no larger second threshold.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    # tierctl shows its own progress.
    "spark.ui.showConsoleProgress": "false",
    SPECULATION: "false",
}
_ON_THIS_MACHINE = {
    # A local session must not be reachable from other machines, and must not need this machine's name.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def own_settings(master: str) -> dict[str, str]:
    """Return the settings that tierctl gives every session of `master`."""
    if SparkSettings(master=master).is_connect:
        return dict(_EVERYWHERE)
    return _EVERYWHERE | _CLASSIC | (_ON_THIS_MACHINE if master.startswith("local") else {})


@contextmanager
def opened_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Provide a session during the block, and translate Spark's exceptions in it into EngineError.

    An existing session is used and stays open.
    """
    with failures(settings.master):
        jvm.forget_ended()
        found = _active_session()
        session = open_session(settings) if found is None else _usable(found, settings)
        try:
            yield session
        finally:
            if found is None:
                _stop(session)


def _stop(session: SparkSession) -> None:
    # A driver or server that has ended cannot be stopped; the error that ended it is reported instead.
    with suppress(EngineError, OSError), failures(None):
        session.stop()


def open_session(settings: SparkSettings) -> SparkSession:
    """Return a session whose executors import this tierctl and, on this machine, run this interpreter.

    Raise UsageError for wrong settings, EngineError if the master does not answer, and SafetyRefusal for a
    Spark Connect server with speculation if the command has side effects.
    """
    if settings.master is None and jvm.REMOTE in os.environ:
        settings = replace(settings, master=os.environ[jvm.REMOTE])
    with failures(settings.master):
        require_reachable(settings.master)
        return _usable(_connected(settings) if settings.is_connect else _classic(settings), settings)


def _active_session() -> SparkSession | None:
    """Return the session of this thread or process, or None; Spark Connect sessions belong to a thread.

    PySpark keeps a session whose context was stopped, or whose JVM has ended; it is none.
    """
    for name in ("pyspark.sql", "pyspark.sql.connect.session"):
        if name in sys.modules:
            with suppress(PySparkException):
                found: SparkSession = sys.modules[name].SparkSession.active()
                is_stopped = not is_connect(found) and found._sc._jsc is None  # noqa: SLF001
                return None if is_stopped else found
    return None


_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def _usable(session: SparkSession, settings: SparkSettings) -> SparkSession:
    """Return `session`, to whose workers this tierctl is sent: another program may have opened the session.

    Raise UsageError if it has another master, SafetyRefusal if it uses speculation, and UsageError for Arrow
    batches without a limit, which Spark itself offers: PySpark makes no DataFrame of Arrow rows then, and
    plans no data source in Python.
    """
    master = session.conf.get("spark.master", None)
    if settings.master not in {None, master} and not settings.is_connect:
        raise UsageError(f"--master {settings.master}: this process has a session of {master} already")
    batch_rows = session.conf.get(_BATCH_ROWS, None)
    if batch_rows is not None and int(batch_rows) < 1:
        raise UsageError(
            f"{_BATCH_ROWS} is {batch_rows}: PySpark reads and sends no rows then",
            hint=f"leave it out, or give a number above 0, as --spark-conf {_BATCH_ROWS}=10000",
        )
    if settings.changes_things and is_speculative(session.conf.get(SPECULATION, None)):
        raise SafetyRefusal(
            f"{SPECULATION} is on: no segment may be stored or deleted twice at a time",
            hint="disable it where the session is started",
        )
    ship(session)
    return session


def _connected(settings: SparkSettings) -> SparkSession:
    made: list[SparkSession] = []

    def connect() -> SparkSession:
        session = SparkSession.builder.remote(str(settings.master)).getOrCreate()
        made.append(session)
        for name, value in (_EVERYWHERE | dict(settings.conf)).items():
            session.conf.set(name, value)
        return session

    silent = EngineError(
        f"Spark Connect at {settings.master} has not answered for {CONNECT_TIMEOUT_S:.0f} s",
        hint="check the port",
    )
    try:
        with WAITS.waiting(f"connecting to Spark Connect at {settings.master}"):
            return within(CONNECT_TIMEOUT_S, connect, silent)
    except EngineError:
        # An open session would wait for the unresponsive server again when the process ends.
        for session in made:
            session.client.close()
        raise


def _classic(settings: SparkSettings) -> SparkSession:
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Python workers on this machine inherit the variable of the driver's JVM.
    os.environ[_SAFE_PATH] = "1"
    given = dict(settings.conf) | ({} if settings.master is None else {"spark.master": settings.master})
    with WAITS.waiting("starting the Java virtual machine of Spark"):
        virtual_machine = jvm.started(_EVERYWHERE | _CLASSIC | given, verbose=settings.verbose)
    configured = virtual_machine.gateway.jvm.SparkConf()
    master = settings.master or configured.get("spark.master", "local[*]")
    choose_python(master, settings.conf.get(_PYTHON) or configured.get(_PYTHON, ""))
    conf = SparkConf()
    named = {"spark.app.name": f"tierctl {settings.command}".strip()}
    for name, value in (named | own_settings(master) | given | {"spark.master": master}).items():
        conf.set(name, value)
    silent = EngineError(f"Spark at {master} has not started within {START_TIMEOUT_S} s")
    start = partial(SparkContext, conf=conf, gateway=virtual_machine.gateway)
    try:
        with WAITS.waiting(f"starting Spark at {master}"):
            # Only on the main thread would PySpark replace the handler of SIGINT: a run stops itself between
            # side effects.
            context = within(START_TIMEOUT_S, start, silent)
    except EngineError:
        virtual_machine.kill()
        raise
    # The builder would look for a Spark Connect server where variables name one, or are set for it.
    return SparkSession(context)


_PYTHON = "spark.pyspark.python"


def choose_python(master: str, chosen: str) -> None:
    """Set the interpreter of Python workers: the operator's, or this one if executors see the same files.

    `chosen` is that of the settings, or "". Workers with another version of Python end with an EOFException
    without a message.
    """
    if chosen:
        os.environ["PYSPARK_PYTHON"] = chosen
    # On YARN and Kubernetes, executors have their own file systems.
    elif not master.startswith(("yarn", "k8s://")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
