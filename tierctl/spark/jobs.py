"""One Spark job at a time, watched: it can be told to stop, and its failure is an error of the tree."""

import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa

from tierctl.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 0.05
CANCELLED_WAIT_S = 30.0
"""How long a job that was cancelled may take to end before nobody waits for it any more."""

MESSAGE_MAX = 500


class JobFailedError(EngineError):
    """A job ended without a result: what its tasks did is not known."""


class JobStoppedError(JobFailedError):
    """It was told to stop."""


def collect(frame: "DataFrame", *, stopped: Callable[[], bool]) -> pa.Table:
    """The rows of `frame`; cancelled as soon as `stopped` says so. Raises JobFailedError.

    Signals are heard meanwhile, since the job runs beside this thread.
    """
    session = frame.sparkSession
    tag = f"tierctl-{uuid.uuid4().hex}"
    job = _begun(frame, tag)
    deadline_s: float | None = None
    while not job.done():
        time.sleep(POLL_S)
        if not stopped():
            continue
        if deadline_s is None:
            deadline_s = time.monotonic() + CANCELLED_WAIT_S
        # Again and again: a job that has not begun yet has no tag.
        _cancel(session, tag)
        if time.monotonic() > deadline_s:
            raise JobStoppedError("the job was told to stop, and did not")
    error = job.exception()
    if error is None:
        return job.result()
    if not isinstance(error, _spark_errors()):
        raise error
    if stopped():
        raise JobStoppedError("the job was told to stop")
    raise JobFailedError(f"the Spark job failed: {_brief(error)}", hint="look into the executors' logs")


def _begun(frame: "DataFrame", tag: str) -> "Future[pa.Table]":
    job: Future[pa.Table] = Future()

    def run() -> None:
        try:
            # Tags belong to the thread that has the job done.
            frame.sparkSession.addTag(tag)
            job.set_result(frame.toArrow())
        except BaseException as e:
            job.set_exception(e)

    threading.Thread(target=run, name=tag, daemon=True).start()
    return job


def _cancel(session: "SparkSession", tag: str) -> None:
    try:
        session.interruptTag(tag)
    except _spark_errors():
        # Whoever runs the job is gone, and it with them.
        return


def _spark_errors() -> tuple[type[BaseException], ...]:
    """What PySpark raises for a failed job, a lost driver or a lost server."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    errors: list[type[BaseException]] = [PySparkException, Py4JError, OSError, EOFError]
    if "grpc" in sys.modules:
        errors.append(sys.modules["grpc"].RpcError)
    return tuple(errors)


def _brief(error: BaseException) -> str:
    """The first line that says something; a Java stack trace says too much."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text[:MESSAGE_MAX]
