"""Sizes, growth and expirations as tables, or everything about a tier as one page.

Exports nothing: `command` has the command.
"""
