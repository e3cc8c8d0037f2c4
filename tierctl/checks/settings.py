"""Check settings: files of brokers, topics and clients, and the settings in force of brokers and topics."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.checks.check import Result, fault, not_checked, ok, prevented
from tierctl.checks.registry import DoctorCheck
from tierctl.errors import TierctlError, UsageError
from tierctl.files import open_regular, read_regular
from tierctl.kafka.client_settings import ClientSettings
from tierctl.metadata.server_properties import MetadataClients, ServerSettings, manager_settings
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model.choices import Severity
from tierctl.model.conflicts import (
    Conflict,
    ConflictKind,
    broker_conflicts,
    internal_topic_conflicts,
    metadata_topic_conflicts,
    topic_conflicts,
)
from tierctl.model.events import is_legal_topic_name
from tierctl.model.local import TopicFacts
from tierctl.model.selection import counted
from tierctl.model.settings import broker, clients, topic
from tierctl.model.settings.known import (
    NO_PROVIDERS,
    PROVIDERS_HINT,
    FileKind,
    ProblemKind,
    SettingProblem,
    decides,
    did_you_mean,
    refers,
    require_kind,
    unknown_client_names,
    unknown_name_text,
    unknown_names,
)
from tierctl.model.settings.scopes import (
    KafkaFault,
    KafkaVersion,
    Origin,
    Setting,
    SettingSource,
    StatedSettings,
    Table,
)
from tierctl.model.settings.topic import BrokerDefaults
from tierctl.storage.layouts.aiven.layout import AivenSettings, custom_metadata_bytes
from tierctl.wire.files.properties import (
    MalformedLine,
    Property,
    is_former_name,
    parse_properties,
    unknown_topic_setting,
)


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
        self,
        kind: ProblemKind,
        key: str,
        message: str,
        hint: str,
        *,
        why: str | None = None,
        severity: Severity | None = None,
    ) -> SettingProblem:
        """Return a problem with the line that states `key`."""
        origin = self.settings.origin(key)
        return SettingProblem(
            kind=kind,
            file=self.path,
            line=origin.line if origin else None,
            setting=key,
            message=message,
            hint=hint,
            why=why,
            of_severity=severity,
        )

    def wrong_value(self, key: str, row: Setting[object]) -> SettingProblem | None:
        """Return the problem of the value of `key`, a setting of `row`; None for a value that is accepted."""
        if refers(self.settings, key):
            refused = ProblemKind.REFUSED
            return (
                self.problem(refused, key, f"{key} {NO_PROVIDERS}", PROVIDERS_HINT) if decides(row) else None
            )
        try:
            row.parse(self.settings[key])
        except UsageError as e:
            return self.problem(
                ProblemKind.WRONG_VALUE,
                key,
                e.message if key == row.name else e.message.replace(row.name, key, 1),
                f"write {row.values}"
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
            "remove it, or state the brokers' version with --kafka-version",
        )


def read_to_end(path: Path, source: SettingSource) -> PropertiesFile:
    """Read the properties file `path`, a file of the kind `source`, to its end."""
    try:
        data = read_regular(path)
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
        hint="correct the path, or run the check as a user who may read the file (sudo -u kafka)",
    )


def _malformed(path: Path, line: MalformedLine) -> SettingProblem:
    return SettingProblem(
        kind=ProblemKind.MALFORMED,
        file=path,
        line=line.line,
        # The line itself may contain a password.
        message=f"expected {line.expected}",
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
                hint="remove the wrong line",
                of_severity=Severity.WARNING,
            )
            first[each.key] = each


def check_broker_file(path: Path, brokers: BrokerDefaults) -> Iterator[SettingProblem]:
    """Yield every problem in a broker's server.properties, for brokers of the version of `brokers`."""
    file = read_to_end(path, SettingSource.BROKER_FILE)
    yield from file.problems
    settings = file.settings
    for unknown in unknown_names(settings):
        yield file.problem(
            ProblemKind.MISSPELT if unknown.is_misspelt else ProblemKind.UNKNOWN_SETTING,
            unknown.name,
            unknown_name_text(unknown),
            did_you_mean(unknown.nearest, "remove it: brokers ignore it"),
            severity=None if unknown.is_misspelt else Severity.WARNING,
        )
    found = list(_rows(file, broker.TABLE, "", brokers))
    manager_prefix = broker.METADATA_MANAGER_PREFIX.text(settings)
    for prefix in dict.fromkeys(("", manager_prefix)):
        found += _rows(file, clients.METADATA_MANAGERS, prefix, brokers)
    found += _rows(file, clients.PLUGINS, broker.STORAGE_MANAGER_PREFIX.text(settings), brokers)
    yield from found
    yield from _superseded(file)
    yield from _key_files(file, clients.KEY_PAIR_PREFIX, clients.PRIVATE_KEY_SUFFIX)
    if not any(each.kind in {ProblemKind.WRONG_VALUE, ProblemKind.REFUSED} for each in found):
        stated_by = BrokerDefaults(settings=settings).stated_by
        by_topic_setting = {row.name: stated_by(row.name) for row in topic.TABLE}
        conflicts = list(broker_conflicts(settings, brokers.version))
        yield from _contradictions(file, conflicts, by_topic_setting)
        if ConflictKind.METADATA_CLIENTS_WITHOUT_LOGIN not in {each.kind for each in conflicts}:
            yield from _refused(file, lambda: _clients_of(settings, path))
        yield from _refused(file, lambda: AivenSettings.from_settings(settings))


