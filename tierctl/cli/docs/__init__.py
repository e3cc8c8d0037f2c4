"""Generate man pages and completions from the commands.

`python -m tierctl.cli.docs.write` writes the files; other packages use nothing of this one.
"""
