"""Reports of a Spark session and its executors, for `doctor`.

Other packages use the functions below as attributes of this package, which then imports their module.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.spark.inspection.executor import Sources, executor_facts, reach_sources
    from tierctl.spark.inspection.writers import newest_events
else:
    __getattr__ = exports(
        __name__,
        executor=("Sources", "executor_facts", "reach_sources"),
        writers=("newest_events",),
    )

__all__ = [
    "Sources",
    "executor_facts",
    "newest_events",
    "reach_sources",
]
