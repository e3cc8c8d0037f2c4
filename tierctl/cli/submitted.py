"""The script that spark-submit starts: runs the tierctl command that follows it on the line."""

import os
from contextlib import suppress
from pathlib import Path


def part_streams() -> None:
    """Give stderr back to who started spark-submit, which joins it to stdout, where the data are."""
    # Elsewhere than on Linux they stay joined.
    with suppress(OSError):
        stderr = os.open(Path("/proc", str(os.getppid()), "fd", "2"), os.O_WRONLY | os.O_APPEND)
        os.dup2(stderr, 2)
        os.close(stderr)


if __name__ == "__main__":
    from tierctl.cli.main import main

    part_streams()
    main()
