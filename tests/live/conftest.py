"""A stopped broker with a history, of which each test of a loss changes a copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.commands import twin_of
from tests.live.history import Cluster, made_history
from tests.support.broker import Broker, Brokers


@pytest.fixture(scope="session")
def cluster(session_brokers: Brokers) -> Cluster:
    """Return a stopped broker and its records, which no test may change."""
    found = made_history(session_brokers.own(kept=True))
    found.broker.stop()
    return found


@pytest.fixture
def twin(cluster: Cluster, tmp_path: Path) -> Iterator[Broker]:
    """Return a copy of the broker for one test."""
    made = twin_of(cluster.broker, tmp_path / "twin")
    yield made
    made.stop()
