"""Check a broker's server.properties, a file of topic settings and a client's properties."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from tierctl.errors import TierctlError, UsageError
from tierctl.files import open_regular, read_regular
from tierctl.kafka.client_settings import ClientSettings
from tierctl.locallog.folders import unknown_topic_setting
from tierctl.metadata.server_properties import ServerSettings
from tierctl.model.configs import BrokerDefaults
from tierctl.model.conflicts import Conflict, broker_conflicts, topic_conflicts
from tierctl.model.engine import Severity
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.settings import broker, client, topic
from tierctl.model.settings.file_kinds import FileKind, require_kind
from tierctl.model.settings.known import ProblemKind, SettingProblem, did_you_mean, unknown_names
from tierctl.model.settings.registry import holds_secret, shown
from tierctl.model.settings.table import Origin, Setting, SettingSource, StatedSettings, Table
from tierctl.storage.layouts.aiven.layout import AivenSettings
from tierctl.wire.files.properties import MalformedLine, Property, parse_properties


@dataclass(slots=True)
class PropertiesFile:
    """The settings in a file, the last of several with the same name, and the problems of its lines.

    A file that can't be read has no settings and one problem, of the kind UNREADABLE; a file of another kind
    has one of the kind REFUSED.
    """

    path: Path
    settings: StatedSettings
    problems: list[SettingProblem] = field(default_factory=list)

    def problem(
        self, kind: ProblemKind, key: str, message: str, *, expected: str, found: str, hint: str,
        severity: Severity | None = None,
    ) -> SettingProblem:  # fmt: skip
        """Return a problem with the line that states `key`."""
        origin = self.settings.origin(key)
        return SettingProblem(
            kind=kind,
            file=self.path,
            line=origin.line if origin else None,
            setting=key,
            message=message,
            expected=expected,
            found=found,
            hint=hint,
            of_severity=severity,
        )

    def wrong_value(self, key: str, row: Setting[object]) -> SettingProblem | None:
        """Return the problem of the value of `key`, a setting of `row`; None if Kafka accepts it."""
        text = self.settings[key]
        try:
            row.parse(text)
        except UsageError as e:
            return self.problem(
                ProblemKind.WRONG_VALUE,
                key,
                e.message if key == row.name else e.message.replace(row.name, key, 1),
                expected=row.values,
                found=shown(key, repr(text)),
                hint=f"write {row.values}"
                + ("" if row.default is None else f"; without the line it is {row.default}"),
            )
        return None

    def not_in_version(
        self, key: str, row: Setting[object], brokers: BrokerDefaults
    ) -> SettingProblem | None:
        """Return the problem of a setting that the brokers' version does not have; None if it has it."""
        if brokers.version.includes(row.since, row.until):
            return None
        versions = f"since {row.since}" if row.until is None else f"until {row.until}"
        if not row.since[:1].isdigit():
            versions = "in no release"
        return self.problem(
            ProblemKind.NOT_IN_VERSION,
            key,
            f"{key}: Kafka {brokers.version} does not have it, it exists {versions}",
            expected=f"settings of Kafka {brokers.version}",
            found=key,
            hint="remove it, or state the brokers' version with --kafka-version",
        )


def read_to_end(path: Path, source: SettingSource) -> PropertiesFile:
    """Read the properties file `path`, a file of the kind `source`, to its end."""
    try:
        data = read_regular(path)
        mode = path.stat().st_mode
    except OSError as e:
        return PropertiesFile(path, StatedSettings({}, {}), [unreadable(path, e)])
    problems: list[SettingProblem] = []
    properties = parse_properties(data, lambda line: problems.append(_malformed(path, line)))
    found = PropertiesFile(
        path,
        StatedSettings(
            {each.key: each.value for each in properties},
            {each.key: Origin(source=source, file=path, line=each.line) for each in properties},
        ).stripped(),
        problems,
    )
    wrong = list(_refused(found, lambda: require_kind(found.settings, FileKind.of(source), path)))
    if wrong:
        return PropertiesFile(path, StatedSettings({}, {}), wrong)
    problems.extend(_duplicates(path, properties))
    if any(holds_secret(name, value) for name, value in found.settings.items()):
        problems.extend(open_permissions(path, mode, "passwords"))
    return found


