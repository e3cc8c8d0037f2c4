"""Settings in .properties files: a broker's, and those of topics as lines `<topic>.<setting>=value`."""

from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path

from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.configs import BrokerDefaults, TopicConfig
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.settings import topic
from tierctl.wire.files.properties import Property, parse_properties

_SIMILAR = 0.8
"""Names at least this similar are taken for a typing error of each other."""


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings in a .properties file; UsageError if the file can't be read or parsed."""
    return {key: value for key, value, _ in _parse(path)}


def read_topic_configs(path: Path, brokers: BrokerDefaults | None = None) -> dict[str, TopicConfig]:
    """Return the settings of each topic in the file, by topic name, as `brokers` understand them.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. UsageError for a key that ends in no known
    setting, an illegal topic name or an invalid value.
    """
    topics: dict[str, dict[str, str]] = {}
    for key, value, line in _parse(path):
        name, setting = split_topic_setting(key)
        if setting is None:
            raise _unknown(path, line, key)
        if not is_legal_topic_name(name):
            raise UsageError(
                f"{path}, line {line}: {name!r} is no topic name", hint="expected TOPIC.SETTING=VALUE"
            )
        topics.setdefault(name, {})[setting] = value.strip()
    return {name: _config(path, name, settings, brokers) for name, settings in topics.items()}


def split_topic_setting(key: str) -> tuple[str, str | None]:
    """Return the topic and the setting of a key; the setting is None if the key ends in no known one."""
    at = key.find(".")
    while at >= 0:
        if key[at + 1 :] in topic.TABLE:
            return key[:at], key[at + 1 :]
        at = key.find(".", at + 1)
    return key, None


def _unknown(path: Path, line: int, key: str) -> UsageError:
    """Return the error for a key that ends in no known setting; its hint names the nearest known one."""
    endings = [key[at + 1 :] for at, character in enumerate(key) if character == "."]
    pairs = [(ending, row.name) for ending in endings for row in topic.TABLE]
    setting, nearest = max(pairs, key=_similarity, default=(key, key))
    if not pairs or _similarity((setting, nearest)) < _SIMILAR:
        setting, nearest = key, ""
    return UsageError(
        f'{path}, line {line}: unknown topic setting "{setting}"',
        hint=f'did you mean "{nearest}"?' if nearest else "expected TOPIC.SETTING=VALUE",
    )


def _similarity(names: tuple[str, str]) -> float:
    """Return how similar two names are, from 0 to 1."""
    return SequenceMatcher(None, *names).ratio()


def _config(
    path: Path, name: str, settings: Mapping[str, str], brokers: BrokerDefaults | None
) -> TopicConfig:
    try:
        for row in topic.TABLE:
            row.given(settings)
        return TopicConfig.from_settings(settings, brokers)
    except UsageError as error:
        raise UsageError(f"{path}: topic {name}: {error.message}", hint=error.hint) from None


def _parse(path: Path) -> list[Property]:
    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except CorruptInputError as error:
        raise UsageError(f"{path}: {error.message}") from error
