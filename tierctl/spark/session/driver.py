"""The script that spark-submit runs as the driver: run the tierctl command in the script's arguments."""

import os
from contextlib import suppress
from pathlib import Path
from runpy import run_module


def restore_stderr() -> None:
    """Write stderr to the stderr of the process that started spark-submit.

    spark-submit would join it to stdout, which has the data.
    """
    # On systems without /proc, stderr stays joined to stdout.
    with suppress(OSError):
        stderr = os.open(Path("/proc", str(os.getppid()), "fd", "2"), os.O_WRONLY | os.O_APPEND)
        os.dup2(stderr, 2)
        os.close(stderr)


if __name__ == "__main__":
    restore_stderr()
    run_module("tierctl", run_name="__main__")
