"""The JVM of Spark's driver: started by this process, quiet unless asked, and gone when the process is."""

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
"""Settings of log4j2: errors only."""

_started: "list[Jvm]" = []


class Jvm:
    """A running JVM, and the last lines it wrote."""

    def __init__(self, gateway: "JavaGateway", lines: "deque[str]") -> None:
        self.gateway = gateway
        self.lines = lines
        # None below spark-submit, whose JVM started us.
        self._process: subprocess.Popen[bytes] | None = gateway.proc

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Let it end, and wait until it has."""
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
    """This process's JVM: the first call starts it, with `conf`; it ends when the process does.

    Unless `verbose` nothing it writes is shown. UsageError without a Java that can run Spark.
    """
    if not _started:
        if not verbose:
            # It logs, with tracebacks, what it raises as well.
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        jvm = _start(conf, verbose=verbose)
        atexit.register(jvm.end)
        _started.append(jvm)
    return _started[0]


def last_errors() -> list[str]:
    """What Spark wrote last as errors, when it was not shown."""
    return [line for jvm in _started for line in list(jvm.lines) if line.startswith("ERROR ")]


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
        with _quiet(verbose), _output(lines, verbose=verbose) as popen_kwargs:
            return Jvm(launch_gateway(settings, popen_kwargs), lines)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as e:
        raise _did_not_start(lines) from e


def _require_java() -> None:
    """UsageError where Spark's own start script would find no Java."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        found = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH, and no JAVA_HOME"
        raise UsageError(f"Spark needs Java: {found}", hint="install Java 17 or newer, or set JAVA_HOME")


def _did_not_start(lines: "deque[str]") -> UsageError | EngineError:
    text = "\n".join(lines)
    if "UnsupportedClassVersionError" in text:
        return UsageError(
            "Spark needs a newer Java than the one found", hint="install Java 17 or newer, or set JAVA_HOME"
        )
    # What Java says comes first, then what the script makes of it.
    said = [line for line in lines if line.strip() and not line.startswith(("WARNING:", "\tat "))]
    return EngineError(f"Spark's JVM did not start: {said[0] if said else 'it said nothing'}", hint="see -v")


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Log settings that the JVM reads before it has any of Spark's; an operator's own go before them."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    if verbose or "log4j2.configurationFile" in (before or ""):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tierctl-") as folder:
        file = Path(folder, "log4j2.properties")
        file.write_text(QUIET_LOGS, encoding="utf-8")
        ours = f"-Dlog4j2.configurationFile={file.as_uri()}"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{before} {ours}" if before else ours
        try:
            yield
        finally:
            os.environ.pop("SPARK_SUBMIT_OPTS")
            if before is not None:
                os.environ["SPARK_SUBMIT_OPTS"] = before


@contextmanager
def _output(lines: "deque[str]", *, verbose: bool) -> Iterator[dict[str, Any]]:
    """Where the JVM writes: stderr, or what only `lines` has the end of; never stdout, which has data."""
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


def _read(descriptor: int, lines: "deque[str]") -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
        lines.extend(line.rstrip("\n") for line in stream)