def _clients_of(settings: StatedSettings, path: Path) -> MetadataClients:
    return ServerSettings.from_properties(settings, str(path)).clients.readable()


def check_client_file(path: Path, brokers: BrokerDefaults) -> Iterator[SettingProblem]:
    """Yield every problem in a client's .properties, and in the key stores that it names."""
    file = read_to_end(path, SettingSource.CLIENT_FILE)
    yield from file.problems
    for unknown in unknown_client_names(file.settings):
        yield file.problem(
            ProblemKind.MISSPELT if unknown.is_misspelt else ProblemKind.UNKNOWN_SETTING,
            unknown.name,
            f"tierctl does not use {unknown.name}",
            did_you_mean(unknown.nearest, "no action is needed if other clients use it"),
            severity=None if unknown.is_misspelt else Severity.INFO,
        )
    found = list(_rows(file, clients.CLIENTS, "", brokers))
    yield from found
    yield from _key_files(file, clients.SSL_KEYSTORE_LOCATION.name, "")
    if not any(each.kind in {ProblemKind.WRONG_VALUE, ProblemKind.REFUSED} for each in found):
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
        if setting is None or is_former_name(key, file.settings):
            error = unknown_topic_setting("", key)
            yield file.problem(
                ProblemKind.UNKNOWN_SETTING,
                key,
                error.message.removeprefix(": "),
                str(error.hint),
            )
        elif not is_legal_topic_name(name):
            yield file.problem(
                ProblemKind.WRONG_VALUE,
                key,
                f"{name!r} is no topic name",
                "letters, digits, dots, - and _; at most 249",
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
    internal = list(internal_topic_conflicts(name, own))
    conflicts = internal or _conflicts(own, brokers, is_tiered=is_tiered)
    yield from _contradictions(file, conflicts, by_setting, name)
    if is_tiered and is_tiering is False:
        yield file.problem(
            ProblemKind.CONTRADICTION,
            f"{name}.{topic.REMOTE_STORAGE_ENABLE.name}",
            f"topic {name} has remote.storage.enable=true, but --broker-config has "
            "remote.log.storage.system.enable=false",
            "brokers refuse this: enable tiering in --broker-config, or disable it for the topic",
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
    conflicts: Iterable[Conflict],
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
            f"{of}{found.found}",
            found.kind.row.fix,
            why=found.kind.row.meaning,
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
            "remove the wrong line",
            severity=Severity.WARNING,
        )


def _key_files(file: PropertiesFile, begin: str, end: str) -> Iterator[SettingProblem]:
    """Yield a problem for each unreadable file that a setting with `begin` and `end` in its name states."""
    for key, value in file.settings.items():
        if begin in key and key.endswith(end) and value and "${" not in value:
            try:
                os.close(open_regular(Path(value)))
            except OSError as e:
                named_by = file.problem(ProblemKind.UNREADABLE, key, "", "")
                yield unreadable(Path(value), e, named_by=named_by)


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
            hint=e.hint or "correct the setting",
        )


