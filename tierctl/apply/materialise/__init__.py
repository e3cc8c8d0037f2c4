"""Carry out the steps of a materialisation: write segments of the tier as the local log of stopped brokers.

`segments` writes the files of one segment; `partition` writes a whole log and renames it to its final name.
"""

from tierctl.apply.materialise.partition import groups, materialise_partitions

__all__ = ["groups", "materialise_partitions"]
