"""All rows of the registry, and which settings contain secrets; the names of all settings of a broker and the
nearest one for a typing error; problems in files of settings, with their positions; the kinds of these files,
and how the keys of a file show its kind.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from tierctl.errors import UsageError
from tierctl.model.choices import RowEnum, Severity
from tierctl.model.location import HIDDEN, masked
from tierctl.model.settings import broker, clients, topic
from tierctl.model.settings.scopes import Setting, SettingSource, StatedSettings, Table, Type, place_of

TABLES: tuple[Table, ...] = (
    topic.TABLE,
    broker.TABLE,
    clients.METADATA_MANAGERS,
    clients.PLUGINS,
    clients.CLIENTS,
)
SETTINGS: tuple[Setting[object], ...] = tuple(row for table in TABLES for row in table)


_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|credential(?!s?[._-]?provider)|token(?!\.endpoint)|jaas\.config"
    r"|(access|account|api|sas|shared)[._-]?key|private[._]?key(?!\.file)|(encryption|storage)[._-]?key$"
    r"|connection[._-]?string|\bsas\b|keystore\.(key|certificate)|truststore\.cert",
    re.IGNORECASE,
)
_PASSWORDS = tuple(row.name for row in SETTINGS if row.type is Type.PASSWORD)
_ASSIGNED = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)


def is_secret(name: str) -> bool:
    """Return whether a setting holds a secret, also with the prefix of a listener, a client or a plugin."""
    return name.endswith(_PASSWORDS) or _SECRET_NAME.search(name) is not None


def shown(name: str, value: str) -> str:
    """Return the value of a setting as it may be printed, without secrets.

    Credentials in URIs, and values of secret settings in NAME=VALUE, are hidden as well.
    """
    if value and is_secret(name):
        return HIDDEN
    assigned = _ASSIGNED.fullmatch(value)
    if assigned is not None and is_secret(assigned[1]):
        return f"{assigned[1]}={HIDDEN}"
    return masked(value)


def holds_secret(name: str, value: str) -> bool:
    """Return whether a line of a file states a secret itself, not a reference to a config provider."""
    return "${" not in value and shown(name, value) != value


# Names of all settings that a broker's server.properties and a client's file may have, and the nearest one
# for a typing error.
#
# The names are those of KafkaConfig, RemoteLogManagerConfig and StandardAuthorizer (known.txt) and of the
# configurations of producers, consumers and admin clients (known_clients.txt) in Kafka 3.9, 4.3 and 4.4, and
# those that two plugins for stores have had so far (known_plugins.txt).

_PREFIXES = (
    "listener.name.",
    "config.providers.",
    "client.quota.callback.",
    "kafka.metrics.",
    "kafka.csv.metrics.",
    *clients.CLIENT_PREFIXES,
)
"""Prefixes of settings of listeners, plugins and clients, which may have any name."""
_TIERING = "remote.log."
_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""
_FAR = 0.6
"""Names of at least this similarity are named, but do not count as typing errors."""
_OPEN = (clients.KEY_PAIR_PREFIX, "iceberg.catalog.", "structure.provider.")
"""Prefixes below which Aiven's plugin accepts any name."""
FORMER = {
    "remote.log.manager.task.retry.interval.ms": broker.TASK_RETRY_BACKOFF_MS.name,
    "remote.log.storage.enable": broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name,
    "local.log.retention.ms": broker.LOG_LOCAL_RETENTION_MS.name,
    "local.log.retention.bytes": broker.LOG_LOCAL_RETENTION_BYTES.name,
}
"""Names of broker settings in drafts of KIP-405, which no Kafka has, and their present names."""


class UnknownName(NamedTuple):
    """The name of a setting that no Kafka knows, with the name that was probably meant, or None.

    `is_misspelt` states that it is nearly a name that decides about tiering, or about how clients connect.
    """

    name: str
    nearest: str | None
    is_misspelt: bool = False


def _words(file: str) -> list[str]:
    return files(__package__).joinpath(file).read_text(encoding="ascii").split()


@cache
def _names() -> frozenset[str]:
    """Return the names of the registry, and those in known.txt, which do not concern tiering."""
    tables = (broker.TABLE, clients.METADATA_MANAGERS)
    return frozenset(_words("known.txt")).union(row.name for table in tables for row in table)


@cache
def _client_names() -> frozenset[str]:
    """Return the names that Kafka's clients know."""
    return frozenset(_words("known_clients.txt")).union(row.name for row in clients.CLIENTS)


@cache
def _plugin_names(storage_manager: str) -> frozenset[str]:
    """Return the names of the plugin with this class, without prefix; those of Aiven's if no class is stated.

    They are empty for other plugins.
    """
    word = "kafka" if storage_manager.endswith(".LocalTieredStorage") else "aiven"
    is_known = not storage_manager or word == "kafka" or storage_manager.startswith("io.aiven.")
    words = _words("known_plugins.txt") if is_known else []
    pairs = zip(words[::2], words[1::2], strict=True)
    return frozenset(name for plugin, name in pairs if plugin == word)


