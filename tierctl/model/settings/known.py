"""Names of all settings that a broker's server.properties may have, and the nearest one for a typing error.

The names are those of KafkaConfig, RemoteLogManagerConfig and StandardAuthorizer in Kafka 3.9, 4.3 and 4.4.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from tierctl.model.settings import broker, metadata_manager, topic

_PREFIXES = (
    "listener.name.",
    "config.providers.",
    "client.quota.callback.",
    "kafka.metrics.",
    "kafka.csv.metrics.",
    metadata_manager.COMMON_CLIENT_PREFIX,
    metadata_manager.PRODUCER_PREFIX,
    metadata_manager.CONSUMER_PREFIX,
    metadata_manager.ADMIN_PREFIX,
)
"""Prefixes of settings of listeners, plugins and clients, which may have any name."""


@cache
def _names() -> frozenset[str]:
    """Return the names of the registry, and those in known.txt, which do not concern tiering."""
    others = Path(__file__).with_name("known.txt").read_text(encoding="ascii").split()
    tables = (broker.TABLE, metadata_manager.TABLE)
    return frozenset(others).union(row.name for table in tables for row in table)


def plugin_prefixes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefixes of the settings of both remote plugins: those in `settings`, and the defaults."""
    return tuple(
        prefix
        for row in (broker.STORAGE_MANAGER_PREFIX, broker.METADATA_MANAGER_PREFIX)
        for prefix in (row.text(settings), row.kafka_default)
        if prefix
    )


def is_known(name: str, plugins: tuple[str, ...]) -> bool:
    """Return whether a broker's file may have the setting; `plugins` are the prefixes of its plugins."""
    return name in _names() or name.startswith((*_PREFIXES, *plugins))


def is_ambiguous(name: str) -> bool:
    """Return whether a broker's setting is also the key of a topic's setting: log.retention.ms, topic log."""
    return name in _names() and topic.split_key(name)[1] is not None


def unknown_names(settings: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield each name in a broker's `settings` that no Kafka from 3.9 to 4.4 knows, with the nearest known.

    Names with the prefix of one of the two remote plugins are never unknown, because plugins may have any
    settings.
    """
    plugins = plugin_prefixes(settings)
    for name in settings:
        if not is_known(name, plugins):
            yield name, next(iter(get_close_matches(name, _names(), n=1)), None)


def require_bounds(settings: Mapping[str, str], source: str) -> None:
    """Raise UsageError, with `source`, for a value in a broker's `settings` that Kafka refuses."""
    for row in broker.TABLE:
        row.given(settings, source)
