"""The kinds of settings files by the option that takes each, and how the keys of a file show its kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.settings import clients, topic
from tierctl.model.settings.known import is_ambiguous, is_known, plugin_prefixes
from tierctl.model.settings.scopes import SettingSource, StatedSettings, place_of
from tierctl.row_enum import RowEnum


@dataclass(frozen=True, slots=True)
class _Row:
    """A kind of file: the contents of such a file, the option that takes it, and an example of it."""

    name: str
    option: str
    example: str
    source: SettingSource | None


class FileKind(RowEnum):
    """The table: one member per kind of file."""

    row: _Row

    PROFILES = _Row("profiles of tierctl", "--config-file", "a tierctl.toml", SettingSource.PROFILE)
    SAVED_TOPICS = _Row(
        "saved topics", "--topics-file", "the YAML file that tierctl backup-config writes", None
    )
    BROKER = _Row(
        "broker settings", "--broker-config", "a broker's server.properties", SettingSource.BROKER_FILE
    )
    CLIENT = _Row(
        "client settings", "--command-config", "a client's properties file", SettingSource.CLIENT_FILE
    )
    TOPICS = _Row(
        "topic settings",
        "--topic-configs",
        "a properties file with lines TOPIC.SETTING=VALUE",
        SettingSource.FILE,
    )

    @classmethod
    def of(cls, source: SettingSource) -> Self:
        """Return the kind of the files that state settings of this source."""
        return next(each for each in cls if each.row.source is source)


_WITH_TOPICS = frozenset({"version", "saved", "cluster_id", "not_covered", "topic_id", "partitions"})
"""Keys of which a file of saved topics has some beside `topics`."""


def require_kind(settings: StatedSettings, expected: FileKind, path: Path | str) -> None:
    """Raise UsageError if the keys in `settings`, those of the file `path`, show another kind of file.

    TOML and YAML files are read as properties here: their keys are the texts before `=` and `:`. A file whose
    kind its keys do not show is accepted.
    """
    found = _other_kind(settings, expected)
    if found is None:
        return
    kind, key = found
    raise UsageError(
        f"{place_of(settings, key) or path}: expected {expected.row.example}, found {kind}: {key}",
        hint=f"give this file with {kind.row.option}; {expected.row.option} takes {expected.row.example}",
    )


def _other_kind(settings: StatedSettings, expected: FileKind) -> tuple[FileKind, str] | None:
    """Return the kind that the keys show and a key that shows it; None if it is `expected`, or not shown."""
    table = next((key for key in settings if key.startswith(("[profiles", "profiles."))), None)
    if table is not None:
        return None if expected is FileKind.PROFILES else (FileKind.PROFILES, table)
    if "topics" in settings and not _WITH_TOPICS.isdisjoint(settings):
        return None if expected is FileKind.SAVED_TOPICS else (FileKind.SAVED_TOPICS, "topics")
    shown: dict[FileKind, list[str]] = {}
    for key, kind in _kinds_of_keys(settings):
        shown.setdefault(kind, []).append(key)
    if expected in shown or not shown:
        return None
    kind = max(shown, key=lambda each: len(shown[each]))
    return kind, shown[kind][0]


def _kinds_of_keys(settings: Mapping[str, str]) -> Iterator[tuple[str, FileKind]]:
    """Yield each key that only one kind of properties file has, and the kind."""
    plugins = plugin_prefixes(settings)
    for key in settings:
        if is_known(key, plugins):
            # Brokers and clients share names such as ssl.truststore.location, and log.retention.ms may also
            # be the retention.ms of a topic `log`.
            if key not in clients.CLIENTS and not is_ambiguous(key):
                yield key, FileKind.BROKER
        elif key in clients.CLIENTS:
            yield key, FileKind.CLIENT
        elif topic.split_key(key)[1] is not None:
            yield key, FileKind.TOPICS
