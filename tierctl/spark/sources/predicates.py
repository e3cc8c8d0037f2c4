"""Conditions on columns as SQL means them: null is neither true nor false."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

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
    """`column operator value`, negated or not.

    The operator is one of = < <= > >= in `is null`; the value of `in` is a tuple without None, of `is null`
    it is None.
    """

    column: str
    operator: str
    value: Any = None
    is_negated: bool = False

    def negated(self) -> "Predicate":
        """The opposite, which is not known where this is not known."""
        return replace(self, is_negated=not self.is_negated)

    def mask(self, column: pa.Array) -> pa.Array:
        """For each row true, false or, where that is not known, null."""
        if pa.types.is_integer(column.type):
            # A value may be larger than the column's own can be.
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
    """Which rows all the predicates are true of; None when there are none."""
    masks = [predicate.mask(column(predicate.column)) for predicate in predicates]
    return pc.fill_null(reduce(pc.and_kleene, masks), False) if masks else None
