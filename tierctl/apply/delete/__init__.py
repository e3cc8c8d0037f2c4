"""Deleting from a tier: segments, whole partitions, and raising log start offsets before a sweep deletes.

Only `apply.run` uses this package.
"""
