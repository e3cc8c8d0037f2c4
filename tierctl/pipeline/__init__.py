"""The metadata topic as Delta tables: the stream of Spark, the tasks of buckets, and the warehouse.

Other packages use `update.Pipeline`, `update.run_stream` and `update.read_warehouse`.
"""
