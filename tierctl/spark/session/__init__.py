"""The Spark session: its JVM and settings, spark-submit, and shipping the tierctl package to executors.

Other packages use `opened_session`, `open_session` and `SparkSettings`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tierctl.spark.session.settings import SparkSettings

if TYPE_CHECKING:
    from tierctl.spark.session.open import open_session, opened_session

__all__ = ["SparkSettings", "open_session", "opened_session"]


def __getattr__(name: str) -> Any:
    # Imported late: `tierctl --help` needs the settings only.
    if name in __all__:
        return getattr(import_module("tierctl.spark.session.open"), name)
    raise AttributeError(name)
