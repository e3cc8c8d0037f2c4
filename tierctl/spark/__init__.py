"""tierctl on Apache Spark: data sources, bulk work on executors, the pipeline of tables.

Everything that decides is the same code as without Spark; here it is cut into tasks.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make the formats `remote_log_metadata` and `remote_log` known to a session, on Spark Connect as well.

    The workers' Python must have tierctl: installed, or sent before this is called. Switches on
    spark.sql.python.filterPushdown.enabled.
    """
    from tierctl.spark.sources.registration import register_sources

    register_sources(spark)
