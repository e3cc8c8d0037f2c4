"""How the metadata topic is reached and made."""

from dataclasses import dataclass
from typing import Self

from tierctl.kafka.client_settings import ClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """How the metadata topic is made (remote.log.metadata.topic.*); KIP-405's and Kafka's defaults."""

    num_partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1
    min_isr: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataClients:
    """Settings of the three kinds of client, which a broker's server.properties may tell apart."""

    admin: ClientSettings
    producer: ClientSettings
    consumer: ClientSettings

    @classmethod
    def same(cls, settings: ClientSettings) -> Self:
        """All alike."""
        return cls(admin=settings, producer=settings, consumer=settings)
