"""Decide what a formatted node needs to serve the topics of a tier under their old ids; pure functions.

`new_log` has the files of one partition, `topics` the records of cluster metadata, `plan` makes the plan.
"""