def _nearest(name: str, known: Iterable[str], similarity: float = _SIMILAR) -> str | None:
    return next(iter(get_close_matches(name, known, n=1, cutoff=similarity)), None)


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


def unknown_names(settings: Mapping[str, str]) -> Iterator[UnknownName]:
    """Yield each name in a broker's `settings` that no Kafka from 3.9 to 4.4 knows, with the nearest known.

    Plugins may have any settings: of those with the prefix of one of the two remote plugins only names are
    yielded that are nearly a known one. A name whose first words are nearly such a prefix is misspelt.
    """
    plugins = plugin_prefixes(settings)
    of_storage = broker.STORAGE_MANAGER_PREFIX.text(settings)
    of_metadata = broker.METADATA_MANAGER_PREFIX.text(settings)

    def nearest_under(prefix: str, rest: str) -> str | None:
        if prefix == of_storage:
            return _nearest_of_plugin(rest, settings)
        manager = broker.METADATA_MANAGER_CLASS
        return _nearest_of_metadata_manager(rest) if manager.text(settings) == manager.kafka_default else None

    for name in settings:
        prefix = next((each for each in (of_storage, of_metadata) if each and name.startswith(each)), None)
        if prefix is not None:
            nearest = nearest_under(prefix, name.removeprefix(prefix))
            if nearest is not None:
                yield UnknownName(name, f"{prefix}{nearest}", is_misspelt=True)
        elif not is_known(name, plugins):
            meant = _nearest_prefix(name, (of_storage, of_metadata))
            if meant is not None:
                prefix, rest = meant
                near: str | None = f"{prefix}{nearest_under(prefix, rest) or rest}"
            else:
                near = FORMER.get(name) or _nearest(name, _names())
            is_misspelt = near is not None and (name in FORMER or near.startswith((_TIERING, *plugins)))
            yield UnknownName(name, near or _nearest(name, _names(), _FAR), is_misspelt)


def _nearest_prefix(name: str, prefixes: Iterable[str]) -> tuple[str, str] | None:
    """Return the one of `prefixes` that was meant by the first words of `name`, and the rest of the name."""
    found = []
    for prefix in filter(None, prefixes):
        words = name.split(".", prefix.count("."))
        head, rest = ".".join([*words[:-1], ""]), words[-1]
        found.append((SequenceMatcher(None, head, prefix).ratio(), prefix, rest))
    similarity, prefix, rest = max(found, default=(0, "", ""))
    return (prefix, rest) if similarity >= _SIMILAR else None


def _nearest_of_plugin(name: str, settings: Mapping[str, str]) -> str | None:
    """Return the name that was meant by an unknown setting of a storage manager, without its prefix."""
    known = _plugin_names(broker.STORAGE_MANAGER_CLASS.given(settings) or "")
    return None if name in known or name.startswith(_OPEN) else _nearest(name, known)


def _nearest_of_metadata_manager(name: str) -> str | None:
    """Return the name that was meant by an unknown setting of the metadata manager, without its prefix."""
    for prefix in clients.CLIENT_PREFIXES:
        if name.startswith(prefix):
            found = _nearest_of_client(name.removeprefix(prefix))
            return None if found is None else f"{prefix}{found}"
    known = [row.name for row in clients.METADATA_MANAGERS]
    if name in known:
        return None
    of_clients = (f"{prefix}{each}" for prefix in clients.CLIENT_PREFIXES for each in _client_names())
    return _nearest(name, known) or _nearest(name, of_clients)


def unknown_client_names(settings: Mapping[str, str]) -> Iterator[UnknownName]:
    """Yield each name in a client's `settings` that tierctl does not use.

    Those that other clients of Kafka know are not misspelt.
    """
    for name in settings:
        if name not in clients.CLIENTS:
            nearest = _nearest_of_client(name)
            yield UnknownName(name, nearest, is_misspelt=nearest is not None)


def _nearest_of_client(name: str) -> str | None:
    """Return the name that was meant by a setting of a client; None if clients know it, or none is near."""
    return None if name in _client_names() else _nearest(name, _client_names())


def unknown_name_text(found: UnknownName) -> str:
    """Return the message about an unknown name in a broker's settings."""
    if found.name in FORMER:
        return f'"{found.name}" is a name in a draft of KIP-405, which no Kafka has'
    of_plugin = found.is_misspelt and not (found.nearest or "").startswith(_TIERING)
    who = "neither the plugin nor Kafka" if of_plugin else "no Kafka from 3.9 to 4.4"
    return f'{who} has the setting "{found.name}"'


