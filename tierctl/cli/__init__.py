"""The command line: one file per command, which declares options, calls a use case and prints its result.

`entry.main` is the entry point; no other package imports this one.
"""
