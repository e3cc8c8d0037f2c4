"""Restore topics into a formatted node that was never started: `restore --into`.

`restore` is the use case, `topics` finds what is restored, `proof` what keeps the objects from deletion.
"""
