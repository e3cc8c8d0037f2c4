"""`config show`: the settings in force with their origins; and a check of the names in options."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tierctl.commands.change import read_plan
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources, require_own_tier
from tierctl.errors import (
    AuthenticationError,
    MetadataError,
    NotFoundError,
    RemoteStorageError,
    RemoteTierMissing,
)
from tierctl.metadata.server_properties import manager_settings
from tierctl.model import TopicConfig
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import admits_topic
from tierctl.model.settings import broker, clients, topic
from tierctl.model.settings.known import shown
from tierctl.model.settings.scopes import Origin, SettingSource, StatedSettings, Table
from tierctl.plan.preconditions import require_known_names
from tierctl.report import columns as f
from tierctl.report.columns import JSON_ONLY, Columns, Field, Kind, Shown
from tierctl.report.results import TableResult
from tierctl.state.tier_state import TierState
from tierctl.wire.files.properties import read_client_file

_OPTION = "option"
_DEFAULT = Origin(source=SettingSource.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRequest(Request):
    """A request for the settings in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValue:
    """The value of an option of tierctl as text; `commands` are those with this value, empty for all.

    With `is_refused`, the value is the reason why the option refuses that of the profile or the environment.
    """

    key: str
    value: str
    origin: Origin
    commands: tuple[str, ...] = ()
    use: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """One setting in force: its value, without secrets, and the origin of the value.

    `scope` is `option`, or the scope of the setting in Kafka. `place` is the file with its line, the variable
    or the option that states it; None for a default. `use` describes what tierctl does with the setting.
    """

    scope: Annotated[
        str,
        Field(Kind.WORD, "option of tierctl; or broker, metadata manager, plugin, client or topic of Kafka"),
        Shown(2),
    ]
    topic: Annotated[str | None, f.TOPIC, Shown(0)]
    setting: Annotated[str, f.SETTING, Shown(0)]
    value: Annotated[str, Field(Kind.SENTENCE, "value of the setting, without secrets"), Shown(0)]
    source: Annotated[SettingSource, Field(Kind.WORD, "kind of place that the value came from"), Shown()]
    place: Annotated[
        str | None,
        Field(Kind.NAME, "FILE:LINE, variable, option or broker setting that states the value", "from"),
        Shown(0),
    ]
    file: Annotated[str | None, f.FILE, JSON_ONLY]
    line: Annotated[int | None, f.LINE, JSON_ONLY]
    command: Annotated[str | None, f.COMMAND, Shown(1)]
    use: Annotated[str, Field(Kind.SENTENCE, "what tierctl does with the setting"), Shown(3, in_table=False)]


SETTINGS = Columns(
    SettingInForce,
    name="settings",
    title="Settings in force",
    commands="config show",
    noun="setting",
    word="source",
    subjects={"command": "topic"},
    substitutes={"place": "source"},
)


class SettingsInForce(list[SettingInForce], TableResult):
    """The settings in force."""

    table = SETTINGS, None


def show_config(
    request: ConfigRequest, options: Iterable[OptionValue], progress: Progress | None = None
) -> SettingsInForce:
    """Return every setting in force: `options`, and what the files of the request and Kafka's defaults state.

    Defaults of Kafka are in it for the settings that tierctl acts on. The settings of the topics that the
    request names are those on its cluster. Raise UsageError for a file with which no other command would
    begin, NotFoundError for an unknown topic, and as `Cluster`.
    """
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        settings = resources.broker_settings
        prefix = broker.STORAGE_MANAGER_PREFIX.value(settings)
        manager_prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
        managed = manager_settings(settings)
        own = settings.only(
            {
                name: name
                for name in settings
                if name not in clients.METADATA_MANAGERS
                and not any(each and name.startswith(each) for each in (prefix, manager_prefix))
            }
        )
        of_manager = managed.only(
            {name: name for name in managed if name not in settings or name in clients.METADATA_MANAGERS}
        )
        of_client = StatedSettings({}, {})
        if request.command_config is not None:
            of_client = read_client_file(request.command_config)
        rows = [
            *map(_option, options),
            *_of_table(broker.TABLE, own),
            *_of_table(clients.METADATA_MANAGERS, of_manager),
            *_of_table(clients.PLUGINS, settings.below(prefix)),
            *_of_table(clients.CLIENTS, of_client.stripped()),
        ]
        for name, config in sorted(_topic_configs(resources).items()):
            has = config.kafka_version.includes
            values = (
                config.setting(row.name)
                for row in topic.TABLE
                if (row.acted_on and has(row.since)) or row.name in config.stated
            )
            rows += [
                _row(topic.TABLE, each.name, each.value, each.origin or Origin(source=each.source), name)
                for each in values
            ]
        return SettingsInForce(rows)