def unreadable(path: Path, error: OSError, *, named_by: SettingProblem | None = None) -> SettingProblem:
    """Return the problem of a file that can't be read; `named_by` has the line that names the file."""
    why = error.strerror or str(error)
    return SettingProblem(
        kind=ProblemKind.UNREADABLE,
        file=path if named_by is None else named_by.file,
        line=None if named_by is None else named_by.line,
        setting=None if named_by is None else named_by.setting,
        message=f"{path} can't be read: {why}" if named_by else f"can't be read: {why}",
        expected="a file that this user may read",
        found=why,
        hint="correct the path, or run the check as a user who may read the file (sudo -u kafka)",
    )


def open_permissions(path: Path, mode: int, what: str) -> Iterator[SettingProblem]:
    """Yield a problem if users other than the owner and the group may read or change a file with `what`."""
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield SettingProblem(
            kind=ProblemKind.OPEN_PERMISSIONS,
            file=path,
            message=f"has {what}, and every user of this machine may "
            f"{'change' if mode & stat.S_IWOTH else 'read'} it",
            expected="mode 0600 or 0640",
            found=f"mode {stat.S_IMODE(mode):04o}",
            hint=f"chmod o-rwx {path}",
        )


def check_secret_file(path: Path, named_by: SettingProblem, what: str) -> Iterator[SettingProblem]:
    """Yield the problems of a file of keys that a setting names; `named_by` has the place of the setting."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
    except OSError as e:
        yield unreadable(path, e, named_by=named_by)
        return
    yield from open_permissions(path, mode, what)


def _malformed(path: Path, line: MalformedLine) -> SettingProblem:
    return SettingProblem(
        kind=ProblemKind.MALFORMED,
        file=path,
        line=line.line,
        message=f"expected {line.expected}",
        expected=line.expected,
        # The line may contain a password.
        found="another escape",
        hint="write a literal backslash twice",
    )


def _duplicates(path: Path, properties: list[Property]) -> Iterator[SettingProblem]:
    first: dict[str, Property] = {}
    for each in properties:
        before = first.setdefault(each.key, each)
        if before is not each:
            yield SettingProblem(
                kind=ProblemKind.DUPLICATE,
                file=path,
                line=each.line,
                setting=each.key,
                message=f"{each.key} is stated twice: line {before.line} has no effect",
                expected="one line for each setting",
                found=f"lines {before.line} and {each.line}"
                + (", with the same value" if before.value == each.value else ", with different values"),
                hint="remove the wrong line",
                of_severity=Severity.WARNING,
            )
            first[each.key] = each


def check_broker_file(path: Path, brokers: BrokerDefaults) -> Iterator[SettingProblem]:
    """Yield every problem in a broker's server.properties, for brokers of the version of `brokers`."""
    file = read_to_end(path, SettingSource.BROKER_FILE)
    yield from file.problems
    settings = file.settings
    for name, nearest in unknown_names(settings):
        yield file.problem(
            ProblemKind.UNKNOWN_SETTING,
            name,
            f'no Kafka from 3.9 to 4.4 has the setting "{name}"',
            expected="the name of a broker's setting",
            found=name,
            hint=did_you_mean(nearest, "remove it: brokers ignore it"),
            severity=Severity.WARNING,
        )
    found = list(_rows(file, broker.TABLE, "", brokers))
    manager_prefix = broker.METADATA_MANAGER_PREFIX.text(settings)
    for prefix in dict.fromkeys(("", manager_prefix)):
        found += _rows(file, client.METADATA_MANAGERS, prefix, brokers)
    found += _rows(file, client.PLUGINS, broker.STORAGE_MANAGER_PREFIX.text(settings), brokers)
    yield from found
    yield from _superseded(file)
    yield from _key_files(file, client.KEY_PAIR_PREFIX, client.PRIVATE_KEY_SUFFIX, "a private key")
    if not any(each.kind is ProblemKind.WRONG_VALUE for each in found):
        stated_by = BrokerDefaults(settings=settings).stated_by
        by_topic_setting = {row.name: stated_by(row.name) for row in topic.TABLE}
        yield from _contradictions(file, broker_conflicts(settings, brokers.version), by_topic_setting)
        yield from _refused(file, lambda: ServerSettings.from_properties(settings, str(path)))
        yield from _refused(file, lambda: AivenSettings.from_settings(settings))


