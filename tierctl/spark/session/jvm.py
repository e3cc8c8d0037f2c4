"""The settings of Spark, `--master` and `--spark-conf`, checked before it is started; its JVM: finding and
starting it, its failures as tierctl's errors, and shipping tierctl to executors.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import marshal
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from threading import Thread
from types import CodeType
from typing import TYPE_CHECKING, Any

from tierctl import __version__
from tierctl.errors import EngineError, TierctlError, UsageError
from tierctl.files import named
from tierctl.model.settings.known import is_secret

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession


_POINTS_TO_A_FILE = re.compile(r"(file|path|dir|location|store|provider|class|name|enabled)$", re.IGNORECASE)
# The values of these settings are names of Kubernetes secrets, not the secrets themselves.
_IS_NAMED_ONLY = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")
_IN_A_VALUE = re.compile(
    r"(secret([._-]?key)?|passw(or)?d|token|access[._-]?key|account[._-]?key[\w.-]*)\w*\s*[=:]|\bAKIA[0-9A-Z]{16}\b|://[^/@\s]+:[^/@\s]+@",
    re.IGNORECASE,
)
_HINT = (
    "give executors an instance role, a profile or their own environment; Spark shows and logs its settings"
)
SPECULATION = "spark.speculation"
REMOTE = "SPARK_REMOTE"
"""Spark's variable with the address of a Spark Connect server."""


def is_speculative(value: str | None) -> bool:
    """Return whether Spark runs a task twice at a time with this value of SPECULATION, in any case."""
    return (value or "").strip().lower() == "true"


def is_credential(name: str, value: str) -> bool:
    """Return True if a setting looks like a secret, and not like the path of one."""
    if value.lower() in {"", "true", "false"} or _IS_NAMED_ONLY.match(name):
        return False
    # tierctl's own --aiven-private-key names a file: settings are judged by dots.
    named = is_secret(name.replace("-", ".")) and not _POINTS_TO_A_FILE.search(name)
    return named or _IN_A_VALUE.search(value) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The master and the settings of a session.

    Without `master`, Spark's configuration decides, and its default is local[*]. `changes_things` refuses
    speculation, because no side effect may run twice at a time. `verbose` prints Spark's logs. The
    application has the name of `command`.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    changes_things: bool = False
    verbose: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for name, value in self.conf.items():
            if is_credential(name, value):
                raise UsageError(
                    f"--spark-conf {name}: Spark settings must not contain credentials", hint=_HINT
                )
        if self.changes_things and is_speculative(self.conf.get(SPECULATION)):
            raise UsageError(
                f"--spark-conf {SPECULATION}=true: no segment may be stored or deleted twice at a time",
                hint=f"leave {SPECULATION} out",
            )
        _check_master(self)

    @property
    def is_connect(self) -> bool:
        """Return True for a session of Spark Connect."""
        return self.master is not None and self.master.startswith("sc://")


