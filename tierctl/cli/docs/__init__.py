"""Man pages and completions, generated from the commands.

`python -m tierctl.cli.docs` writes them.
"""
