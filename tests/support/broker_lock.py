"""The lock of a running broker, taken as Java does: a POSIX write lock on the whole of `.lock`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
_TRY = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""


@contextmanager
def running_broker(log_dir: Path) -> Iterator[None]:
    """Hold the lock of a log directory in another process, as a broker does."""
    (log_dir / ".lock").touch()
    command = [sys.executable, "-c", _HOLD, str(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            holder.communicate()


def can_start(log_dir: Path) -> bool:
    """Return whether a broker could take the lock of a log directory now."""
    code = subprocess.run([sys.executable, "-c", _TRY, str(log_dir / ".lock")], check=False).returncode
    assert code in {0, 3}
    return code == 0
