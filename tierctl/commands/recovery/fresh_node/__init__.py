"""Restore topics into a formatted node that was never started: `restore into`.

`restore` is the use case, `topics` finds the topics to restore, and `proof` checks that brokers can't delete
the only copy of the objects.
"""
