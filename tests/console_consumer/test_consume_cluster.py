"""Kafka's console consumer with the jar, and `tierctl format` with its options, print the same of brokers."""

import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from tierctl.console_consumer import CLASS_NAME

from tests.cli.shell import Ran, environment, tierctl, tierctl_process
from tests.console_consumer.conftest import PARTITIONS, TOPIC, Filled, send
from tests.docs.documents import COMMANDS
from tests.support.amounts import rest_in_matrix
from tests.wire.metadata.samples import golden

WAIT_S = 60
JSON = ["format=json"]
SETTINGS = [
    ["print.partition=true", "print.message.offset=true", "print.version=true", "sep=; ", "vs=\t"],
    ["print.partition=true", "print.all.event.value.fields=true"],
    JSON,
    ["format=kafka"],
]

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_PARTITION = re.compile(rb'(?:^partition: ?|"metadata_partition": )(\d+)')

pytestmark = pytest.mark.kafka


def stock_consumer(
    filled: Filled, jar: Path, properties: Iterable[str], *flags: str
) -> "subprocess.CompletedProcess[bytes]":
    """Return the command line of Kafka's console consumer with the jar, in an ASCII locale."""
    # Kafka 4.2 renamed this option, and prints a warning about the old name on stdout.
    flag = "--property" if filled.broker.release.number < (4, 2) else "--formatter-property"
    named = [word for each in properties for word in (flag, each)]
    where = ["--bootstrap-server", filled.broker.bootstrap, "--topic", TOPIC, "--formatter", CLASS_NAME]
    return run_stock_consumer(filled, jar, [*where, *flags, *named])


def run_stock_consumer(
    filled: Filled, jar: Path, arguments: Sequence[str]
) -> "subprocess.CompletedProcess[bytes]":
    """Run kafka-console-consumer.sh with these arguments and the jar in its class path."""
    return subprocess.run(
        filled.broker.release.command(_CONSUMER, arguments, jar=jar),
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(LC_ALL="C"),
    )


def printed(done: "subprocess.CompletedProcess[bytes]") -> list[bytes]:
    """Return the printed lines; the exit code must be 0."""
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.split(b"\n")[:-1]
    assert b"Processed a total of %d messages" % len(lines) in done.stderr
    return lines


def of_files(filled: Filled, properties: Iterable[str]) -> list[bytes]:
    """Return the lines that tierctl prints for the broker's files."""
    named = [word for each in properties for word in ("--property", each)]
    version = ("--kafka-version", filled.broker.release.version)
    ran = tierctl("format", "--metadata", filled.broker.log_dir, *version, *named)
    assert ran.code == 7, ran.err
    return ran.out.encode().split(b"\n")[:-1]


def by_partition(lines: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Return the lines of each partition in their order; partitions have no order."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        match = _PARTITION.search(line)
        assert match is not None, line
        found[int(match[1])].append(line)
    return found


@pytest.mark.parametrize("properties", rest_in_matrix(SETTINGS), ids=lambda words: words[0])
def test_the_stock_consumer_prints_what_tierctl_prints(
    properties: list[str], filled: Filled, jar: Path
) -> None:
    expected = of_files(filled, properties)
    if "format=kafka" in properties:
        properties = [*properties, f"kafka.version={filled.broker.release.version}"]
    flags = ["--from-beginning", "--max-messages", str(len(expected)), "--timeout-ms", "60000"]
    got = printed(stock_consumer(filled, jar, properties, *flags))
    assert len(expected) >= filled.count
    assert by_partition(got) == by_partition(expected)


@pytest.mark.matrix
@pytest.mark.slow
def test_documented_command_lines_run(filled: Filled, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run those of the README and of tierctl-formatters(7)."""
    monkeypatch.setattr("tierctl.console_consumer.JAR", jar)
    lines = dict.fromkeys(each.line for each in COMMANDS if each.is_stock_consumer)
    exported, consumer = lines
    assert exported == "export CLASSPATH=$(tierctl format --formatter-jar)"
    assert tierctl("format", "--formatter-jar").out == f"{jar}\n"
    line = consumer.replace("broker1:9092", filled.broker.bootstrap)
    if filled.broker.release.number < (4, 2):
        line = line.replace("--formatter-property", "--property")
    program, *arguments = shlex.split(line)
    assert program == "kafka-console-consumer.sh"
    got = printed(run_stock_consumer(filled, jar, arguments))
    # Other tests of this broker may have written to its topic before.
    assert len(got) == sum(len(filled.broker.records(TOPIC, number)) for number in range(PARTITIONS))
    assert all(text.startswith(b"partition:") for text in got)


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
        pytest.param(
            ["--partition", "2", "--offset", "latest", "--timeout-ms", "1500"], marks=pytest.mark.matrix
        ),
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
