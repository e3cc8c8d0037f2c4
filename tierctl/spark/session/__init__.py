"""The Spark session: its JVM and settings, spark-submit, and shipping the tierctl package to executors.

Other packages use `opened_session`, `open_session` and `SparkSettings`.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.spark.session.open import open_session, opened_session
    from tierctl.spark.session.settings import SparkSettings
else:
    __getattr__ = exports(__name__, open=("open_session", "opened_session"), settings=("SparkSettings",))

__all__ = ["SparkSettings", "open_session", "opened_session"]
