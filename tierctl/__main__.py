"""`python -m tierctl`."""

from tierctl.cli.entry import main

main()