def require_bounds(settings: Mapping[str, str], source: str) -> None:
    """Raise UsageError, with `source`, for a value in a broker's `settings` that Kafka or tierctl refuses."""
    require_no_references(settings, (row.name for row in broker.TABLE if decides(row)), source)
    for row in broker.TABLE:
        if not refers(settings, row.name):
            row.given(settings, source)


def require_manager_prefix(overrides: Mapping[str, str], in_file: Mapping[str, str]) -> None:
    """Raise UsageError for a setting of the metadata manager in `overrides` without its prefix."""
    prefix = broker.METADATA_MANAGER_PREFIX.value({**in_file, **overrides})
    for name in overrides:
        if prefix and name in clients.METADATA_MANAGERS:
            raise UsageError(
                f"--override {name}: brokers give their metadata manager only settings with its prefix",
                hint=f"--override {prefix}{name}={overrides[name]}",
            )


NO_PROVIDERS = "refers to a config provider; tierctl supports none"
PROVIDERS_HINT = "write the value into a file that only you may read"


def refers(settings: Mapping[str, str], name: str) -> bool:
    """Return whether the value of a setting refers to one of Kafka's config providers (KIP-297)."""
    return clients.CONFIG_PROVIDERS.name in settings and "${" in settings.get(name, "")


def decides(row: Setting[object]) -> bool:
    """Return whether tierctl acts on the value of a setting in every run; it may not need an address."""
    return row.acted_on and row.type not in {Type.STRING, Type.LIST}


def require_no_references(settings: Mapping[str, str], names: Iterable[str], source: str) -> None:
    """Raise UsageError, with `source`, for the first of `names` whose value refers to a config provider."""
    for name in sorted(names):
        if refers(settings, name):
            place = place_of(settings, name, source)
            raise UsageError(f"{place}: {name} {NO_PROVIDERS}", hint=PROVIDERS_HINT)


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
    MISSPELT = _Row(
        "misspelt",
        Severity.ERROR,
        "A name that is ignored is nearly the name of a setting of tiering, of a plugin, or of a client; "
        "commands that change something end with it.",
    )
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
    """One problem: its position, what was found there, and what to do.

    `file` is None for the environment, and `line` is None if the problem has no line. `setting` is the name
    of the setting or option. `why` is what a contradiction means; None for other problems. No text contains a
    secret. `of_severity` is None for the severity of the kind.
    """

    kind: ProblemKind
    file: Path | None = None
    line: int | None = None
    setting: str | None = None
    message: str
    hint: str
    why: str | None = None
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
    return otherwise if nearest is None else f'did you mean "{nearest}"?'


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of settings file: its contents, the option that takes it, and an example of it."""

    name: str
    option: str
    example: str
    source: SettingSource | None


class FileKind(RowEnum):
    """The table: one member per kind of file."""

    row: _Kind

    PROFILES = _Kind("profiles of tierctl", "--config-file", "a tierctl.toml", SettingSource.PROFILE)
    SAVED_TOPICS = _Kind(
        "saved topics", "--topics-file", "the YAML file that tierctl backup-config writes", None
    )
    BROKER = _Kind(
        "broker settings", "--broker-config", "a broker's server.properties", SettingSource.BROKER_FILE
    )
    CLIENT = _Kind(
        "client settings", "--command-config", "a client's properties file", SettingSource.CLIENT_FILE
    )
    TOPICS = _Kind(
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
    kind its keys do not show is accepted, but not as a broker's or a client's if it has none of their names.
    """
    found = _other_kind(settings, expected)
    if found is None:
        foreign = _foreign_content(settings, expected)
        if foreign is not None:
            raise UsageError(
                f"{path}: expected {expected.row.example}, found {foreign}",
                hint=f"name another file with {expected.row.option}",
            )
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


_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_BEGINNINGS = {"-----BEGIN": "a PEM file", "{": "JSON", "<": "XML"}
_COMPARED_MAX = 20
"""Keys of a file that are compared with similar names, which takes long."""


def _foreign_content(settings: Mapping[str, str], expected: FileKind) -> str | None:
    """Return what a file is that is no file of settings; its text, which may be a secret, is left out."""
    if any(_CONTROLS.search(key) for key in settings):
        return "binary data"
    first = next(iter(settings), "")
    for beginning, meaning in _BEGINNINGS.items():
        if first.startswith(beginning) and (expected is not FileKind.SAVED_TOPICS or meaning != "JSON"):
            return meaning
    if expected is FileKind.BROKER:
        plugins, names = plugin_prefixes(settings), _names()
        is_shown = any(is_known(key, plugins) for key in settings)
    elif expected is FileKind.CLIENT:
        names = _client_names()
        is_shown = not names.isdisjoint(settings)
    else:
        return None
    others = (key for key in islice(settings, _COMPARED_MAX) if key not in topic.TABLE.rows)
    is_shown = is_shown or not settings or any(_nearest(key, names) for key in others)
    return None if is_shown else f"none of the {expected.row.name} that Kafka knows"


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
