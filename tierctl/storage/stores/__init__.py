"""Stores: bytes by key, on local disk, S3, HDFS and whatever pyarrow.fs reaches.

A registry by URI scheme opens them.
"""
