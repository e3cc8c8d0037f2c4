"""The use cases that show the state of a tier and the reasons for it; they change nothing.

Exports nothing: import `explain` from `tierctl.commands`.
"""
