"""Decisions of `sweep`: which segments retention deletes from the tier, partition by partition.

Exports nothing: import `plan_retention` from `sweep`.
"""
