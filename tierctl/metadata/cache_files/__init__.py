"""Flat-file caches of every form, tierctl's own and brokers': read, check, compact, rewrite and build them.

Used by the `cache` and `offsets` commands.
"""
