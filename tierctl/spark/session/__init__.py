"""A Spark session: its JVM and settings, spark-submit, and shipping the tierctl package to executors.

Other packages use `opened_session` and `SparkSettings`.
"""
