"""Run a command from a small process; `python -IS launch.py OUT COMMAND...` writes its cost to OUT as JSON.

The kernel counts the memory of the process that starts a command as the command's own until its exec. This
process imports hardly anything, so that its own memory does not count.
"""

import os
import sys
import time


def main() -> None:
    """Run the command, and exit with its code."""
    output, *words = sys.argv[1:]
    began_s = time.perf_counter()
    pid = os.posix_spawnp(words[0], words, os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - began_s
    with open(output, "w") as file:  # noqa: PTH123 - pathlib is an import that shows
        file.write(f'{{"seconds": {seconds!r}, "peak_bytes": {usage.ru_maxrss * 1024}}}')
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


main()
