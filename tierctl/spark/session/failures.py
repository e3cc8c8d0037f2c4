"""Translate the exceptions of PySpark into tierctl's errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from tierctl.errors import EngineError, TierctlError, UsageError
from tierctl.spark.session import jvm

_TRACEBACK = "Traceback (most recent call last):"
_HINTS = {
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
    errors = jvm.last_errors()
    if any(_NO_MASTER in line for line in errors):
        return EngineError(
            f"no Spark master answers{where}", hint="check the port, and that Spark has the same version"
        )
    if jvm.is_out_of_memory():
        return EngineError(
            f"the memory of Spark's driver{where} is too small for the results",
            hint="increase it: --spark-conf spark.driver.memory=4g",
        )
    hint = next((hint for sign, hint in _HINTS.items() if sign in text), None)
    if hint is None and errors:
        hint = f"Spark's last error: {errors[-1][:_LENGTH_MAX]}"
    return EngineError(f"Spark{where} failed: {cause(text)}", hint=hint or "see -v for Spark's own log")


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
