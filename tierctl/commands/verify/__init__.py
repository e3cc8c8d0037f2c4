"""Verify metadata, objects and logs: `command` reports the findings, `repairs` decides what mends them.

Exports nothing: import from the module.
"""
