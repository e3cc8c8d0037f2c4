"""Topic settings when there is no cluster to ask: `<topic>.<setting>=value` lines of a .properties file."""

import logging
from pathlib import Path

from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.configs import TopicConfig
from tierctl.model.ids import is_legal_topic_name
from tierctl.wire.files.properties import Property, parse_properties

_log = logging.getLogger(__name__)

# org.apache.kafka.common.config.TopicConfig, and the replication throttles of LogConfig.
TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)


def read_properties(path: Path) -> dict[str, str]:
    """A .properties file's settings; UsageError when it can't be read or is none."""
    return {key: value for key, value, _ in _parse(path)}


def read_topic_configs(path: Path) -> dict[str, TopicConfig]:
    """The topics' settings by topic name.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. A key that ends in no setting Kafka has is
    warned about and ignored: what is not stated is unlimited, so nothing is deleted for it. UsageError for
    a name no topic can have, or a value that is none.
    """
    topics: dict[str, dict[str, str]] = {}
    for key, value, line in _parse(path):
        topic, setting = split_topic_setting(key)
        if setting is None:
            _log.warning("%s, line %d: %r ends in no topic setting and is ignored", path, line, key)
            continue
        if not is_legal_topic_name(topic):
            raise UsageError(
                f"{path}, line {line}: {topic!r} is no topic name", hint="expected TOPIC.SETTING=VALUE"
            )
        topics.setdefault(topic, {})[setting] = value.strip()
    return {topic: _config(path, topic, settings) for topic, settings in topics.items()}


def split_topic_setting(key: str) -> tuple[str, str | None]:
    """Topic and setting of a key; no setting when the key ends in none that Kafka has."""
    at = key.find(".")
    while at >= 0:
        if key[at + 1 :] in TOPIC_SETTINGS:
            return key[:at], key[at + 1 :]
        at = key.find(".", at + 1)
    return key, None


def _config(path: Path, topic: str, settings: dict[str, str]) -> TopicConfig:
    try:
        return TopicConfig.from_settings(settings)
    except UsageError as error:
        raise UsageError(f"{path}: topic {topic}: {error.message}", hint=error.hint) from None


def _parse(path: Path) -> list[Property]:
    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except CorruptInputError as error:
        raise UsageError(f"{path}: {error.message}") from error