def _topic_configs(resources: Resources) -> dict[str, TopicConfig]:
    """Return the settings of the selected topics, of the cluster if the request names topics and a cluster.

    NotFoundError for a named topic that neither the cluster nor the topic settings file has.
    """
    asked, cluster = resources.selection_request, resources.cluster
    in_file = resources.topic_configs()
    if not asked.topics:
        return in_file
    there: dict[str, TopicConfig] = {}
    if cluster is not None:
        found = cluster.topics(None if asked.globs else asked.topics)
        there = cluster.topic_configs(name for name in found if admits_topic(asked.topics, name))
        resources.note_unused(there)
    elif resources.request.topic_configs is None:
        resources.progress.note("--bootstrap-server or --topic-configs shows the settings of the topics")
        return {}
    known = {*in_file, *there}
    if cluster is not None and asked.unmatched_topics(known):
        known |= cluster.topics().keys()
    asked.require_topics(known)
    return {name: config for name, config in in_file.items() if admits_topic(asked.topics, name)} | there


def _option(option: OptionValue) -> SettingInForce:
    row = _in_force(_OPTION, option.key, option.value, option.origin, option.use)
    return replace(row, command=", ".join(option.commands) or None)


def _in_force(scope: str, name: str, value: str, origin: Origin, use: str) -> SettingInForce:
    return SettingInForce(
        scope=scope,
        topic=None,
        setting=name,
        value=shown(name, value),
        source=origin.source,
        place=_place(origin),
        file=None if origin.file is None else str(origin.file),
        line=origin.line,
        command=None,
        use=use,
    )


def _of_table(table: Table, stated: StatedSettings) -> Iterator[SettingInForce]:
    """Yield the settings in `stated`, and the defaults of those in `table` that tierctl acts on."""
    for row in table:
        if row.name in stated:
            yield _row(table, row.name, stated[row.name], stated.origin(row.name) or _DEFAULT)
        elif row.acted_on and row.default is not None:
            yield _row(table, row.name, row.default_text, _DEFAULT)
    for name in stated:
        if name not in table:
            yield _row(table, name, stated[name], stated.origin(name) or _DEFAULT)


def _row(table: Table, name: str, value: str, origin: Origin, of_topic: str | None = None) -> SettingInForce:
    row = table.rows.get(name)
    use = "not used by tierctl" if row is None else row.treatment
    return replace(_in_force(table.scope, name, value, origin, use), topic=of_topic)


def _place(origin: Origin) -> str | None:
    """Return the place of a value as `file:line`, which editors and compilers use, or its name."""
    if origin.file is None:
        return origin.name
    return str(origin.file) if origin.line is None else f"{origin.file}:{origin.line}"


_UNREACHABLE = (MetadataError, RemoteStorageError, AuthenticationError)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesRequest(Request):
    """The names of topics, files, tiers and settings that a command has in its options."""

    may_be_new: bool = False
    """Whether the command creates the metadata topic and the tier if they do not exist."""
    has_topics_of_tier: bool = False
    """Whether the command takes its topics from the tier; they are not checked."""
    plan: Path | None = None
    """A saved plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesResult:
    """Whether the names of topics and tiers were checked: `unchecked` is the reason if they were not."""

    unchecked: str | None = None


def check_names(request: NamesRequest, progress: Progress | None = None) -> NamesResult:
    """Raise the error that the command would end with because of a name in its options.

    Topics are looked for in the metadata, the log directories and the cluster. The state directory is not
    read, because the command may create it. Names can't be checked if the metadata topic is not on this
    machine, or if a server does not answer.
    """
    progress = SilentProgress() if progress is None else progress
    try:
        _open_metadata(request, progress)
    except (*_UNREACHABLE, NotFoundError) as e:
        return NamesResult(unchecked=e.message)
    try:
        _check(request, progress)
    except RemoteTierMissing:
        raise
    except _UNREACHABLE as e:
        return NamesResult(unchecked=e.message)
    return NamesResult()


def _open_metadata(request: NamesRequest, progress: Progress) -> None:
    """Open the metadata topic, if the request names one; raise the error if it can't be opened."""
    if request.metadata is None:
        return
    place = Request(
        metadata=request.metadata, command_config=request.command_config, broker_config=request.broker_config
    )
    with Resources(request=place, progress=progress) as resources:
        resources.metadata_topic(quiet=True)


def _check(request: NamesRequest, progress: Progress) -> None:
    if request.plan is not None:
        read_plan(request.plan)
    with Resources(request=request, progress=progress) as resources:
        state, metadata = TierState(read={}), None
        if request.metadata is not None:
            metadata = resources.metadata(is_whole=True)
            state = metadata.refresh()
        if not request.has_topics_of_tier and (metadata is not None or resources.cluster is not None):
            resources.select_among(state)
        configs, known = resources.topic_configs(), resources.known_topics(state)
        if known:
            require_known_names(configs, known, known - configs.keys())
        if request.remote is not None and metadata is not None:
            may_be_new = request.may_be_new
            require_own_tier(request, resources.remote, metadata, progress, may_be_new=may_be_new)
