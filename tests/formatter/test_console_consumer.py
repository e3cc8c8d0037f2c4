"""Kafka's own console consumer with the jar, against real brokers, beside what tierctl prints."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from tierctl.formatter import CLASS_NAME

from tests.cli.shell import environment, tierctl
from tests.formatter.conftest import TOPIC, Filled

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SETTINGS = [
    ["print.partition=true", "print.message.offset=true", "print.version=true", "sep=; ", "vs=\t"],
    ["print.partition=true", "print.all.event.value.fields=true"],
    ["format=json"],
    ["format=kafka"],
]


def stock_consumer(
    filled: Filled, jar: Path, properties: Iterable[str]
) -> "subprocess.CompletedProcess[bytes]":
    """The stock console consumer, in a locale that knows ASCII only."""
    # 4.2 gave it another name, and complains of the old one on stdout.
    flag = "--property" if filled.broker.release.version.startswith("3.") else "--formatter-property"
    named = [word for each in properties for word in (flag, each)]
    arguments = [
        *("--bootstrap-server", filled.broker.bootstrap, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(filled.count), "--timeout-ms", "60000", "--formatter", CLASS_NAME),
    ]
    command = ["java", "-Xmx384m", "-cp", f"{jar}:{filled.broker.release.jars}/*", CONSUMER]
    return subprocess.run(
        [*command, *arguments, *named],
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(LC_ALL="C"),
    )


def consumed(filled: Filled, jar: Path, properties: Iterable[str]) -> list[bytes]:
    """The lines it prints of the whole topic."""
    done = stock_consumer(filled, jar, properties)
    assert done.returncode == 0, done.stderr[-3000:]
    assert b"Processed a total of %d messages" % filled.count in done.stderr
    return done.stdout.split(b"\n")[:-1]


PARTITION = re.compile(rb'(?:^partition: ?|"metadata_partition": )(\d+)')


def by_partition(lines: Iterable[bytes]) -> dict[int, list[bytes]]:
    """The lines of each partition, in their order; between partitions there is none."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        match = PARTITION.search(line)
        assert match is not None, line
        found[int(match[1])].append(line)
    return found


def of_tierctl(filled: Filled, properties: Iterable[str]) -> list[bytes]:
    """What `tierctl format` says of the broker's own files."""
    named = [word for each in properties for word in ("--property", each)]
    ran = tierctl("format", "--metadata", filled.broker.log_dir, *named)
    assert ran.code == 7, ran.err
    return ran.out.encode().split(b"\n")[:-1]


@pytest.mark.kafka
@pytest.mark.parametrize("properties", SETTINGS, ids=lambda words: words[0])
def test_the_stock_consumer_prints_what_tierctl_prints(
    properties: list[str], filled: Filled, jar: Path
) -> None:
    expected = by_partition(of_tierctl(filled, properties))
    assert sum(map(len, expected.values())) == filled.count
    assert by_partition(consumed(filled, jar, properties)) == expected


@pytest.mark.kafka
def test_the_stock_consumer_says_what_is_wrong_with_a_property(filled: Filled, jar: Path) -> None:
    done = stock_consumer(filled, jar, ["nope=1"])
    assert done.returncode == 1
    assert b"format kip has no property nope" in done.stderr
