"""Which columns of a data source are asked for."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import UsageError


def columns_of(asked: StructType, there: pa.Schema) -> tuple[str, ...]:
    """What .schema(...) left of the columns; UsageError for others."""
    own = {field.name: field.dataType for field in from_arrow_schema(there)}
    for field in asked:
        if own.get(field.name) != field.dataType:
            raise UsageError(
                f"no column {field.name} {field.dataType.simpleString()}",
                hint=f"there are {', '.join(f'{name} {kind.simpleString()}' for name, kind in own.items())}",
            )
    return tuple(asked.names)
