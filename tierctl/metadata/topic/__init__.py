"""The metadata topic `__remote_log_metadata` at any location: on disk, in a store, on a cluster.

Other packages open it with `open_topic`.
"""
