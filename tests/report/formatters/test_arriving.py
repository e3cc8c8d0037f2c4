"""A signal ends the wait for bytes, whenever it comes."""

import io
import subprocess
import sys

import pytest
from tierctl.report.formatters.sources import arriving_bytes

WAIT_S = 20

# `fileno` sends the signal and returns 0, the descriptor of stdin. No Python code runs between the signal and
# the system call, so that Python does not handle the signal before the call.
_SIGNAL_BEFORE_THE_CALL = """
import ctypes, functools, io, signal
from tierctl.report.formatters.sources import arriving_bytes

class Late(io.BufferedReader):
    fileno = functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGINT)

try:
    next(arriving_bytes(Late(io.FileIO(0))))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_just_before_the_wait_ends_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SIGNAL_BEFORE_THE_CALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            # `communicate` would close stdin, which ends the wait, too.
            assert process.wait(WAIT_S) == 0
            assert process.stdout is not None
            assert process.stdout.read() == b"interrupted\n"
        finally:
            process.kill()


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_all_bytes_of_a_stream_without_a_descriptor(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert b"".join(arriving_bytes(io.BytesIO(data[:size]))) == data[:size]
