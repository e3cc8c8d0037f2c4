"""Makes tierctl's data sources known to a session."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(spark: "SparkSession") -> None:
    """See tierctl.spark.register."""
    from tierctl.spark.sources.remote_log import RemoteLogSource
    from tierctl.spark.sources.remote_log_metadata import RemoteLogMetadataSource

    # Off by default, and Spark refuses a source that takes filters while it is.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (RemoteLogMetadataSource, RemoteLogSource):
        spark.dataSource.register(source)
