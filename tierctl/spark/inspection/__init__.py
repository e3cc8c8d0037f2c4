"""Reports of a Spark session and its executors, for `doctor`, `config` and `backup-config`.

Other packages use the functions below as attributes of this package, which then imports their module.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.spark.inspection.executor import Sources, executor_facts, reach_sources
    from tierctl.spark.inspection.options import hidden, refused, settings_problems
    from tierctl.spark.inspection.session import mistyped_names, session_settings
    from tierctl.spark.inspection.topic_settings import own_topic_settings
    from tierctl.spark.inspection.writers import newest_events
else:
    __getattr__ = exports(
        __name__,
        executor=("Sources", "executor_facts", "reach_sources"),
        writers=("newest_events",),
        options=("hidden", "refused", "settings_problems"),
        session=("mistyped_names", "session_settings"),
        topic_settings=("own_topic_settings",),
    )

__all__ = [
    "Sources",
    "executor_facts",
    "hidden",
    "mistyped_names",
    "newest_events",
    "own_topic_settings",
    "reach_sources",
    "refused",
    "session_settings",
    "settings_problems",
]
