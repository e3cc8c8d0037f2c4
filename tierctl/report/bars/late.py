"""A progress bar that appears after some time; shorter work prints and imports nothing."""

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tierctl.model.progress import Advance, Unit

DELAY_S = 0.5
"""Importing and drawing the bar takes another 0.1 s: the operator sees it within a second."""


class LateBar:
    """Count amounts of work, and after DELAY_S show them at the terminal until the block ends."""

    def __init__(self, title: str, *, unit: Unit, total: int | None) -> None:
        self._title, self._unit, self._total = title, unit, total
        self._lock = threading.Lock()
        self._done = 0
        self._is_over = False
        self._advance: Advance | None = None
        self._open = ExitStack()
        self._timer = threading.Timer(DELAY_S, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            self._open.close()

    def advance(self, amount: int) -> None:
        """Add to the amount done."""
        with self._lock:
            self._done += amount
            if self._advance is not None:
                self._advance(amount)

    def _show(self) -> None:
        from tierctl.report.bars.styles import amount_bar

        with self._lock:
            if self._is_over:
                return
            bar = amount_bar(self._title, unit=self._unit, total=self._total)
            self._advance = self._open.enter_context(bar)
            self._advance(self._done)
