"""How options get their values: the command line, then the environment, then a profile of tierctl.toml.

Other modules take `RunSettings`, which holds them for one run, from `tierctl.cli.settings.run`.
"""
