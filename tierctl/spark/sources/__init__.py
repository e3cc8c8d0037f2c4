"""Data sources of Spark in Python: `remote_log` and `remote_log_metadata`.

Other packages use `tierctl.spark.register`; the columns are `remote_log.SCHEMA` and `metadata_splits.SCHEMA`.
"""
