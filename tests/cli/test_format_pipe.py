"""`tierctl format` reads from kcat, whose output may never end, and writes to programs that stop reading."""

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.cli.shell import environment
from tests.conftest import vectors

WAIT_S = 30


@contextmanager
def format_of(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process whose stdin stays open until the test closes it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", "format", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        # A process that waits for another line then reads the end of stdin.
        watchdog = threading.Timer(WAIT_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def send(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def lines(process: "subprocess.Popen[bytes]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().decode() for _ in range(count)]


def values() -> list[bytes]:
    return [bytes.fromhex(vector["hex"]) for vector in vectors("serde-kafka.jsonl")]


def frame(value: bytes | None) -> bytes:
    """Return a value in the form that `kcat -f '%R%s'` writes."""
    return struct.pack(">i", -1 if value is None else len(value)) + (value or b"")


def as_hex(value: bytes) -> bytes:
    return value.hex().encode() + b"\n"


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("framed", list(map(frame, values()[:3]))), ("hex", list(map(as_hex, values()[:3])))],
)
def test_values_are_printed_as_they_come(kind: str, sent: Sequence[bytes]) -> None:
    with format_of("--input", kind) as process:
        for number, data in enumerate(sent):
            # The end of a value may arrive later than its start.
            send(process, data[:7])
            send(process, data[7:])
            assert lines(process, 1)[0].startswith(f"partition: 0, offset: {number}, value: Remote")
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (0, b"")
    assert err.startswith(b"format: 3 records (")


def test_a_value_that_is_cut_by_the_end_has_its_line() -> None:
    with format_of("--input", "framed") as process:
        out, err = process.communicate(frame(values()[0]) + frame(None) + frame(b"123456")[:-2], WAIT_S)
    assert process.returncode == 7
    assert [line.split(b",")[1:] for line in out.splitlines()][1:] == [
        [b" offset: 1", b" value: null"],
        [b" offset: 2", b" error: torn frame: expected 6 bytes", b" found 4: 31323334", b" bytes: "],
    ]
    assert err.startswith(b"warning: 1 record could not be read\nformat: ")


def test_max_messages_ends_it_though_the_pipe_stays_open() -> None:
    with format_of("--input", "framed", "--limit", "2") as process:
        send(process, b"".join(map(frame, values()[:5])))
        assert len(lines(process, 2)) == 2
        assert process.wait(timeout=WAIT_S) == 0


def test_ctrl_c_ends_it() -> None:
    with format_of("--input", "framed") as process:
        send(process, frame(values()[0]))
        lines(process, 1)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=WAIT_S) == 128 + signal.SIGINT
