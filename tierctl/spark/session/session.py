"""One Spark session, as every command that runs on Spark wants it.

    with opened_session(SparkSettings(master="spark://host:7077"), say=print) as spark:
        register(spark)

Work is written on DataFrames only, so that a session may as well be one of Spark Connect.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tierctl.errors import EngineError, SafetyRefusal, UsageError
from tierctl.spark.session.failures import failures
from tierctl.spark.session.reachability import require_answer, within
from tierctl.spark.session.settings import SPECULATION, SparkSettings
from tierctl.spark.session.shipping import archive, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession

CONNECT_TIMEOUT_S = 60
START_TIMEOUT_S = 600
"""A queue of YARN may be full for a while; what can be known earlier is."""

_EVERYWHERE = {
    # Rows go between JVM and Python as Arrow, and filters reach the data sources written in Python.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_CLASSIC = {
    "spark.app.name": "tierctl",
    # tierctl draws its own.
    "spark.ui.showConsoleProgress": "false",
    SPECULATION: "false",
}
_ON_THIS_MACHINE = {
    # Nobody else is to reach a session that is here only, nor has it to know this machine's name.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def _silent(_text: str) -> None:
    """Nobody listens."""


@contextmanager
def opened_session(settings: SparkSettings, say: Callable[[str], None] = _silent) -> "Iterator[SparkSession]":
    """A session for the block; what Spark raises in it is an EngineError outside.

    One that is open already is used, and left open. `say` hears what takes its time.
    """
    with failures(settings.master):
        found = _active_session()
        session = open_session(settings, say) if found is None else _usable(found, settings)
        try:
            yield session
        finally:
            if found is None:
                _stop(session)


def _stop(session: "SparkSession") -> None:
    # One whose driver or server has ended needs no stopping, and what ended it is what is to be said.
    with suppress(EngineError, OSError), failures(None):
        session.stop()


def open_session(settings: SparkSettings, say: Callable[[str], None] = _silent) -> "SparkSession":
    """A session whose executors run this interpreter and this tierctl, as far as they are of this machine.

    UsageError for what it can't be started with, EngineError when nobody answers, SafetyRefusal for a Spark
    Connect server that would do a task twice at a time where that must not be.
    """
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as e:
        raise UsageError("PySpark is not installed", hint="pip install 'tierctl[spark]'") from e
    if settings.master is None and "SPARK_REMOTE" in os.environ:
        settings = replace(settings, master=os.environ["SPARK_REMOTE"])
    with failures(settings.master):
        require_answer(settings.master)
        session = _connected(settings) if settings.is_connect else _classic(settings, say)
        _usable(session, settings)
        if not _was_sent(session):
            ship(session)
    return session


def _was_sent(session: "SparkSession") -> bool:
    """Whether spark-submit has sent this very package already; a second one of its name is an error."""
    return archive().name in (session.conf.get("spark.submit.pyFiles", None) or "")


def _active_session() -> "SparkSession | None":
    """This thread's session, else the process's: one of Spark Connect is opened by a thread of its own."""
    for name in ("pyspark.sql", "pyspark.sql.connect.session"):
        if name in sys.modules:
            from pyspark.errors import PySparkException

            with suppress(PySparkException):
                found: SparkSession = sys.modules[name].SparkSession.active()
                return found
    return None


def _usable(session: "SparkSession", settings: SparkSettings) -> "SparkSession":
    """The session; UsageError for another master's, SafetyRefusal where tasks may be done twice at a time."""
    master = session.conf.get("spark.master", None)
    if settings.master not in {None, master} and not settings.is_connect:
        raise UsageError(f"--master {settings.master}: this process has a session of {master} already")
    if settings.changes_things and session.conf.get(SPECULATION, "false") == "true":
        raise SafetyRefusal(
            f"{SPECULATION} is on: no segment may be stored or deleted twice at a time",
            hint="switch it off where the session is started",
        )
    return session


def _connected(settings: SparkSettings) -> "SparkSession":
    from pyspark.sql import SparkSession

    made: list[SparkSession] = []

    def connect() -> "SparkSession":
        session = SparkSession.builder.remote(str(settings.master)).getOrCreate()
        made.append(session)
        for name, value in (_EVERYWHERE | dict(settings.conf)).items():
            session.conf.set(name, value)
        return session

    try:
        return within(CONNECT_TIMEOUT_S, connect, f"Spark Connect at {settings.master}")
    except EngineError:
        # Left open it would ask the silent server once more, when the process ends.
        for session in made:
            session.client.close()
        raise


def _classic(settings: SparkSettings, say: Callable[[str], None]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from tierctl.spark.session import jvm

    _choose_python(settings)
    given = dict(settings.conf) | ({} if settings.master is None else {"spark.master": settings.master})
    virtual_machine = jvm.started(_EVERYWHERE | _CLASSIC | given, verbose=settings.verbose)
    master = settings.master or virtual_machine.gateway.jvm.SparkConf().get("spark.master", "local[*]")
    own = _EVERYWHERE | _CLASSIC | (_ON_THIS_MACHINE if master.startswith("local") else {})
    conf = SparkConf()
    for name, value in (own | given | {"spark.master": master}).items():
        conf.set(name, value)
    with _announced(master, say, give_up=virtual_machine.kill), _own_interrupts():
        SparkContext(conf=conf, gateway=virtual_machine.gateway)
    return SparkSession.builder.getOrCreate()


def _choose_python(settings: SparkSettings) -> None:
    """The interpreter of Python workers: the operator's, else this one where it is likely to be there too.

    Workers of another Python die with an EOFException that says nothing.
    """
    chosen = settings.conf.get("spark.pyspark.python")
    if chosen is not None:
        os.environ["PYSPARK_PYTHON"] = chosen
    elif "PYSPARK_PYTHON" not in os.environ and not _is_elsewhere(settings):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _is_elsewhere(settings: SparkSettings) -> bool:
    """Whether executors have file systems of their own: YARN's containers and Kubernetes' pods do."""
    below_submit = settings.master is None and "PYSPARK_GATEWAY_PORT" in os.environ
    return below_submit or (settings.master or "local").startswith(("yarn", "k8s://"))


@contextmanager
def _announced(
    master: str, say: Callable[[str], None], *, give_up: Callable[[], None], every_s: float = 15
) -> Iterator[None]:
    """Say from time to time that Spark is waited for; EngineError when it does not start in the end."""
    done, gave_up = threading.Event(), threading.Event()

    def wait() -> None:
        waited_s = 0.0
        while not done.wait(every_s):
            waited_s += every_s
            if waited_s >= START_TIMEOUT_S:
                gave_up.set()
                give_up()
                return
            say(f"waiting for Spark at {master}, for {waited_s:.0f} s now")

    threading.Thread(target=wait, name="spark-start", daemon=True).start()
    try:
        yield
    except Exception as e:
        if gave_up.is_set():
            raise EngineError(f"Spark at {master} has not started within {START_TIMEOUT_S} s") from e
        raise
    finally:
        done.set()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself; a run has its own way to end, between side effects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
