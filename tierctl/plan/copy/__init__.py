"""Decisions of `copy`: which segments go from local logs, or from another tier, to the tier.

Exports nothing: import `plan_copy` from `from_logs`, `plan_copy_from_tier` from `from_tier`.
"""