def conf_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings of `--spark-conf` texts by name; raise UsageError for malformed ones."""
    conf = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().startswith("spark."):
            shown = text if not equals else name
            raise UsageError(
                f"--spark-conf {shown}: expected spark.KEY=VALUE", hint="as spark.executor.memory=4g"
            )
        conf[name.strip()] = value.strip()
    return conf


_MASTER = re.compile(
    r"local(\[([0-9]+|\*)(\s*,\s*[0-9]+)?\]|-cluster\[\s*[0-9]+(\s*,\s*[0-9]+){2}\s*\])?|yarn|(spark|k8s|sc)://.+"
)
"""The masters of Spark (SparkMasterRegex), without those of which a cluster manager is another package."""


def _check_master(settings: SparkSettings) -> None:
    master = settings.master
    if master is None:
        return
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master!r}: no master of Spark",
            hint="local[N], spark://host:port, yarn, k8s://https://host:port, or sc://host:port",
        )
    if settings.is_connect:
        if re.search(r";\s*(token|user_id=[^;]*:)", master, re.IGNORECASE):
            raise UsageError(
                "--master sc://...: the address must not contain a token",
                hint="set SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment",
            )
        for name in settings.conf:
            if not name.startswith("spark.sql."):
                raise UsageError(
                    f"--spark-conf {name}: a Spark Connect server has its own value",
                    hint="set it where the server is started; spark.sql.* can be set here",
                )


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

    @property
    def has_ended(self) -> bool:
        """Return whether the JVM ended by itself, as without memory, or was killed."""
        return self._process is not None and self._process.poll() is not None

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


def forget_ended() -> None:
    """Let the next call of `started` start a JVM if that of this process has ended, as without memory."""
    if _started and _started[0].has_ended:
        from pyspark import SparkContext

        _started.clear()
        # PySpark keeps the connection to its first JVM, and what was there.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001


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

    settings = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        settings.set(name, value)
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    try:
        with _options(verbose), _output(lines, verbose=verbose) as popen_kwargs:
            return Jvm(launch_gateway(settings, popen_kwargs), lines)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as e:
        # Asked only now, because spark-env.sh may name another Java.
        _require_java()
        raise _did_not_start(lines) from e


def _require_java() -> None:
    """Raise UsageError if neither JAVA_HOME nor PATH has a Java."""
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
        f"Spark's JVM did not start: {printed[0] if printed else 'it printed nothing'}", hint="see -vv"
    )


@contextmanager
def _options(verbose: bool) -> Iterator[None]:
    """Give the JVM its options, and before it reads Spark's log settings tierctl's, unless others are set.

    Hide SPARK_REMOTE from it, because spark-submit refuses the variable beside a master.
    """
    before = {name: os.environ.pop(name, None) for name in ("SPARK_SUBMIT_OPTS", REMOTE)}
    given = before["SPARK_SUBMIT_OPTS"] or ""
    # Without the first option Spark loses the thread that receives results, and waits without end. The second
    # one halves the processor time of the start; Python does the work of jobs, not the JVM's code.
    options = ["-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1"]
    try:
        with tempfile.TemporaryDirectory(prefix="tierctl-") as folder:
            if not verbose and "log4j2.configurationFile" not in given:
                file = Path(folder, "log4j2.properties")
                with named(file):
                    file.write_text(QUIET_LOGS, encoding="utf-8")
                options.append(f"-Dlog4j2.configurationFile={file.as_uri()}")
            # The last of two options that contradict each other counts: the operator's.
            os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*options, given]).strip()
            yield
    finally:
        os.environ.pop("SPARK_SUBMIT_OPTS", None)
        os.environ.update({name: text for name, text in before.items() if text is not None})


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


_TRACEBACK = "Traceback (most recent call last):"
_HINTS = {
    "spark.driver.maxResultSize": "increase it, and the memory of the driver: --spark-conf "
    "spark.driver.maxResultSize=4g --spark-conf spark.driver.memory=6g",
    "PYTHON_VERSION_MISMATCH": "executors need the Python version of the driver: see PYSPARK_PYTHON",
    "Cannot run program": "name an interpreter that the executors have, as PYSPARK_PYTHON or with "
    "--spark-conf spark.pyspark.python=...",
    "No module named": "the executors' Python lacks a library: see the option --python-archive of "
    "tierctl submit",
}
_UNINFORMATIVE = "An error occurred while calling "
_NO_MASTER = "All masters are unresponsive"
_LENGTH_MAX = 500


@contextmanager
def failures(master: str | None) -> Iterator[None]:
    """Raise EngineError, with Spark's own cause, for every exception of PySpark in the block."""
    try:
        yield
    except TierctlError:
        raise
    except Exception as e:
        if not is_spark(e):
            raise
        raise engine_error(e, master) from e


def is_spark(error: Exception) -> bool:
    """Return True for an exception of PySpark, Py4J or gRPC; none of these packages is imported here."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"pyspark", "py4j", "grpc"})


def engine_error(error: Exception, master: str | None) -> TierctlError:
    """Return tierctl's error for an exception of PySpark at `master`."""
    text = str(error)
    where = f" at {master}" if master else ""
    if "CANNOT_MODIFY" in text:
        return UsageError(f"--spark-conf: {cause(text)}", hint="set it where Spark is started")
    errors = last_errors()
    if any(_NO_MASTER in line for line in errors):
        return EngineError(
            f"no Spark master answers{where}", hint="check the port, and that Spark has the same version"
        )
    if is_out_of_memory():
        return EngineError(
            f"the memory of Spark's driver{where} is too small for the results",
            hint="increase it: --spark-conf spark.driver.memory=4g",
        )
    hint = next((hint for sign, hint in _HINTS.items() if sign in text), None)
    if hint is None and errors:
        hint = f"Spark's last error: {errors[-1][:_LENGTH_MAX]}"
    return EngineError(f"Spark{where} failed: {cause(text)}", hint=hint or "see -vv for Spark's own log")


