"""The use cases: one file per command; each takes a frozen request and returns a result.

This package is tierctl's Python API; nothing here prints or depends on a command line.
"""
