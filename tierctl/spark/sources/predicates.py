"""Conditions on columns with the semantics of SQL: a comparison with null is neither true nor false."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
