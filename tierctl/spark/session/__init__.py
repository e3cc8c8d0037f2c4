"""The Spark session: its JVM and settings, spark-submit, and shipping the tierctl package to executors.

Other packages use `open.opened_session`, `open.open_session` and `jvm.SparkSettings`.
"""
