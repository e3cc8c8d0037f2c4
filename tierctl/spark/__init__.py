"""tierctl on Apache Spark: sessions, work on executors, and data sources written in Python.

Other packages use `register`. The code that makes decisions is the same as without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the formats `remote_log_metadata` and `remote_log` with a session, of Spark Connect as well.

    The Python workers need tierctl: installed there, or sent before this call. The call sets
    spark.sql.python.filterPushdown.enabled.
    """
    # Imported here, because the sources need PySpark, and `tierctl --help` must work without it.
    from tierctl.spark.sources.registration import register_sources

    register_sources(spark)
