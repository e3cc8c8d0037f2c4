"""Repairs of objects in the tier: missing or damaged indexes are derived from a segment's log.

Exports nothing: import `indexes` to decide and carry out, `derive` for the bytes.
"""
