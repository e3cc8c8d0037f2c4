"""The clock of a decision: how far it may differ from the times of events."""

from tierctl.errors import SafetyRefusal
from tierctl.model.times import iso_utc

CLOCK_SKEW_MS_MAX = 5 * 60 * 1000


def check_not_ahead(now_ms: int, *, clock_ms: int) -> None:
    """Raise SafetyRefusal if the time of a decision, `now_ms`, is more than five minutes ahead of the clock.

    Such a decision would delete segments that have not expired, and copies that may still be running.
    """
    if now_ms > clock_ms + CLOCK_SKEW_MS_MAX:
        raise SafetyRefusal(
            f"the plan is decided as of {iso_utc(now_ms)} (--now), {(now_ms - clock_ms) // 1000} s ahead of "
            f"the clock, which is at {iso_utc(clock_ms)}: segments that have not expired yet would be "
            "deleted",
            hint="leave --now out, or leave --apply out: a plan may look ahead",
        )
