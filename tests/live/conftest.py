"""A stopped broker with a history, of which each test of a loss changes a copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.commands import tierctl, twin_of
from tests.live.history import Cluster, Lost, made_history, tier_ends
from tests.support.broker import Broker, Brokers


@pytest.fixture(scope="session")
def cluster(session_brokers: Brokers) -> Cluster:
    """Return a stopped broker and its records, which no test may change."""
    found = made_history(session_brokers.own(kept=True))
    found.broker.stop()
    return found


@pytest.fixture(scope="session")
def lost(session_brokers: Brokers) -> Lost:
    """Return a lost cluster, of which no test may change anything; it has topics without objects, too."""
    broker = session_brokers.own(kept=True)
    broker.create_topic("unused", 2, tiered=True)
    broker.create_topic("local", 1)
    found = made_history(broker)
    ends = tier_ends(broker)
    saved = broker.folder / "topics.yaml"
    tierctl("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", saved).ok()
    broker.stop()
    return Lost(found, ends, saved)


@pytest.fixture
def twin(cluster: Cluster, tmp_path: Path) -> Iterator[Broker]:
    """Return a copy of the broker for one test."""
    made = twin_of(cluster.broker, tmp_path / "twin")
    yield made
    made.stop()
