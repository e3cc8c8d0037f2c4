"""Verification: compares metadata, store, log directories and cluster; `findings` is its table of findings.

Exports nothing: import `cross_check` for a whole run, `partition` for one partition's checks.
"""
