"""Topics on clusters, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from tierctl.kafka.client_settings import ClientSettings
from tierctl.metadata.server_properties import MetadataClients, MetadataTopicSettings
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.cluster_topic import ClusterTopic

from tests.kafka.cluster_topics import Open
from tests.support.broker import Broker


@pytest.fixture
def on(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Return a function that opens a topic of a broker for writing until the end of the test."""
    opened: list[ClusterTopic] = []

    def open_topic(
        broker: Broker, topic: str = METADATA_TOPIC, *, make: MetadataTopicSettings | None = None, **more: int
    ) -> ClusterTopic:
        settings = ClientSettings(bootstrap_servers=(broker.bootstrap,), **more)
        found = ClusterTopic(MetadataClients.same(settings), topic=topic, writable=True, create=make)
        opened.append(found)
        return found

    yield open_topic
    for topic in opened:
        topic.close()


@pytest.fixture(scope="module")
def tiered(broker: Broker) -> Broker:
    """Return the shared broker, which has tiered segments."""
    if "tiered-a" not in broker.admin.list_topics(timeout=10).topics:
        broker.create_topic("tiered-a", 2, tiered=True)
        broker.produce("tiered-a", 3500)
        broker.produce("tiered-a", 2500, partition=1)
        broker.await_idle()
    return broker
