"""Command lines of the README and of tierctl-formatters(7) run Kafka's console consumer."""

import shlex
from pathlib import Path

import pytest

from tests.cli.shell import tierctl
from tests.console_consumer.conftest import PARTITIONS, TOPIC, Filled
from tests.console_consumer.consumers import printed, run_stock_consumer
from tests.docs.documents import COMMANDS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.matrix
def test_command_lines_run(filled: Filled, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
