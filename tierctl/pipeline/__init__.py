"""The metadata topic as tables: tasks that read new events, the tables they write, and following the topic.

Runs on the local process or on Spark executors.
"""
