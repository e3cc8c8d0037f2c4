"""`report --what-if`: the contents of the tier after a change of retention, and consumers that lose records.

Exports nothing: import `what_if` from `tierctl.commands`.
"""
