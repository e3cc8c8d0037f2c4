"""Who prints the metadata topic: Kafka's console consumer, and tierctl from the broker's files."""

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
    """The stock console consumer with the jar, in a locale that knows ASCII only."""
    # 4.2 gave it another name, and complains of the old one on stdout.
    flag = "--property" if filled.broker.release.number < (4, 2) else "--formatter-property"
    named = [word for each in properties for word in (flag, each)]
    where = ["--bootstrap-server", filled.broker.bootstrap, "--topic", TOPIC, "--formatter", CLASS_NAME]
    return run_stock_consumer(filled, jar, [*where, *flags, *named])


def run_stock_consumer(
    filled: Filled, jar: Path, arguments: Sequence[str]
) -> "subprocess.CompletedProcess[bytes]":
    """Kafka's kafka-console-consumer.sh with these arguments, and with the jar in its class path."""
    return subprocess.run(
        filled.broker.release.command(_CONSUMER, arguments, jar=jar),
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(LC_ALL="C"),
    )


def printed(done: "subprocess.CompletedProcess[bytes]") -> list[bytes]:
    """Its lines; it must have ended well."""
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.split(b"\n")[:-1]
    assert b"Processed a total of %d messages" % len(lines) in done.stderr
    return lines


def of_files(filled: Filled, properties: Iterable[str]) -> list[bytes]:
    """The lines tierctl prints of the broker's own files."""
    named = [word for each in properties for word in ("--property", each)]
    version = ("--kafka-version", filled.broker.release.version)
    ran = tierctl("format", "--metadata", filled.broker.log_dir, *version, *named)
    assert ran.code == 7, ran.err
    return ran.out.encode().split(b"\n")[:-1]


def by_partition(lines: Iterable[bytes]) -> dict[int, list[bytes]]:
    """The lines of each partition, in their order; between partitions there is none."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        match = _PARTITION.search(line)
        assert match is not None, line
        found[int(match[1])].append(line)
    return found
