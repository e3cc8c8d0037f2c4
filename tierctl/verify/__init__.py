"""Verification: cross-checks of metadata, store, log directories and cluster.

Holds the table of findings, and beside it the code that detects each kind.
"""
