"""`report --what-if`: what a change of retention leaves of the tier, and which consumers lose records.

Exports nothing: import `what_if` from `tierctl.commands`.
"""
