"""Print the metadata topic with Kafka's console consumer, and with tierctl from the broker's files."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tierctl.console_consumer import CLASS_NAME

from tests.cli.shell import environment, tierctl
from tests.console_consumer.conftest import TOPIC, Filled

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_PARTITION = re.compile(rb'(?:^partition: ?|"metadata_partition": )(\d+)')


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
