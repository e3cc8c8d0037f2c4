"""`tierctl config`: the settings in force with their origins, and checks of the files that state them.

Exports `register`. `options` also finds the command that the words of a command line name.
"""

from tierctl.cli.config.command import register

__all__ = ["register"]