def check_client_file(path: Path, brokers: BrokerDefaults) -> Iterator[SettingProblem]:
    """Yield every problem in a client's .properties, and in the key stores that it names."""
    file = read_to_end(path, SettingSource.CLIENT_FILE)
    yield from file.problems
    for name in file.settings:
        if name not in client.CLIENTS:
            nearest = next(iter(get_close_matches(name, client.UNDERSTOOD, n=1, cutoff=0.8)), None)
            yield file.problem(
                ProblemKind.UNKNOWN_SETTING,
                name,
                f"tierctl does not use {name}",
                expected="a client's setting that tierctl uses",
                found=name,
                hint=did_you_mean(nearest, "no action is needed if other clients use it"),
                severity=Severity.INFO if nearest is None else Severity.WARNING,
            )
    found = list(_rows(file, client.CLIENTS, "", brokers))
    yield from found
    yield from _key_files(file, client.SSL_KEYSTORE_LOCATION.name, "", "a private key")
    if not any(each.kind is ProblemKind.WRONG_VALUE for each in found):
        yield from _refused(file, lambda: ClientSettings.from_properties(file.settings, str(path)))


def check_topics_file(
    path: Path, brokers: BrokerDefaults, *, is_tiering: bool | None
) -> Iterator[SettingProblem]:
    """Yield every problem in a file of topic settings, with the defaults of `brokers`.

    `is_tiering` is whether the brokers have remote.log.storage.system.enable; None if that is not known.
    """
    file = read_to_end(path, SettingSource.FILE)
    yield from file.problems
    topics: dict[str, dict[str, str]] = {}
    for key in file.settings:
        name, setting = topic.split_key(key)
        if setting is None:
            error = unknown_topic_setting("", key)
            yield file.problem(
                ProblemKind.UNKNOWN_SETTING,
                key,
                error.message.removeprefix(": "),
                expected="TOPIC.SETTING=VALUE",
                found=key,
                hint=str(error.hint),
            )
        elif not is_legal_topic_name(name):
            yield file.problem(
                ProblemKind.WRONG_VALUE,
                key,
                f"{name!r} is no topic name",
                expected="TOPIC.SETTING=VALUE",
                found=name,
                hint="letters, digits, dots, - and _; at most 249",
            )
        else:
            topics.setdefault(name, {})[key] = setting
    for name, keys in topics.items():
        yield from _check_topic(file, name, keys, brokers, is_tiering=is_tiering)


def _check_topic(
    file: PropertiesFile,
    name: str,
    keys: Mapping[str, str],
    brokers: BrokerDefaults,
    *,
    is_tiering: bool | None,
) -> Iterator[SettingProblem]:
    """Yield the problems of one topic; `keys` are its settings by their keys in the file."""
    is_wrong = False
    for key, setting in keys.items():
        row = topic.TABLE.rows[setting]
        wrong = file.wrong_value(key, row)
        if wrong is not None:
            is_wrong = True
            yield wrong
        elif (unknown := file.not_in_version(key, row, brokers)) is not None:
            yield unknown
    if is_wrong:
        return
    own = file.settings.only(keys)
    is_tiered = topic.REMOTE_STORAGE_ENABLE.given(own)
    by_setting = {setting: key for key, setting in keys.items()}
    yield from _contradictions(file, _conflicts(own, brokers, is_tiered=is_tiered), by_setting, name)
    if is_tiered and is_tiering is False:
        yield file.problem(
            ProblemKind.CONTRADICTION,
            f"{name}.{topic.REMOTE_STORAGE_ENABLE.name}",
            f"topic {name} has remote.storage.enable=true, but --broker-config has "
            "remote.log.storage.system.enable=false",
            expected="remote.log.storage.system.enable=true",
            found="false",
            hint="brokers refuse this: enable tiering in --broker-config, or disable it for the topic",
        )


