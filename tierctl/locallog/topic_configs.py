"""Settings of topics in a .properties file, as lines `<topic>.<setting>=value`."""

from difflib import SequenceMatcher
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.model.configs import BrokerDefaults, TopicConfig
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.settings import topic
from tierctl.model.settings.stated import SettingSource, StatedSettings, place_of
from tierctl.wire.files.properties import read_properties

_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""


def read_topic_configs(path: Path, brokers: BrokerDefaults | None = None) -> dict[str, TopicConfig]:
    """Return the settings of each topic in the file, by topic name, as `brokers` understand them.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. UsageError for a key that ends in no known
    setting, an illegal topic name or an invalid value.
    """
    stated = read_properties(path, SettingSource.FILE)
    topics: dict[str, dict[str, str]] = {}
    for key in stated:
        name, setting = topic.split_key(key)
        if setting is None:
            raise unknown_topic_setting(place_of(stated, key), key)
        if not is_legal_topic_name(name):
            raise UsageError(
                f"{place_of(stated, key)}: {name!r} is no topic name", hint="expected TOPIC.SETTING=VALUE"
            )
        topics.setdefault(name, {})[key] = setting
    return {name: _config(path, name, stated.only(keys).stripped(), brokers) for name, keys in topics.items()}


def unknown_topic_setting(place: str, key: str) -> UsageError:
    """Return the error for a key that ends in no known setting; its hint names the nearest known one."""
    endings = [key[at + 1 :] for at, character in enumerate(key) if character == "."]
    pairs = [(ending, row.name) for ending in endings for row in topic.TABLE]
    setting, nearest = max(pairs, key=_similarity, default=(key, key))
    if not pairs or _similarity((setting, nearest)) < _SIMILAR:
        setting, nearest = key, ""
    return UsageError(
        f'{place}: unknown topic setting "{setting}"',
        hint=f'did you mean "{nearest}"?' if nearest else "expected TOPIC.SETTING=VALUE",
    )


def _similarity(names: tuple[str, str]) -> float:
    """Return how similar two names are, from 0 to 1."""
    return SequenceMatcher(None, *names).ratio()


def _config(path: Path, name: str, settings: StatedSettings, brokers: BrokerDefaults | None) -> TopicConfig:
    for row in topic.TABLE:
        if row.name in settings:
            row.parse(settings[row.name], f"{place_of(settings, row.name, str(path))}: topic {name}")
    try:
        return TopicConfig.from_settings(settings, brokers)
    except UsageError as error:
        raise UsageError(f"{path}: topic {name}: {error.message}", hint=error.hint) from None
