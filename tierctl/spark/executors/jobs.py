"""Spark jobs, watched: each can be told to stop, and its failure is an error of the tree."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from tierctl.errors import EngineError
from tierctl.spark.session.failures import engine_error, is_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 0.05
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
CANCELLED_WAIT_S = 30.0
"""How long a job that was cancelled may take to end before nobody waits for it any more."""


class JobFailedError(EngineError):
    """A job ended without a result: what its tasks did is not known."""


class JobStoppedError(JobFailedError):
    """It was told to stop."""


def collect(frame: "DataFrame", *, stopped: Callable[[], bool]) -> pa.Table:
    """The rows of `frame`; cancelled as soon as `stopped` says so. Raises JobFailedError.

    Signals are heard meanwhile, since the job runs beside this thread.
    """
    job = _begun(frame)
    try:
        return _awaited(job, partial(_cancel, frame.sparkSession), stopped)
    finally:
        if not job.done():
            _cancel(frame.sparkSession)


def _awaited(job: "Future[pa.Table]", cancel: Callable[[], None], stopped: Callable[[], bool]) -> pa.Table:
    deadline_s: float | None = None
    while not job.done():
        time.sleep(POLL_S)
        if not stopped():
            continue
        if deadline_s is None:
            deadline_s = time.monotonic() + CANCELLED_WAIT_S
        # Again and again: a job that has not begun yet can't be interrupted.
        cancel()
        if time.monotonic() > deadline_s:
            raise JobStoppedError("the job was told to stop, and did not")
    error = job.exception()
    if error is None:
        return job.result()
    if not _is_of_spark(error):
        raise error
    if stopped():
        raise JobStoppedError("the job was told to stop")
    found = engine_error(error, None)
    raise JobFailedError(found.message, hint=found.hint)


@contextmanager
def parallelism(session: "SparkSession", tasks: int) -> Iterator[None]:
    """In the block local rows are cut into so many tasks, without a shuffle."""
    before = session.conf.get(_PARALLELISM, None)
    session.conf.set(_PARALLELISM, str(max(1, tasks)))
    try:
        yield
    finally:
        session.conf.unset(_PARALLELISM)
        if before is not None:
            session.conf.set(_PARALLELISM, before)


def _begun(frame: "DataFrame") -> "Future[pa.Table]":
    job: Future[pa.Table] = Future()

    def run() -> None:
        try:
            job.set_result(frame.toArrow())
        except BaseException as e:
            job.set_exception(e)

    threading.Thread(target=run, name="spark-job", daemon=True).start()
    return job


def _cancel(session: "SparkSession") -> None:
    try:
        # All of the session's: a job that collects rows is not known by its tag (4.3).
        session.interruptAll()
    except Exception as e:
        # Whoever runs the job may be gone, and it with them.
        if not _is_of_spark(e):
            raise


def _is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Whether a job failed, or its driver or server was lost."""
    return isinstance(error, Exception) and (is_spark(error) or isinstance(error, (OSError, EOFError)))
