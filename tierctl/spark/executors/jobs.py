"""Run one Spark job: it can be cancelled, and its failure is one of tierctl's errors."""

from __future__ import annotations

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
"""How long to wait for the end of a cancelled job."""


class JobFailedError(EngineError):
    """A job ended without a result: the effects of its tasks are unknown."""


class JobStoppedError(JobFailedError):
    """The job was cancelled, because the run was told to stop."""


def collect(frame: DataFrame, *, stopped: Callable[[], bool]) -> pa.Table:
    """Return the rows of `frame`; cancel the job as soon as `stopped()` is True. Raise JobFailedError.

    The job runs on another thread, so that this thread receives signals.
    """
    job = _started(frame)
    try:
        return _awaited(job, partial(_cancel, frame.sparkSession), stopped)
    finally:
        if not job.done():
            _cancel(frame.sparkSession)


def _awaited(job: Future[pa.Table], cancel: Callable[[], None], stopped: Callable[[], bool]) -> pa.Table:
    deadline_s: float | None = None
    while not job.done():
        time.sleep(POLL_S)
        if not stopped():
            continue
        if deadline_s is None:
            deadline_s = time.monotonic() + CANCELLED_WAIT_S
        # Cancel in each round, because Spark can't cancel a job that has not begun yet.
        cancel()
        if time.monotonic() > deadline_s:
            raise JobStoppedError(f"the job was cancelled and has not ended within {CANCELLED_WAIT_S:.0f} s")
    error = job.exception()
    if error is None:
        return job.result()
    if not _is_of_spark(error):
        raise error
    if stopped():
        raise JobStoppedError("the job was cancelled, because the run was told to stop")
    found = engine_error(error, None)
    raise JobFailedError(found.message, hint=found.hint)


@contextmanager
def parallelism(session: SparkSession, tasks: int) -> Iterator[None]:
    """Let Spark split local rows into `tasks` tasks during the block, without a shuffle.

    Jobs that run side by side must have one task each: the setting belongs to the session.
    """
    if tasks <= 1:
        # A job with one row has one task, whatever the setting is.
        yield
        return
    before = session.conf.get(_PARALLELISM, None)
    session.conf.set(_PARALLELISM, str(tasks))
    try:
        yield
    finally:
        session.conf.unset(_PARALLELISM)
        if before is not None:
            session.conf.set(_PARALLELISM, before)


def _started(frame: DataFrame) -> Future[pa.Table]:
    job: Future[pa.Table] = Future()

    def run() -> None:
        try:
            job.set_result(frame.toArrow())
        except BaseException as e:
            job.set_exception(e)

    threading.Thread(target=run, name="spark-job", daemon=True).start()
    return job


def _cancel(session: SparkSession) -> None:
    try:
        # All jobs of the session, because Spark 4.3 does not tag jobs that collect rows.
        session.interruptAll()
    except Exception as e:
        # The driver or the server may have ended, and the job with it.
        if not _is_of_spark(e):
            raise


def _is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Return True if the job failed, or if its driver or server was lost."""
    return isinstance(error, Exception) and (is_spark(error) or isinstance(error, (OSError, EOFError)))
