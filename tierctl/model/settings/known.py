"""Names of all settings of a broker and the nearest one for a typing error; problems in files of settings,
with their positions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.model.choices import Severity
from tierctl.model.settings import broker, clients, topic
from tierctl.row_enum import RowEnum

# Names of all settings that a broker's server.properties may have, and the nearest one for a typing error.
#
# The names are those of KafkaConfig, RemoteLogManagerConfig and StandardAuthorizer in Kafka 3.9, 4.3 and 4.4.

_PREFIXES = (
    "listener.name.",
    "config.providers.",
    "client.quota.callback.",
    "kafka.metrics.",
    "kafka.csv.metrics.",
    clients.COMMON_CLIENT_PREFIX,
    clients.PRODUCER_PREFIX,
    clients.CONSUMER_PREFIX,
    clients.ADMIN_PREFIX,
)
"""Prefixes of settings of listeners, plugins and clients, which may have any name."""


@cache
def _names() -> frozenset[str]:
    """Return the names of the registry, and those in known.txt, which do not concern tiering."""
    others = files(__package__).joinpath("known.txt").read_text(encoding="ascii").split()
    tables = (broker.TABLE, clients.METADATA_MANAGERS)
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


# Problems in files of settings: the table of kinds, and one problem with its position.
#
# `tierctl doctor` reports every problem; another command ends with the first one that concerns it.


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    severity: Severity
    meaning: str


class ProblemKind(RowEnum):
    """The table: one member per kind of problem, with the severity of its worst case."""

    row: _Row

    UNREADABLE = _Row("unreadable", Severity.ERROR, "The file can't be read: nothing in it was checked.")
    MALFORMED = _Row("malformed", Severity.ERROR, "A line does not follow the format of the file.")
    UNKNOWN_SETTING = _Row(
        "unknown_setting",
        Severity.ERROR,
        "No setting has this name; a warning in a broker's file, which brokers read nevertheless.",
    )
    WRONG_VALUE = _Row("wrong_value", Severity.ERROR, "A value is of the wrong type, or out of its bounds.")
    CONTRADICTION = _Row("contradiction", Severity.ERROR, "Settings exclude each other.")
    REFUSED = _Row("refused", Severity.ERROR, "A command that reads the settings would end with this error.")
    DUPLICATE = _Row(
        "duplicate",
        Severity.ERROR,
        "A setting is stated twice; a warning in a properties file, where the last one counts.",
    )
    NOT_IN_VERSION = _Row(
        "not_in_version", Severity.WARNING, "Brokers of --kafka-version do not have the setting."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProblem:
    """One problem: its position, what was expected there, what was found, and what to do.

    `file` is None for the environment, and `line` is None if the problem has no line. `setting` is the name
    of the setting or option. Neither text contains a secret. `severity` is the kind's if it is None.
    """

    kind: ProblemKind
    file: Path | None = None
    line: int | None = None
    setting: str | None = None
    message: str
    expected: str
    found: str
    hint: str
    of_severity: Severity | None = None

    @property
    def severity(self) -> Severity:
        """How serious the problem is."""
        return self.of_severity or self.kind.row.severity

    @property
    def error(self) -> UsageError:
        """The error that ends a command for which the problem matters."""
        where = "" if self.file is None else f"{self.place}: "
        return UsageError(f"{where}{self.message}", hint=self.hint)

    @property
    def place(self) -> str | None:
        """The file with its line; for the environment the variable."""
        if self.file is None:
            return self.setting
        return f"{self.file}, line {self.line}" if self.line else str(self.file)


def did_you_mean(nearest: str | None, otherwise: str) -> str:
    """Return the hint that names the setting that was probably meant; `otherwise` without one."""
    return otherwise if nearest is None else f"did you mean {nearest!r}?"
