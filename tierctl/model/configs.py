"""Topic settings that tiering depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tierctl.model.settings import topic

UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic that decide what is copied to and deleted from its remote tier.

    A negative retention is no limit. A setting that is not stated is unlimited here, other than in Kafka: a
    limit that nobody stated deletes nothing. `remote_storage_enable` is None if it is not stated.
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    remote_storage_enable: bool | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the config that Kafka's names and values state; UsageError for an invalid value."""
        return cls(
            retention_ms=topic.RETENTION_MS.value(settings),
            retention_bytes=topic.RETENTION_BYTES.value(settings),
            remote_storage_enable=topic.REMOTE_STORAGE_ENABLE.given(settings),
            cleanup_policy=frozenset(topic.CLEANUP_POLICY.value(settings)),
        )
