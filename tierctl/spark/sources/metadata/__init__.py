"""The parts of the data source `remote_log_metadata`: options, splits, rows, and its stream.

Other packages use `rows.SCHEMA`, `rows.batch_of` and `splits.EventSplit`.
"""
