"""Which log start is published where brokers may have raised it: the one that the operator asked for.

`tierctl.state.log_start` finds the log start, and whether a broker may have raised it.
"""

from dataclasses import dataclass
from typing import Self

from tierctl.errors import UsageError
from tierctl.state.log_start import LogStart

TIER, DISK = "tier", "disk"


@dataclass(frozen=True, slots=True)
class AskedLogStart:
    """The log start to use where brokers raised it: `tier`, `disk`, or an offset."""

    choice: str | int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of --log-start; raise UsageError for an unknown word or a negative offset."""
        if text in {TIER, DISK}:
            return cls(text)
        if text.isascii() and text.isdigit() and int(text) < 1 << 63:
            return cls(int(text))
        raise UsageError(
            f"--log-start {text}: expected {TIER}, {DISK} or an offset",
            hint=f"{TIER}: as the newest segment's objects say; {DISK}: as the checkpoint files say",
        )


def decided_start(found: LogStart, asked: AskedLogStart | None) -> int | None:
    """Return the log start with which to publish; None if it may be damaged and no choice was given.

    An offset that was asked for must be possible (`why_impossible`).
    """
    if found.raised_from is None:
        return found.offset
    if asked is None:
        return None
    if asked.choice == TIER:
        return found.raised_from
    return asked.choice if isinstance(asked.choice, int) else found.offset


def why_impossible(found: LogStart, asked: AskedLogStart | None) -> str | None:
    """Return why a log can't start at the offset that was asked for; None if it can, or none was asked."""
    if asked is None or not isinstance(asked.choice, int) or asked.choice == found.offset:
        return None
    wanted = f"--log-start {asked.choice} is not possible"
    if found.raised_from is None:
        return (
            f"{wanted}: the log start is {found.offset}, and no complete segments that join it are below it, "
            "so nothing was damaged and it stays"
        )
    if asked.choice < found.raised_from:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the complete "
            f"segments that join the log begin at {found.raised_from}"
        )
    if asked.choice > found.offset:
        return (
            f"{wanted}: expected an offset from {found.raised_from} to {found.offset}, because the log start "
            f"is {found.offset}; DeleteRecords raises it once the brokers run"
        )
    return None
