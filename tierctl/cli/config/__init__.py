"""The settings in force with their origins, and checks of the files that state them.

Exports nothing: `command` has the commands, and `options` reads the values of options.
"""
