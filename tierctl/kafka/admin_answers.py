"""Convert responses of confluent_kafka's admin client to the model."""

from collections.abc import Mapping
from typing import Any

from tierctl.kafka import sdk
from tierctl.kafka.topic_admin import uuid_of
from tierctl.model.cluster import PartitionFacts, TopicFacts
from tierctl.model.settings.stated import SettingSource


def source_of(entry: Any) -> SettingSource:
    """Return the origin of a topic setting's value that a broker states (ConfigEntry.source)."""
    if entry.is_default:
        return SettingSource.DEFAULT
    is_own = entry.source == sdk.confluent_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return SettingSource.TOPIC if is_own else SettingSource.BROKER_DEFAULT


def own_values(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that were set for the topic itself."""
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.value is not None and source_of(entry) is SettingSource.TOPIC
    }


def topic_facts(found: Any) -> TopicFacts:
    """Return a described topic."""
    return TopicFacts(
        topic=found.name,
        topic_id=uuid_of(found.topic_id),
        partitions=tuple(_partition(p) for p in sorted(found.partitions, key=lambda p: p.id)),
        is_internal=found.is_internal,
    )


def _partition(found: Any) -> PartitionFacts:
    leader = found.leader
    return PartitionFacts(
        partition=found.id,
        leader=leader.id if leader is not None and leader.id >= 0 else None,
        replicas=tuple(node.id for node in found.replicas),
        in_sync=tuple(node.id for node in found.isr),
    )
