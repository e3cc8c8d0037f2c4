"""A bench row: two programs that do the same work, and the required figures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.process import Measured

ROUNDS: Final = 3


class MissingBaselineError(Exception):
    """A baseline cannot be installed; the text says what it needs."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two programs: `run` does the work once and measures it; `prepare` runs before it."""

    name: str
    run: Callable[[], Measured]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Comparison:
    """tierctl and its baseline, which take turns. `baseline` is an error if it cannot be installed.

    `check` runs once after all rounds and raises AssertionError if the two results are not the same.
    """

    tierctl: Side
    baseline: Side | MissingBaselineError | None = None
    check: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """The required figures of a row; None sets no requirement.

    `ratio` is the minimum speed relative to the baseline (2.0: half the baseline's time); `seconds` and
    `peak_mb` (10^6 bytes) are maxima. With `ratio_or_seconds` one of the two is enough.
    """

    ratio: float | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    ratio_or_seconds: bool = False

    def __str__(self) -> str:
        time = [f"≥ {self.ratio:.2g}×" if self.ratio else "", f"≤ {self.seconds:g} s" if self.seconds else ""]
        joined = (" or " if self.ratio_or_seconds else ", ").join(filter(None, time))
        return ", ".join(filter(None, [joined, f"≤ {self.peak_mb:g} MB" if self.peak_mb else ""]))

    def missed(self, ratio: float | None, seconds: float, peak_mb: float) -> list[str]:
        """Return one text per requirement that is missed, with the difference."""
        slow = []
        if self.ratio is not None and ratio is not None and ratio < self.ratio:
            slow.append(f"{ratio:.2f}× of {self.ratio:.2g}×")
        if self.seconds is not None and seconds > self.seconds:
            slow.append(f"{seconds:.3g} s of {self.seconds:g} s")
        if self.ratio_or_seconds and len(slow) < 2:
            slow = []
        is_big = self.peak_mb is not None and peak_mb > self.peak_mb
        return slow + ([f"{peak_mb:.0f} MB of {self.peak_mb:g} MB"] if is_big else [])


Setup = Callable[[Path], Iterator[Comparison]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table. `setup` gets an empty folder, yields one Comparison, and cleans up after it.

    `limit` says what limits the row while it misses its requirement. `amount` is the number of segments, for
    rows of a cost curve. A row that is `on_request` runs only if it is named.
    """

    key: str
    work: str
    shape: str
    required: Required
    setup: Setup
    rounds: int = ROUNDS
    limit: str = ""
    amount: int | None = None
    on_request: bool = False


ROWS: dict[str, Row] = {}
"""All rows by key, in the order of the table; `tests.bench.rows.load` fills it."""


def row(
    key: str,
    *,
    work: str,
    shape: str,
    required: Required | None = None,
    rounds: int = ROUNDS,
    limit: str = "",
    amount: int | None = None,
    on_request: bool = False,
) -> Callable[[Setup], Setup]:
    """Register the decorated generator function as the setup of a row."""

    def register(setup: Setup) -> Setup:
        assert key not in ROWS, f"two rows have the key {key}"
        ROWS[key] = Row(
            key=key,
            work=work,
            shape=shape,
            required=required or Required(),
            setup=setup,
            rounds=rounds,
            limit=limit,
            amount=amount,
            on_request=on_request,
        )
        return setup

    return register


def selected(words: str) -> list[Row]:
    """Return the rows whose key begins with one of `words`, by default all that are not `on_request`."""
    named = [word for word in words.split(",") if word]
    if not named:
        return [each for each in ROWS.values() if not each.on_request]
    for word in named:
        if not any(key.startswith(word) for key in ROWS):
            raise SystemExit(f"error: no row begins with {word!r}\nhint: the rows are {', '.join(ROWS)}")
    return [each for each in ROWS.values() if any(each.key.startswith(word) for word in named)]
