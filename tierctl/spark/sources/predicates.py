"""Filters that Spark pushes down to the data sources, and the columns and windows that they leave to read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """The condition `column operator value`, or its negation.

    `operator` is one of = < <= > >= in `is null`. `value` is a tuple without None for `in`, and None for
    `is null`.
    """

    column: str
    operator: str
    value: Any = None
    is_negated: bool = False

    def negated(self) -> Self:
        """Return the negation; it is unknown (null) for the same rows."""
        return replace(self, is_negated=not self.is_negated)

    def mask(self, column: pa.Array) -> pa.Array:
        """Return true, false or null (unknown) for each row of `column`."""
        if pa.types.is_integer(column.type):
            # The value may exceed the range of the column's type.
            column = column.cast(pa.int64())
        if self.operator == "is null":
            found = pc.is_null(column)
        elif self.operator == "in":
            among = pc.is_in(column, value_set=pa.array(self.value, column.type))
            found = pc.if_else(pc.is_valid(column), among, None)
        else:
            found = _COMPARE[self.operator](column, pa.scalar(self.value, column.type))
        return pc.invert(found) if self.is_negated else found


def mask_of(predicates: Sequence[Predicate], column: Callable[[str], pa.Array]) -> pa.Array | None:
    """Return a mask of the rows for which all predicates are true; None without predicates.

    `column` returns the column of a name.
    """
    masks = [predicate.mask(column(predicate.column)) for predicate in predicates]
    return pc.fill_null(reduce(pc.and_kleene, masks), False) if masks else None


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
