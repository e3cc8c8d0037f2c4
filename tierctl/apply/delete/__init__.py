"""Deleting from a tier: segments, whole partitions, and raising log start offsets before a sweep deletes.

Other packages use nothing of this package directly: `apply.run` calls it.
"""
