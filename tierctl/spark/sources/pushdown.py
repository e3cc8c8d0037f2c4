"""What Spark pushes down to a data source: the columns of `.schema(...)`, and filters as predicates."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import UsageError
from tierctl.spark.sources.predicates import Predicate

_Comparison = EqualTo | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual

_OPERATORS: dict[type[_Comparison], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def selected_columns(selected: StructType, available: pa.Schema) -> tuple[str, ...]:
    """Return the names in `selected`; raise UsageError for a column that is not in `available`."""
    types = {field.name: field.dataType for field in from_arrow_schema(available)}
    for field in selected:
        if types.get(field.name) != field.dataType:
            raise UsageError(
                f"no column {field.name} {field.dataType.simpleString()}",
                hint=f"there are {', '.join(f'{name} {t.simpleString()}' for name, t in types.items())}",
            )
    return tuple(selected.names)


class FilteredReader(DataSourceReader):
    """A reader that accepts pushed filters: `_predicates` contains them when Spark calls `partitions`."""

    _predicates: tuple[Predicate, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept every filter that a predicate expresses exactly; yield the others, which Spark applies."""
        for each in filters:
            predicate = predicate_of(each)
            if predicate is None:
                yield each
            else:
                self._predicates = (*self._predicates, predicate)


def predicate_of(pushed: Filter) -> Predicate | None:
    """Return the predicate that is true for exactly the rows that `pushed` selects, or None."""
    match pushed:
        case Not(child):
            inner = predicate_of(child)
            return None if inner is None else inner.negated()
        case IsNull((name,)):
            return Predicate(name, "is null")
        case IsNotNull((name,)):
            return Predicate(name, "is null").negated()
        case In((name,), values) if values and all(map(_is_plain, values)):
            return Predicate(name, "in", tuple(values))
        case (
            EqualTo((name,), value)
            | LessThan((name,), value)
            | LessThanOrEqual((name,), value)
            | GreaterThan((name,), value)
            | GreaterThanOrEqual((name,), value)
        ) if _is_plain(value):
            return Predicate(name, _OPERATORS[type(pushed)], value)
    return None


def _is_plain(value: Any) -> bool:
    """Return True if Arrow and Spark compare values of this type in the same way."""
    return isinstance(value, int | str | bool | datetime)
