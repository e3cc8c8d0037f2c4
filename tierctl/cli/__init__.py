"""The command line: its commands declare options, call a use case and print its result.

`entry.main` is the entry point; no other package imports this one.
"""
