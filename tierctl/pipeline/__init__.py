"""The metadata topic as Delta tables: the driver and tasks of a run, the tables, and their warehouse.

Other packages use `run.Pipeline` and `follow`; it runs in this process or on executors.
"""
