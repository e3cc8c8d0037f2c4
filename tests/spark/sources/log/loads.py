"""The tasks and rows of a load of `remote_log`, without Spark."""

from typing import Any

from tierctl.spark.sources.load_options import LogOptions
from tierctl.spark.sources.log_plan import LogTask, plan_tasks
from tierctl.spark.sources.metadata_splits import Predicate
from tierctl.spark.sources.remote_log import rows_of, schema_of

Options = dict[str, str]
Row = dict[str, Any]


def tasks_of(options: Options, *predicates: Predicate) -> list[LogTask]:
    """Return the tasks of a load with all columns."""
    found = LogOptions.of(options)
    return plan_tasks(found, predicates, tuple(schema_of(found.mode).names))


def rows(options: Options, *predicates: Predicate) -> list[Row]:
    """Return the rows that Spark would have."""
    return [
        row for task in tasks_of(options, *predicates) for batch in rows_of(task) for row in batch.to_pylist()
    ]