_OF_METADATA_MANAGER = frozenset(
    kind for kind in ConflictKind if kind.startswith("metadata_") or kind is ConflictKind.NO_METADATA_LISTENER
)
_AGREE = (
    broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE,
    broker.STORAGE_MANAGER_CLASS,
    broker.METADATA_MANAGER_CLASS,
    broker.TASK_INTERVAL_MS,
    broker.CUSTOM_METADATA_MAX_BYTES,
    broker.LOG_LOCAL_RETENTION_MS,
    broker.LOG_LOCAL_RETENTION_BYTES,
    broker.LOG_REMOTE_COPY_LAG_MS,
    broker.LOG_REMOTE_COPY_LAG_BYTES,
)
"""Settings of tiering that each broker states for itself; only a different first one is a problem."""


TopicSettings = Mapping[str, Mapping[str, str] | TierctlError]
"""The settings in force of each topic by name, or the error that kept them from being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The settings in force of one broker, or the error that kept them from being read."""

    name: str
    settings: Mapping[str, str] | TierctlError


def check_broker_conflicts(brokers: Sequence[Broker], version: KafkaVersion) -> Iterator[Result]:
    """Yield the results about settings of each running broker that contradict each other.

    Running brokers hide the settings of their metadata manager. That they run shows that it has an address,
    and the metadata topic itself shows how it was made.
    """
    for each in brokers:
        if isinstance(each.settings, TierctlError):
            yield prevented(DoctorCheck.BROKER_CONFLICTS, each.name, each.settings)
            continue
        all_of_them = broker_conflicts(each.settings, version)
        conflicts = [found for found in all_of_them if found.kind not in _OF_METADATA_MANAGER]
        yield from of_conflicts(DoctorCheck.BROKER_CONFLICTS, each.name, conflicts)
        if not conflicts:
            tiers = "on" if is_tiering(each.settings) else "off"
            yield ok(DoctorCheck.BROKER_CONFLICTS, each.name, f"tiering is {tiers}, no conflicts")


def is_tiering(settings: Mapping[str, str]) -> bool:
    """Return whether brokers with these settings tier."""
    return broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.value(settings)


def of_conflicts(check: DoctorCheck, subject: str, conflicts: Sequence[Conflict]) -> Iterator[Result]:
    """Yield a result per conflict, with the meaning and the fix of its kind."""
    for each in conflicts:
        row = each.kind.row
        yield fault(
            check,
            subject,
            f"{each.kind}: {each.found}",
            severity=row.severity,
            why=row.meaning,
            fix=row.fix,
        )


def check_agreement(brokers: Sequence[Broker]) -> Iterator[Result]:
    """Yield the results about settings that differ between the brokers of a cluster."""
    known = {each.name: each.settings for each in brokers if not isinstance(each.settings, TierctlError)}
    for each in brokers:
        if isinstance(each.settings, TierctlError):
            yield prevented(DoctorCheck.BROKERS_AGREE, each.name, each.settings)
    is_good = bool(known)
    for row in _AGREE:
        values: dict[str, list[str]] = {}
        for name, settings in known.items():
            values.setdefault(settings.get(row.name, "(none)"), []).append(name)
        if len(values) > 1:
            is_good = False
            found = "; ".join(f"{value} on {', '.join(names)}" for value, names in values.items())
            severity = Severity.ERROR if row is broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE else Severity.WARNING
            yield fault(DoctorCheck.BROKERS_AGREE, row.name, f"{row.name}={found}", severity=severity)
    if is_good:
        what = "only one broker" if len(known) == 1 else f"{len(known)} brokers have the same settings"
        yield ok(DoctorCheck.BROKERS_AGREE, "", what)


def check_version(version: KafkaVersion, *, is_tiering: bool | None) -> Iterator[Result]:
    """Yield the results about known faults of the brokers' `version`; `is_tiering` is None if unknown.

    A broker tells a client its version, but not its bug-fix release.
    """
    subject = f"Kafka {version}{'' if version.patch is None else f'.{version.patch}'}"
    if is_tiering is False:
        yield ok(
            DoctorCheck.BROKER_VERSION, subject, "the brokers do not tier, so none of its faults matters"
        )
        return
    is_good = True
    for each in KafkaFault:
        is_in = each.is_in(version)
        if is_in is None:
            is_good = False
            fixed = each.fix_of(version)
            reason = f"{each}: fixed in {fixed}, and brokers don't tell which release of {version} they are"
            yield not_checked(DoctorCheck.BROKER_VERSION, subject, f"{reason}: give it with --kafka-version")
        elif is_in:
            is_good = False
            fix = f"upgrade to {each.fix_of(version)} or later; until then {each.row.workaround}"
            yield fault(DoctorCheck.BROKER_VERSION, subject, str(each), why=each.row.meaning, fix=fix)
    if is_good:
        yield ok(DoctorCheck.BROKER_VERSION, subject, f"has none of {', '.join(KafkaFault)}")


