"""Topic settings that tiering depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tierctl.errors import UsageError

UNLIMITED = -1
AS_TOTAL = -2


def _number(settings: Mapping[str, str], key: str, default: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{key}={text!r} is not a whole number") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic's settings (org.apache.kafka.common.config.TopicConfig); -1 is no limit.

    `local_retention_*` of -2 means "as retention.*" (KIP-405). What the settings don't say is unlimited
    here: a limit nobody stated never deletes.
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    local_retention_ms: int = AS_TOTAL
    local_retention_bytes: int = AS_TOTAL
    segment_bytes: int = 1 << 30
    remote_storage_enable: bool | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})

    @property
    def effective_local_retention_ms(self) -> int:
        """How long rolled segments that are in the tier stay on the broker too; -1 is forever."""
        return self.retention_ms if self.local_retention_ms == AS_TOTAL else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """How many bytes of them stay on the broker too; -1 is all."""
        return self.retention_bytes if self.local_retention_bytes == AS_TOTAL else self.local_retention_bytes

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """From Kafka's names and values; UsageError for a value that is no number."""
        enabled = settings.get("remote.storage.enable")
        policy = settings.get("cleanup.policy", "delete")
        return cls(
            retention_ms=_number(settings, "retention.ms", UNLIMITED),
            retention_bytes=_number(settings, "retention.bytes", UNLIMITED),
            local_retention_ms=_number(settings, "local.retention.ms", AS_TOTAL),
            local_retention_bytes=_number(settings, "local.retention.bytes", AS_TOTAL),
            segment_bytes=_number(settings, "segment.bytes", 1 << 30),
            remote_storage_enable=None if enabled is None else enabled.strip().lower() == "true",
            cleanup_policy=frozenset(part.strip() for part in policy.split(",") if part.strip()),
        )
