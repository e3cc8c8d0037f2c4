"""Check the columns that `.schema(...)` selects from a data source."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import UsageError


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
