"""Python data sources of Spark: `remote_log` and `remote_log_metadata`.

`tierctl.spark.register` makes them known to a session.
"""