def _conflicts(own: StatedSettings, brokers: BrokerDefaults, *, is_tiered: bool | None) -> Iterator[Conflict]:
    """Yield the conflicts in the settings that a topic states.

    If the topic does not state remote.storage.enable, yield only the conflicts of a tiered topic.
    """
    enable = topic.REMOTE_STORAGE_ENABLE.name
    in_force = brokers.in_force(own) | ({enable: "true"} if is_tiered is None else {})
    for found in topic_conflicts(in_force, brokers.version):
        if is_tiered or (
            found.kind.row.is_refused and enable not in found.names and own.keys() & {*found.names}
        ):
            yield found


def _rows(
    file: PropertiesFile, table: Table, prefix: str, brokers: BrokerDefaults
) -> Iterator[SettingProblem]:
    """Yield the problems of the settings of `table`, whose names have `prefix` in the file."""
    for row in table:
        key = prefix + row.name
        if key in file.settings:
            problem = file.wrong_value(key, row) or file.not_in_version(key, row, brokers)
            if problem is not None:
                yield problem


def _contradictions(
    file: PropertiesFile,
    conflicts: Iterator[Conflict],
    keys: Mapping[str, str] | None = None,
    of_topic: str | None = None,
) -> Iterator[SettingProblem]:
    """Yield a problem for each conflict; `keys` are the keys in the file by the name of a setting.

    Its line is that of the first setting that the file states, or the topic's first line if all of them are
    defaults.
    """
    for found in conflicts:
        names = [(keys or {}).get(name, name) for name in found.names]
        stated = [name for name in names if name in file.settings] or (
            list((keys or {}).values()) if of_topic else names
        )
        of = "" if of_topic is None else f"topic {of_topic}: "
        yield file.problem(
            ProblemKind.CONTRADICTION,
            stated[0],
            f"{of}{found.found}: {found.kind.row.meaning}",
            expected=found.kind.row.fix,
            found=found.found,
            hint=found.kind.row.fix,
            severity=found.kind.row.severity,
        )


def _superseded(file: PropertiesFile) -> Iterator[SettingProblem]:
    """Yield a problem for each of log.retention.ms, .minutes and .hours that has no effect beside another."""
    rows = (broker.LOG_RETENTION_MS, broker.LOG_RETENTION_MINUTES, broker.LOG_RETENTION_HOURS)
    stated = [row.name for row in rows if row.name in file.settings]
    for name in stated[1:]:
        yield file.problem(
            ProblemKind.CONTRADICTION,
            name,
            f"{name} has no effect beside {stated[0]}",
            expected=f"one of {', '.join(row.name for row in rows)}",
            found=", ".join(stated),
            hint="remove the wrong line",
            severity=Severity.WARNING,
        )


def _key_files(file: PropertiesFile, begin: str, end: str, what: str) -> Iterator[SettingProblem]:
    """Yield the problems of the files that settings with this `begin` and `end` in their names name."""
    for key, value in file.settings.items():
        if begin in key and key.endswith(end) and value and "${" not in value:
            named_by = file.problem(ProblemKind.UNREADABLE, key, "", expected="", found="", hint="")
            yield from check_secret_file(Path(value), named_by, what)


def _refused(file: PropertiesFile, read: Callable[[], object]) -> Iterator[SettingProblem]:
    """Yield the error with which the commands that read these settings end, if there is one."""
    try:
        read()
    except TierctlError as e:
        message = e.message.removeprefix(f"{file.path}: ")
        named = min((name for name in file.settings if name in message), key=message.index, default=None)
        origin = None if named is None else file.settings.origin(named)
        yield SettingProblem(
            kind=ProblemKind.REFUSED,
            file=file.path,
            line=origin.line if origin else None,
            setting=named,
            message=message,
            expected="settings that tierctl accepts together",
            found=message,
            hint=e.hint or "correct the setting",
        )
