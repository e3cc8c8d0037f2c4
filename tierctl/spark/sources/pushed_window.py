"""Derive bounds on offsets and timestamps from pushed conditions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from tierctl.spark.sources.predicates import Predicate

_END = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """Inclusive bounds of the offsets and timestamps for which predicates can be true."""

    offsets: tuple[int, int]
    first_ms: int | None
    last_ms: int | None

    @classmethod
    def of(cls, predicates: Sequence[Predicate], offset_column: str) -> Self:
        """Return the bounds of `predicates` on `offset_column`, `timestamp` and `timestamp_ms`.

        Rows outside the bounds cannot satisfy the predicates; rows inside may not satisfy them either.
        """
        first_ms, last_ms = _bounds(predicates, "timestamp_ms", int)
        first_us, last_us = _bounds(predicates, "timestamp", _microseconds)
        first = max(first_ms, -(-first_us // 1000))
        last = min(last_ms, last_us // 1000)
        return cls(
            offsets=_bounds(predicates, offset_column, int),
            first_ms=first if first > -(_END // 1000) else None,
            last_ms=last if last < _END // 1000 else None,
        )


def _bounds(predicates: Iterable[Predicate], column: str, number: Callable[[Any], int]) -> tuple[int, int]:
    low, high = -_END, _END
    for each in predicates:
        if each.column != column or each.is_negated:
            continue
        match each.operator:
            case "=" | ">" | ">=":
                low = max(low, number(each.value) + (each.operator == ">"))
            case "in":
                low = max(low, min(map(number, each.value)))
        match each.operator:
            case "=" | "<" | "<=":
                high = min(high, number(each.value) - (each.operator == "<"))
            case "in":
                high = min(high, max(map(number, each.value)))
    return low, high


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
