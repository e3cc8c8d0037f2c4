"""Decide which sets of objects are published again when their metadata are lost; pure functions.

`partition` decides one partition, by the `lineage` of its log, the `choice` of sets and the `log_start`.
"""
