"""Register tierctl's data sources with a Spark session."""

from pyspark.sql import SparkSession

from tierctl.spark.session.jvm import ship
from tierctl.spark.sources.remote_log import RemoteLogSource
from tierctl.spark.sources.remote_log_metadata import RemoteLogMetadataSource


def ship_and_register(spark: SparkSession) -> None:
    """Send this package to the session's workers, and register the data sources."""
    ship(spark)
    register_sources(spark)


def register_sources(spark: SparkSession) -> None:
    """Register the data sources; see `tierctl.spark.register`."""
    # The setting is off by default, and Spark refuses a source that accepts filters while it is off.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (RemoteLogMetadataSource, RemoteLogSource):
        spark.dataSource.register(source)
