"""Metrics of a run as a whole: its end, exit code and duration."""

from dataclasses import dataclass

from tierctl import __version__
from tierctl.errors import ExitCode
from tierctl.report.metrics import families
from tierctl.report.metrics.meter import Meter
from tierctl.storage.throttle import Direction, Throttle

_SUCCESS = (ExitCode.OK, ExitCode.PLAN_PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that ended.

    `error` is the class of the error that ended it. `is_applied` is whether it had --apply. `end_s` is in
    seconds since 1970.
    """

    command: str
    exit_code: int
    error: str | None
    is_applied: bool
    end_s: float
    seconds: float


def measure_throttle(meter: Meter, throttle: Throttle) -> None:
    """Measure the waits of a run for its limits; without a limit, an earlier run's values stay."""
    gauges = {
        Direction.COPY: (families.COPY_THROTTLE_AVG, families.COPY_THROTTLE_MAX),
        Direction.FETCH: (families.FETCH_THROTTLE_AVG, families.FETCH_THROTTLE_MAX),
    }
    for direction, times in throttle.times.items():
        average, maximum = gauges[direction]
        meter.set(average, {(): times.sum_s * 1000 / max(times.count, 1)})
        meter.set(maximum, {(): times.max_s * 1000})


def measure_run(meter: Meter, run: Run) -> None:
    """Measure `run`; after a failure, the time of the last success stays as an earlier run wrote it."""
    command = run.command
    meter.set_one(families.LAST_RUN, command, run.end_s)
    meter.set_one(families.LAST_DURATION, command, run.seconds)
    meter.set_one(families.LAST_EXIT_CODE, command, run.exit_code)
    if run.exit_code in _SUCCESS:
        meter.set_one(families.LAST_SUCCESS, command, run.end_s)
        if run.is_applied:
            meter.set_one(families.LAST_APPLY, command, run.end_s)
    meter.count(families.RUNS, command, str(run.exit_code))
    if run.error is not None:
        meter.count(families.ERRORS, command, run.error)
    meter.set(families.BUILD_INFO, {(__version__,): 1})