def cause(text: str) -> str:
    """Return the most informative line of a failure: the exception of a Python worker, or the first line."""
    if _TRACEBACK in text:
        lines = text.rpartition(_TRACEBACK)[2].splitlines()
        raised = [line for line in lines if line and not line.startswith((" ", "\t"))]
        if raised:
            return raised[0].strip()[:_LENGTH_MAX]
    caused = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_UNINFORMATIVE)]
    first = lines[0].removeprefix(": ") if lines else "no reason given"
    return (caused[-1].removeprefix("Caused by: ") if caused else first).strip()[:_LENGTH_MAX]


_PATH = "PYTHONPATH"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_METADATA = ("METADATA", "entry_points.txt")


def pack() -> bytes:
    """Return the installed package and its entry points as a zip; the bytes depend on the content only."""
    buffer = io.BytesIO()
    _add(buffer, (*_members(files("tierctl"), "tierctl"), *_metadata()))
    return buffer.getvalue()


def _add(archive: io.BytesIO, members: Iterable[tuple[str, bytes]]) -> None:
    """Add members to a zip, without what differs between machines: times, modes and compression."""
    with zipfile.ZipFile(archive, "a") as opened:
        for name, content in sorted(members):
            opened.writestr(zipfile.ZipInfo(name, _EPOCH), content)


def _members(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        name = f"{path}/{item.name}"
        if item.is_file():
            yield name, item.read_bytes()
        elif item.name != "__pycache__":
            yield from _members(item, name)


def _metadata() -> Iterator[tuple[str, bytes]]:
    """Yield the files that importlib.metadata reads; none if tierctl is not installed."""
    try:
        installed = distribution("tierctl")
    except PackageNotFoundError:
        return
    for name in _METADATA:
        text = installed.read_text(name)
        if text is not None:
            yield f"tierctl-{__version__}.dist-info/{name}", text.encode()


def _byte_code(package: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the byte code of each module, which a Python of the same version loads instead of the source.

    Python keeps none for modules in a zip: each worker would compile what it imports, for half a second.
    """
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package.parent))
        code = SourceFileLoader(name, str(path)).get_code(name)
        if code is not None:
            # The flag says that nobody has to compare the source with its hash.
            head = MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(path.read_bytes())
            yield f"{name}c", head + marshal.dumps(_of_file(code, name))


def _of_file(code: CodeType, name: str) -> CodeType:
    """Return code whose tracebacks name another file: not the path on this machine."""
    constants = (_of_file(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(constants))


@cache
def archive() -> Path:
    """Return the zip as a file, with byte code; it is deleted when the process ends.

    Its name has the hash of the content without byte code.
    """
    content = pack()
    folder = Path(tempfile.mkdtemp(prefix="tierctl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / f"tierctl-{__version__}-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    package, buffer = files("tierctl"), io.BytesIO(content)
    if isinstance(package, Path):
        _add(buffer, _byte_code(package))
    with named(file):
        file.write_bytes(buffer.getvalue())
    return file


def is_connect(session: SparkSession) -> bool:
    """Return True for a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def ship(session: SparkSession) -> None:
    """Let the Python workers of a session import this tierctl; a repeated call changes nothing.

    Nothing is sent if spark-submit sent it: Spark refuses a second file of that name.
    """
    if archive().name in (session.conf.get("spark.submit.pyFiles", None) or ""):
        return
    file = str(archive())
    if is_connect(session):
        session.addArtifacts(file, pyfile=True)
        return
    context = session.sparkContext
    # The process on the driver that plans the batches of a stream does not look for files that were added.
    paths = context.environment.get(_PATH)
    if file not in (paths or ""):
        context.addPyFile(file)
        context.environment[_PATH] = f"{paths}{os.pathsep}{file}" if paths else file
