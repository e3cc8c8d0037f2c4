"""The program: the console script `tierctl`, and `python -m tierctl`."""

import signal


def main() -> None:
    """Run the command line of the process and end the process with its code."""
    # During the imports, a quarter of a second, SIGINT would print a traceback of Python. Where it is ignored
    # it stays so, as for a process in the background of a script.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tierctl.cli import entry

    entry.main()


if __name__ == "__main__":
    main()
