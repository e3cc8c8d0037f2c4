"""The end of a command's process: exit code and output streams."""

import subprocess
import sys

_ENDS = """
import atexit, threading, time
from tierctl.cli import entry

class Dismantled:
    def __del__(self):
        print("dismantled")

def late():
    time.sleep(0.2)
    print("thread")

kept = Dismantled()
atexit.register(print, "handler")
threading.Thread(target=late).start()
entry.answer = lambda args: 3
entry.main()
"""


def test_a_process_waits_for_its_threads_and_handlers_and_is_not_dismantled() -> None:
    command = [sys.executable, "-c", _ENDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread\nhandler\n", "")
