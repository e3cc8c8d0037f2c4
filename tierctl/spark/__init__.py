"""tierctl on Apache Spark: sessions, work on executors, data sources written in Python, and DataFrames.

Other packages use `register` and the functions of `tierctl.spark.frames`, which stand here as well:

    from tierctl.spark import FOLDED, fold_segments, metadata_events, partition_sizes

    events = metadata_events(spark, "kafka://localhost:9092", columns=FOLDED)
    partition_sizes(fold_segments(events).segments).show()

The code that makes decisions is the same as without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierctl.spark.fold_rows import FOLDED
    from tierctl.spark.frames import (
        KnownState,
        anomalies,
        daily_changes,
        fold_segments,
        metadata_events,
        partition_sizes,
        register,
    )

__all__ = [
    "FOLDED",
    "KnownState",
    "anomalies",
    "daily_changes",
    "fold_segments",
    "metadata_events",
    "partition_sizes",
    "register",
]


def __getattr__(name: str) -> Any:
    """Return a name of `frames`, which is imported only then: it needs PySpark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tierctl.spark.frames"), name)
