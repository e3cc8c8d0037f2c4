"""The JVM of Spark's driver: started by this process, silent by default, and ended with the process."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tierctl.errors import EngineError, UsageError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

END_TIMEOUT_S = 20
_LINES_KEPT = 200
_NO_MEMORY = "Terminating due to java.lang.OutOfMemoryError"
_STDERR = 2
QUIET_LOGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex{short}
"""
"""Settings of log4j2 that print errors only."""

_started: list[Jvm] = []


class Jvm:
    """A running JVM, and the last lines of its output."""

    def __init__(self, gateway: JavaGateway, lines: deque[str]) -> None:
        self.gateway = gateway
        self.lines = lines
        # None under spark-submit, whose JVM started this process.
        self._process: subprocess.Popen[bytes] | None = gateway.proc

    def kill(self) -> None:
        """Kill the JVM."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Close the standard input of the JVM, which ends it, and wait; kill it after a timeout."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def started(conf: Mapping[str, str], *, verbose: bool) -> Jvm:
    """Return the JVM of this process; the first call starts it with `conf`. It ends with the process.

    Its output is printed only if `verbose`. Raise UsageError if no suitable Java is installed.
    """
    if not _started:
        if not verbose:
            # Py4J also logs the exceptions that it raises, with tracebacks.
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        jvm = _start(conf, verbose=verbose)
        atexit.register(jvm.end)
        _started.append(jvm)
    return _started[0]


def last_errors() -> list[str]:
    """Return the last errors that Spark logged while its output was not printed."""
    return [line for jvm in _started for line in list(jvm.lines) if line.startswith(("ERROR ", _NO_MEMORY))]


def is_out_of_memory() -> bool:
    """Return whether a JVM of this process ended because its heap was full; unknown if it printed that."""
    return any(line.startswith(_NO_MEMORY) for line in last_errors())


def _start(conf: Mapping[str, str], *, verbose: bool) -> Jvm:
    from pyspark.conf import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    _require_java()
    settings = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        settings.set(name, value)
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    try:
        with _options(verbose), _output(lines, verbose=verbose) as popen_kwargs:
            return Jvm(launch_gateway(settings, popen_kwargs), lines)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as e:
        raise _did_not_start(lines) from e


def _require_java() -> None:
    """Raise UsageError if Spark's start script would find no Java."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        found = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH, and no JAVA_HOME"
        raise UsageError(f"Spark needs Java: {found}", hint="install Java 17 or newer, or set JAVA_HOME")


def _did_not_start(lines: deque[str]) -> UsageError | EngineError:
    text = "\n".join(lines)
    if "UnsupportedClassVersionError" in text:
        return UsageError(
            "Spark needs a newer Java than the one found", hint="install Java 17 or newer, or set JAVA_HOME"
        )
    # Java prints its message first, then the start script prints its own.
    printed = [line for line in lines if line.strip() and not line.startswith(("WARNING:", "\tat "))]
    return EngineError(
        f"Spark's JVM did not start: {printed[0] if printed else 'it printed nothing'}", hint="see -v"
    )


@contextmanager
def _options(verbose: bool) -> Iterator[None]:
    """Give the JVM its options, and before it reads Spark's log settings tierctl's, unless others are set."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    # Without the first option Spark loses the thread that receives results, and waits without end. The second
    # one halves the processor time of the start; Python does the work of jobs, not the JVM's code.
    options = ["-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1"]
    with tempfile.TemporaryDirectory(prefix="tierctl-") as folder:
        if not verbose and "log4j2.configurationFile" not in (before or ""):
            file = Path(folder, "log4j2.properties")
            file.write_text(QUIET_LOGS, encoding="utf-8")
            options.append(f"-Dlog4j2.configurationFile={file.as_uri()}")
        # The last of two options that contradict each other counts: the operator's.
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*options, *([before] if before else [])])
        try:
            yield
        finally:
            os.environ.pop("SPARK_SUBMIT_OPTS")
            if before is not None:
                os.environ["SPARK_SUBMIT_OPTS"] = before


@contextmanager
def _output(lines: deque[str], *, verbose: bool) -> Iterator[dict[str, Any]]:
    """Direct the JVM's output to stderr, or into `lines`; never to stdout, which is for data."""
    if verbose:
        yield {"stdout": _STDERR, "stderr": _STDERR}
        return
    reading, writing = os.pipe()
    reader = Thread(target=_read, args=(reading, lines), name="spark-log", daemon=True)
    reader.start()
    is_started = False
    try:
        yield {"stdout": writing, "stderr": writing}
        is_started = True
    finally:
        os.close(writing)
        if not is_started:
            reader.join(END_TIMEOUT_S)


def _read(descriptor: int, lines: deque[str]) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
        lines.extend(line.rstrip("\n") for line in stream)
