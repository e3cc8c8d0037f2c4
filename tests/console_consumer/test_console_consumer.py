"""Kafka's console consumer with the jar on real brokers, compared with the output of tierctl."""

from pathlib import Path

import pytest

from tests.console_consumer.conftest import Filled
from tests.console_consumer.consumers import by_partition, of_files, printed, stock_consumer
from tests.support.amounts import rest_in_matrix

SETTINGS = [
    ["print.partition=true", "print.message.offset=true", "print.version=true", "sep=; ", "vs=\t"],
    ["print.partition=true", "print.all.event.value.fields=true"],
    ["format=json"],
    ["format=kafka"],
]


@pytest.mark.kafka
@pytest.mark.parametrize("properties", rest_in_matrix(SETTINGS, 2), ids=lambda words: words[0])
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
