"""Which topics `copy` may copy: tiering is opt-in for each topic (UnifiedLog.isRemoteLogEnabled)."""

from collections.abc import Collection, Mapping

from tierctl.errors import SafetyRefusal
from tierctl.model import TopicConfig
from tierctl.model.selection import names_text
from tierctl.model.settings import topic
from tierctl.plan.preconditions import why_never_tiered
from tierctl.plan.reasons import Reason, ReasonKind

_ENABLED = f"{topic.REMOTE_STORAGE_ENABLE.name}=true"
_HINT = (
    f"state TOPIC.{_ENABLED} in --topic-configs (offline), set it on the cluster's topic, or name the topic "
    "with --topic and add --assume-enabled"
)
NOT_ENABLED = Reason(
    ReasonKind.NOT_TIERED, detail=f"{_ENABLED} is not among the topic's settings: tiering is opt-in"
)


def why_not_enabled(
    name: str, configs: Mapping[str, TopicConfig], assumed: Collection[str] = ()
) -> Reason | None:
    """Return why brokers would not copy the topic `name`; None if they would.

    `assumed` are the topics that count as enabled if `configs` does not state remote.storage.enable. It does
    not override a stated `false`, nor a cleanup policy that Kafka refuses.
    """
    reason = why_never_tiered(name, configs)
    if reason or name in assumed:
        return reason
    config = configs.get(name)
    return None if config is not None and config.remote_storage_enable else NOT_ENABLED


def require_enabled(
    topics: Collection[str],
    configs: Mapping[str, TopicConfig],
    *,
    named: Collection[str] = (),
    assumed: Collection[str] = (),
) -> None:
    """Raise SafetyRefusal if a topic in `named` may not be copied, or if none of `topics` is enabled.

    `topics` are the selected topics that have a log. Without `named`, topics that all state
    remote.storage.enable=false are no error: there is nothing to copy.
    """
    reasons = {name: why_not_enabled(name, configs, assumed) for name in sorted(topics)}
    refused = {name: reason for name, reason in reasons.items() if reason}
    for name in sorted(set(named) & refused.keys()):
        raise SafetyRefusal(f"topic {name} is not copied: {refused[name]}", hint=_hint(refused[name]))
    stated = [config for name in topics if (config := configs.get(name)) is not None]
    are_all_off = len(stated) == len(topics) and all(c.remote_storage_enable is False for c in stated)
    if refused and len(refused) == len(topics) and not are_all_off:
        reason = NOT_ENABLED if NOT_ENABLED in refused.values() else next(iter(refused.values()))
        raise SafetyRefusal(
            f"none of the {len(topics)} selected topics is copied ({names_text(refused)}): {reason}",
            hint=_hint(reason),
        )


def _hint(reason: str) -> str | None:
    return _HINT if reason == NOT_ENABLED else None
