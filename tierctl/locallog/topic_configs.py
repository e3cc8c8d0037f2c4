"""Settings in .properties files: a broker's, and those of topics as lines `<topic>.<setting>=value`."""

import logging
from difflib import get_close_matches
from pathlib import Path

from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.configs import TopicConfig
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.settings import topic
from tierctl.wire.files.properties import Property, parse_properties

_log = logging.getLogger(__name__)


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings in a .properties file; UsageError if the file can't be read or parsed."""
    return {key: value for key, value, _ in _parse(path)}


def read_topic_configs(path: Path) -> dict[str, TopicConfig]:
    """Return the settings of each topic in the file, by topic name.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. A key that ends in no known setting is logged
    as a warning and ignored: a retention that is not stated is unlimited, so nothing is deleted. UsageError
    for an illegal topic name or an invalid value.
    """
    topics: dict[str, dict[str, str]] = {}
    for key, value, line in _parse(path):
        name, setting = split_topic_setting(key)
        if setting is None:
            _log.warning("%s", _unknown(path, line, key))
            continue
        if not is_legal_topic_name(name):
            raise UsageError(
                f"{path}, line {line}: {name!r} is no topic name", hint="expected TOPIC.SETTING=VALUE"
            )
        topics.setdefault(name, {})[setting] = value.strip()
    return {name: _config(path, name, settings) for name, settings in topics.items()}


def split_topic_setting(key: str) -> tuple[str, str | None]:
    """Return the topic and the setting of a key; the setting is None if the key ends in no known one."""
    at = key.find(".")
    while at >= 0:
        if key[at + 1 :] in topic.TABLE:
            return key[:at], key[at + 1 :]
        at = key.find(".", at + 1)
    return key, None


def _unknown(path: Path, line: int, key: str) -> str:
    """Return the warning for a key that ends in no known setting, with the nearest known ones."""
    endings = [key[at + 1 :] for at, character in enumerate(key) if character == "."]
    known = [row.name for row in topic.TABLE]
    near = [name for ending in endings for name in get_close_matches(ending, known, n=1, cutoff=0.8)]
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{path}, line {line}: {key!r} ends in no topic setting{hint}; the line is ignored"


def _config(path: Path, name: str, settings: dict[str, str]) -> TopicConfig:
    try:
        return TopicConfig.from_settings(settings)
    except UsageError as error:
        raise UsageError(f"{path}: topic {name}: {error.message}", hint=error.hint) from None


def _parse(path: Path) -> list[Property]:
    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except CorruptInputError as error:
        raise UsageError(f"{path}: {error.message}") from error
