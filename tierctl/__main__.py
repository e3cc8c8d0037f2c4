"""`python -m tierctl`."""

from tierctl.cli.main import main

main()
