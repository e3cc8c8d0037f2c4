"""tierctl on Apache Spark: data sources, bulk work on executors, the pipeline of tables.

Everything that decides is the same code as without Spark; here it is cut into tasks.
"""
