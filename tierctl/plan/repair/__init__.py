"""Decide the repairs that `verify --plan-out` plans; pure functions.

`plan` decides all partitions, by the verdicts on `sets` of objects and the rule for `orphans`.
"""
