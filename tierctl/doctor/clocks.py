"""Compare the clocks of the cluster and of the store with the clock of this machine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok
from tierctl.doctor.result import Outcome
from tierctl.model.times import iso_utc
from tierctl.plan.steps import CLOCK_SKEW_MS_MAX

WARN_MS = 30_000
"""A larger difference is no coincidence: synchronized clocks differ by less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A clock that was read between two readings of this machine's clock; all in milliseconds since 1970."""

    before_ms: int
    clock_ms: int
    after_ms: int

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of this machine's, at least; negative if it is behind, 0 if unclear."""
        if self.clock_ms > self.after_ms:
            return self.clock_ms - self.after_ms
        return min(self.clock_ms - self.before_ms, 0)


def read_clock(read_ms: Callable[[], int], own_ms: Callable[[], int], *, unit_ms: int = 1) -> Reading:
    """Read a clock whose time is rounded down to `unit_ms`, and `own_ms`, this machine's, around it."""
    before_ms = own_ms()
    clock_ms = read_ms()
    return Reading(before_ms=before_ms - unit_ms, clock_ms=clock_ms, after_ms=own_ms())


def check_clock(check: Check, subject: str, reading: Reading) -> Iterator[Result]:
    """Yield the result about one clock."""
    ahead_ms = reading.ahead_ms
    if abs(ahead_ms) <= WARN_MS:
        yield ok(check, subject, f"differs by less than {WARN_MS // 1000} s from this machine's clock")
        return
    side = "ahead of" if ahead_ms > 0 else "behind"
    found = (
        f"{abs(ahead_ms) / 1000:.0f} s {side} this machine's clock: "
        f"{iso_utc(reading.clock_ms)}, and {iso_utc(reading.after_ms)} here"
    )
    outcome = Outcome.PROBLEM if abs(ahead_ms) > CLOCK_SKEW_MS_MAX else Outcome.WARNING
    yield fault(check, subject, found, outcome=outcome)


def check_controller(read: Callable[[], tuple[int, int]], own_ms: Callable[[], int]) -> Iterator[Result]:
    """Yield the result about the active controller, whose id and clock `read` returns."""
    ids: list[int] = []

    def read_ms() -> int:
        controller, clock_ms = read()
        ids.append(controller)
        return clock_ms

    reading = read_clock(read_ms, own_ms)
    yield from check_clock(Check.CONTROLLER_CLOCK, f"controller {ids[0]}", reading)


def check_events(writers_ms: Mapping[int, int], now_ms: int) -> Iterator[Result]:
    """Yield the results about brokers whose last event has a time after `now_ms`.

    `writers_ms` has the time of the last event of each broker that wrote after `now_ms`.
    """
    is_good = True
    for broker_id, at_ms in sorted(writers_ms.items()):
        ahead_ms = at_ms - now_ms
        if ahead_ms > WARN_MS:
            is_good = False
            found = f"its last event is {ahead_ms / 1000:.0f} s in the future: {iso_utc(at_ms)}"
            outcome = Outcome.PROBLEM if ahead_ms > CLOCK_SKEW_MS_MAX else Outcome.WARNING
            yield fault(Check.EVENT_CLOCK, f"broker {broker_id}", found, outcome=outcome)
    if is_good:
        yield ok(Check.EVENT_CLOCK, "", "no event of the metadata topic has a time in the future")