def check_custom_metadata(
    source: str, settings: Mapping[str, str], topics: Collection[str]
) -> Iterator[Result]:
    """Yield the results about the size of the custom metadata that Aiven's plugin writes for `topics`."""
    prefix = broker.STORAGE_MANAGER_PREFIX.value(settings)
    if f"{prefix}{clients.CUSTOM_METADATA_FIELDS.name}" not in settings:
        reason = f"no {prefix}{clients.CUSTOM_METADATA_FIELDS.name}: no custom metadata are written"
        yield ok(DoctorCheck.CUSTOM_METADATA, source, reason)
        return
    if not topics:
        return
    limit = broker.CUSTOM_METADATA_MAX_BYTES.value(settings)
    aiven = AivenSettings.from_settings(settings)
    sizes = {topic: custom_metadata_bytes(aiven, topic) for topic in topics}
    longest = max(sizes, key=lambda topic: sizes[topic])
    found = (
        f"up to {sizes[longest]} bytes for topic {longest}, {broker.CUSTOM_METADATA_MAX_BYTES.name}={limit}"
    )
    if sizes[longest] > limit:
        yield fault(DoctorCheck.CUSTOM_METADATA, source, found)
    else:
        yield ok(DoctorCheck.CUSTOM_METADATA, source, found)


_SHOWN_NAMES = 5


def check_topic_conflicts(settings: TopicSettings, version: KafkaVersion) -> Iterator[Result]:
    """Yield the results about settings of each topic that contradict each other."""
    tiered, is_good = 0, bool(settings)
    for name, own in sorted(settings.items()):
        if isinstance(own, TierctlError):
            is_good = False
            yield prevented(DoctorCheck.TOPIC_CONFLICTS, name, own)
            continue
        tiered += is_tiered(own)
        conflicts = list(internal_topic_conflicts(name, own)) or list(topic_conflicts(own, version))
        is_good = is_good and not conflicts
        yield from of_conflicts(DoctorCheck.TOPIC_CONFLICTS, name, conflicts)
    if is_good:
        found = f"{counted(len(settings), 'topic')}, {tiered} of them tiered: no conflicts"
        yield ok(DoctorCheck.TOPIC_CONFLICTS, "", found)


def is_tiered(settings: Mapping[str, str] | TierctlError) -> bool:
    """Return whether a topic with these settings is tiered; False if they could not be read."""
    return not isinstance(settings, TierctlError) and topic.REMOTE_STORAGE_ENABLE.value(settings)


def check_tiered(settings: TopicSettings, *, is_tiering: bool) -> Iterator[Result]:
    """Yield the result about tiered topics on brokers that do not tier."""
    tiered = sorted(name for name, own in settings.items() if is_tiered(own))
    if tiered and not is_tiering:
        off = f"{broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=false"
        found = f"{off}, but {some_of(tiered)} with remote.storage.enable=true"
        yield fault(DoctorCheck.TIERED_TOPICS, "", found)
    else:
        where = "the brokers tier" if is_tiering else "the brokers do not tier"
        yield ok(DoctorCheck.TIERED_TOPICS, "", f"{counted(len(tiered), 'tiered topic')}, and {where}")


def some_of(names: Collection[str]) -> str:
    """Return the number of topics and the first names: `7 topics (a, b, c, d, e, …)`."""
    shown = ", ".join(sorted(names)[:_SHOWN_NAMES])
    return f"{counted(len(names), 'topic')} ({shown}{', …' if len(names) > _SHOWN_NAMES else ''})"


