"""The jar, built once per session, and brokers whose metadata topic has values of every kind."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tierctl.console_consumer.build import build

from tests.console_consumer.values import ODD, broken, hostile, tagged, unusual
from tests.support.broker import CLIENT_TIMEOUT_S, Broker, Brokers
from tests.support.kafka import OLDEST, fetch_release
from tests.support.servers import cannot
from tests.wire.metadata.samples import golden

TOPIC = "__remote_log_metadata"
PARTITIONS = 3


@pytest.fixture(scope="session")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("javac") is None:
        cannot("KAFKA", "the formatter needs a JDK: javac is not installed")
    target = tmp_path_factory.mktemp("formatter") / "formatter.jar"
    build(target, f"{fetch_release(OLDEST).jars}/*")
    return target


@dataclass(frozen=True, slots=True)
class Filled:
    """A broker without tiering, so that only the test reads or writes `TOPIC`, and the values in it."""

    broker: Broker
    partitions: Sequence[Sequence[bytes | None]]

    @property
    def count(self) -> int:
        return sum(map(len, self.partitions))


def every_kind() -> list[bytes | None]:
    return [
        *golden("kafka")[:60],
        *golden("kip405")[:40],
        *ODD,
        *list(hostile())[::7],
        *list(tagged())[:10],
        *list(unusual())[::20],
        *broken(60),
    ]


def send(broker: Broker, partitions: Sequence[Sequence[bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
    for number, values in enumerate(partitions):
        for i, value in enumerate(values):
            # Records with keys and headers, as later versions of Kafka may write them.
            more = {"key": b"k", "headers": [("h", b"v")]} if i % 5 == 0 else {}
            producer.produce(TOPIC, value=value, partition=number, **more)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


@pytest.fixture(scope="package")
def filled(session_brokers: Brokers) -> Iterator[Filled]:
    """Return a broker whose metadata topic has values of every kind."""
    broker = session_brokers.own(tiered=False, kept=True)
    broker.create_topic(TOPIC, PARTITIONS)
    values = every_kind()
    found = Filled(broker, [values[n::PARTITIONS] for n in range(PARTITIONS)])
    send(broker, found.partitions)
    yield found
    broker.stop()
