"""`tierctl report`: sizes, growth and expirations as tables, or everything about a tier as one page.

Exports `register`.
"""

from tierctl.cli.report.command import register

__all__ = ["register"]
