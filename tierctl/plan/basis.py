"""The facts from which a plan was decided: the settings of topics, and the log starts of partitions."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tierctl.model import TopicConfig, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The settings of topics by name, and the log start offsets of partitions, from which a plan was decided.

    A topic without known settings is not in `configs`; a partition without a known log is not in
    `log_starts`.
    """

    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def settings_of(self, topics: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the known settings of `topics` as JSON values."""
        return {topic: _as_json(self.configs[topic]) for topic in sorted(topics) if topic in self.configs}

    def log_starts_of(self, partitions: Collection[TopicIdPartition]) -> dict[str, int]:
        """Return the known log starts of `partitions` by topicId:topic-partition."""
        known = self.log_starts
        return {str(partition): known[partition] for partition in sorted(partitions) if partition in known}


def _as_json(config: TopicConfig) -> dict[str, Any]:
    values = asdict(config) | {"kafka_version": str(config.kafka_version)}
    # The decision depends on the value, not on its source.
    del values["stated"]
    return {name: sorted(v) if isinstance(v, frozenset) else v for name, v in values.items()}