def check_metadata_settings(
    settings: Mapping[str, str], replicas: int | None, version: KafkaVersion
) -> Iterator[Result]:
    """Yield the results about the settings in force; `replicas` is None if their number is not known.

    The number of replicas is that of the partition with the fewest.
    """
    least = topic.MIN_INSYNC_REPLICAS.value(settings)
    conflicts = [
        each
        for each in metadata_topic_conflicts(settings, replicas or least, version)
        if replicas is not None or topic.MIN_INSYNC_REPLICAS.name not in each.names
    ]
    yield from of_conflicts(DoctorCheck.METADATA_SETTINGS, METADATA_TOPIC, conflicts)
    if not conflicts:
        known = "" if replicas is None else f"{counted(replicas, 'replica')}, min.insync.replicas={least}, "
        found = f"{known}unlimited retention, not compacted"
        yield ok(DoctorCheck.METADATA_SETTINGS, METADATA_TOPIC, found)


def check_metadata_replicas(facts: TopicFacts, min_in_sync: int, version: KafkaVersion) -> Iterator[Result]:
    """Yield the results about leaders and replicas of the metadata partitions."""
    leaderless = [each.partition for each in facts.partitions if each.leader is None]
    too_few = [
        each.partition
        for each in facts.partitions
        if len(each.in_sync) < version.min_in_sync(min_in_sync, len(each.replicas))
    ]
    behind = [each.partition for each in facts.partitions if len(each.in_sync) < len(each.replicas)]
    if leaderless:
        yield fault(DoctorCheck.METADATA_REPLICAS, METADATA_TOPIC, f"no leader: {_partitions(leaderless)}")
    if unwritable := sorted(set(too_few) - set(leaderless)):
        found = f"fewer than min.insync.replicas={min_in_sync} in sync: {_partitions(unwritable)}"
        yield fault(DoctorCheck.METADATA_REPLICAS, METADATA_TOPIC, found)
    if lagging := sorted(set(behind) - {*leaderless, *too_few}):
        found = f"not all replicas in sync: {_partitions(lagging)}"
        yield fault(DoctorCheck.METADATA_REPLICAS, METADATA_TOPIC, found, severity=Severity.WARNING)
    if not (leaderless or too_few or behind):
        found = f"all replicas of {counted(len(facts.partitions), 'partition')} are in sync"
        yield ok(DoctorCheck.METADATA_REPLICAS, METADATA_TOPIC, found)


def check_metadata_partitions(found: int, settings: Mapping[str, str], source: str) -> Iterator[Result]:
    """Yield the result about the number of metadata partitions that a broker's settings expect, if any.

    Source: TopicBasedRemoteLogMetadataManager.isPartitionsCountSameAsConfigured. A broker that tiers and
    whose settings state no number expects Kafka's default.
    """
    row = clients.TOPIC_PARTITIONS
    stated = row.given(manager_settings(StatedSettings.of(settings)), source)
    if stated is None and not (is_tiering(settings) and broker.has_own_metadata_manager(settings)):
        return
    expected = row.kafka_default if stated is None else stated
    setting = f"{row.name}={expected}{' (default)' if stated is None else ''}"
    if found == expected:
        yield ok(DoctorCheck.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, {setting}")
    else:
        yield fault(DoctorCheck.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, but {setting}")


def missing_metadata_topic(is_tiering: bool | None) -> Iterator[Result]:
    """Yield the result about a cluster without the metadata topic; `is_tiering` is None if not known."""
    found = f"the cluster has no topic {METADATA_TOPIC}"
    if is_tiering:
        why = (
            "The brokers tier, and have not made the topic: nothing is copied, and from Kafka 4.2 on they "
            "end two minutes after their start."
        )
        fix = "look for errors of TopicBasedRemoteLogMetadataManager in the brokers' logs"
        yield fault(DoctorCheck.METADATA_SETTINGS, METADATA_TOPIC, found, why=why, fix=fix)
    else:
        what = "; brokers make it when they tier, and copy --create-metadata-topic does"
        yield ok(DoctorCheck.METADATA_SETTINGS, METADATA_TOPIC, found + what)


def _partitions(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_NAMES]))
    return f"partition {shown}{', …' if len(numbers) > _SHOWN_NAMES else ''}"


def check_file(check: DoctorCheck, subject: str, problems: Iterable[SettingProblem]) -> Iterator[Result]:
    """Yield the problems of one file, or of the environment, by line, or the result that it has none."""
    is_good = True
    for problem in sorted(problems, key=lambda each: each.line or 0):
        severity = problem.severity
        is_good = is_good and severity is Severity.INFO
        where = problem.place or subject
        yield fault(check, where, problem.message, severity=severity, why=problem.why, fix=problem.hint)
    if is_good:
        yield ok(check, subject, "its settings are known, valid and free of contradictions")
