"""Read, check, compact, rewrite and build cache files of tierctl and of brokers.

Used by the commands `cache` and `offsets`; each module exports its functions itself.
"""
