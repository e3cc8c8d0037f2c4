"""`tierctl format --bootstrap-server` with the console consumer's options, compared with that consumer."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.shell import Ran, environment, tierctl, tierctl_process
from tests.console_consumer.conftest import PARTITIONS, TOPIC, Filled, send
from tests.console_consumer.consumers import by_partition, of_files, printed, stock_consumer
from tests.wire.metadata.samples import golden

WAIT_S = 60
JSON = ["format=json"]

pytestmark = pytest.mark.kafka


def consume(filled: Filled, *flags: object) -> Ran:
    """Start tierctl in a separate process, which is ended after the test."""
    where = ["--bootstrap-server", filled.broker.bootstrap]
    return tierctl_process("format", *where, *flags, timeout_s=WAIT_S)


def lines(ran: Ran) -> list[bytes]:
    return ran.out.encode().split(b"\n")[:-1]


def test_all_of_it_is_what_the_brokers_files_say(filled: Filled) -> None:
    properties = ["format=kip", "print.partition=true"]
    expected = of_files(filled, properties)
    named = [word for each in properties for word in ("--property", each)]
    consumed = consume(filled, "--from-beginning", "--max-messages", len(expected), *named)
    assert consumed.code == 7, consumed.err
    assert by_partition(lines(consumed)) == by_partition(expected)
    whole = tierctl("format", "--metadata", f"kafka://{filled.broker.bootstrap}", *named)
    assert (whole.code, lines(whole)) == (7, expected)


@pytest.mark.parametrize(
    "flags",
    [
        ["--partition", "1", "--offset", "4", "--max-messages", "5"],
        ["--partition", "2", "--from-beginning", "--max-messages", "7"],
        ["--partition", "2", "--offset", "latest", "--timeout-ms", "1500"],
        ["--timeout-ms", "1500"],
    ],
    ids=" ".join,
)
def test_flags_mean_what_they_mean_there(flags: Sequence[str], filled: Filled, jar: Path) -> None:
    stock = printed(stock_consumer(filled, jar, JSON, *flags))
    own = consume(filled, "--topic", TOPIC, "--formatter-property", *JSON, *flags)
    assert own.code in {0, 7}, own.err
    assert lines(own) == stock
    assert len(stock) == (0 if "--timeout-ms" in flags else int(flags[-1]))


def test_what_is_written_is_printed_as_it_comes(filled: Filled) -> None:
    """Without --from-beginning no earlier record is printed; the write is repeated until it is printed."""
    value = golden("kafka")[0]
    command = [sys.executable, "-m", "tierctl", "format", "--bootstrap-server", filled.broker.bootstrap]
    with subprocess.Popen(
        [*command, "--interval", "100ms", "--max-messages", "1", "--style", "json"],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        deadline_s = time.monotonic() + WAIT_S
        while process.poll() is None and time.monotonic() < deadline_s:
            send(filled.broker, [[value], *([[]] * (PARTITIONS - 1))])
            time.sleep(0.5)
        out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    (line,) = out.splitlines()
    assert b'"metadata_partition": 0' in line
    assert line in of_files(filled, JSON)[len(filled.partitions[0]) :]


def test_ctrl_c_ends_it(filled: Filled) -> None:
    command = [sys.executable, "-m", "tierctl", "format", "--bootstrap-server", filled.broker.bootstrap]
    with subprocess.Popen(
        [*command, "--from-beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(WAIT_S, process.kill)
        watchdog.start()
        assert process.stdout.readline().startswith(b"partition: 0, offset: 0, ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
        watchdog.cancel()
    assert (process.returncode, err) == (128 + signal.SIGINT, b"")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--partition", "9"], 10, "has no partition 9: it has 3"),
        (["--offset", "4"], 2, "--offset needs --partition"),
        (["--partition", "1", "--offset", "4", "--from-beginning"], 2, "exclude each other"),
        (["--partition", "1", "--offset", "-4"], 2, "--offset '-4'"),
        (["--input", "hex"], 2, "can't be used with --metadata or files"),
    ],
)
def test_what_makes_no_sense_is_refused(
    flags: list[str], code: int, message: str, filled: Filled, tmp_path: Path
) -> None:
    where = ["--bootstrap-server", filled.broker.bootstrap]
    ran = tierctl("format", *where, *flags, "--timeout-ms", 1000, cwd=tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
