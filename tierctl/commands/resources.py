"""Resources: the objects that a request names, opened on first use and closed together.

The broker settings of a run come from a broker's own file and from what the operator overrides. No other
module of `commands` reads such a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from tierctl import kernel, locallog
from tierctl.apply.run_context import calling_on_signals
from tierctl.apply.tier_check import tier_contents
from tierctl.commands.request import MutationRequest, Request
from tierctl.errors import ExitCode, NotFoundError, TierctlError, UsageError
from tierctl.metadata import RemoteLogMetadataManager, open_metadata
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.server_properties import broker_file
from tierctl.metadata.state_dir import require_usable
from tierctl.metadata.topic import IfMissing, MetadataTopic, open_topic, topic_location
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import (
    LocalLog,
    Selection,
    SelectionRequest,
    TopicConfig,
    TopicIdPartition,
)
from tierctl.model.checked_values import require_file, require_no_file
from tierctl.model.choices import EngineName, private_keys_of
from tierctl.model.conflicts import Conflict, broker_conflicts, internal_topic_conflicts
from tierctl.model.local import ClusterLog
from tierctl.model.location import BOOTSTRAP_SERVER, METADATA, TopicLocation
from tierctl.model.progress import WAITS, Progress
from tierctl.model.selection import names_text
from tierctl.model.settings import broker
from tierctl.model.settings.known import (
    UnknownName,
    did_you_mean,
    require_bounds,
    require_manager_prefix,
    unknown_client_names,
    unknown_name_text,
    unknown_names,
)
from tierctl.model.settings.scopes import (
    LATEST,
    KafkaVersion,
    Origin,
    SettingSource,
    StatedSettings,
    place_of,
    without_unit,
)
from tierctl.model.settings.topic import BrokerDefaults, unused_settings
from tierctl.plan.preconditions import TierContents, check_tier, require_known_names
from tierctl.storage import store_uri
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager, RetrySettings
from tierctl.storage.throttle import FetchCounts
from tierctl.wire.files.properties import read_client_file, read_topic_configs

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster
    from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
    from tierctl.metadata.parallel_fold import FoldResult, FoldRunner, FoldTask
    from tierctl.read.partition_reader import ReadablePartition
    from tierctl.read.readable_log import ReadableLog
    from tierctl.read.segment import IndexFetcher
    from tierctl.spark.executors.transport import Executors
    from tierctl.spark.session.jvm import SparkSettings
    from tierctl.spark.session.open import Session
    from tierctl.state.tier_state import TierState

_OVERRIDE = Origin(source=SettingSource.OPTION, name="--override")
_KEY_HINT = "name a file with an RSA private key in PEM that this user may read, as [ID=]FILE"
_OPTIONS = (
    ("throttle_copy", broker.COPY_MAX_BYTES_PER_SECOND),
    ("throttle_fetch", broker.FETCH_MAX_BYTES_PER_SECOND),
)
"""Fields of a request that state a broker setting, which win over `override`."""


def resolve_broker_settings(request: Request, progress: Progress) -> StatedSettings:
    """Return the settings of the file `broker_config`, of `override` and of options, the last above all.

    Note settings in the file that no version of Kafka knows. Raise UsageError for a value that brokers
    refuse, and for an unknown setting in `override`. Values in the file that are overridden are not used and
    not checked.
    """
    stated = StatedSettings({}, {}) if request.broker_config is None else broker_file(request.broker_config)
    for unknown in unknown_names(stated):
        text = f"{place_of(stated, unknown.name)}: {unknown_name_text(unknown)}"
        _report_unknown(request, progress, unknown, text)
    settings = stated | _overrides(request.override, stated) | _of_options(request)
    require_bounds(settings, str(request.broker_config or "--override"))
    if request.is_mutating:
        _require_no_conflict(settings, broker_conflicts(settings))
    return settings


def _report_unknown(request: Request, progress: Progress, unknown: UnknownName, text: str) -> None:
    """Note an unknown name; UsageError if it is misspelt, and the command of `request` changes something."""
    hint = did_you_mean(unknown.nearest, "")
    if unknown.is_misspelt and request.is_mutating:
        raise UsageError(text, hint=hint)
    progress.note(f"{text}; {hint}" if hint else text)


def _require_no_conflict(
    settings: Mapping[str, str], conflicts: Iterable[Conflict], subject: str = ""
) -> None:
    """Raise UsageError for the first of `conflicts` with which a command that changes something ends."""
    for found in conflicts:
        row = found.kind.row
        if row.ends_run:
            where = place_of(settings, found.names[0], subject)
            raise UsageError(f"{where}: {found.found}: {row.meaning}", hint=row.fix)


def stated_in_file(path: Path) -> StatedSettings:
    """Return the settings in a broker's file; UsageError if it can't be read or states a wrong value."""
    stated = broker_file(path)
    require_bounds(stated, str(path))
    return stated


def valid_in_file(path: Path | None) -> StatedSettings:
    """Return the settings in a broker's file whose values are valid; empty if it can't be read.

    For checks of other files, which report the problems of this one elsewhere.
    """
    try:
        stated = StatedSettings({}, {}) if path is None else broker_file(path).stripped()
    except TierctlError:
        return StatedSettings({}, {})
    return stated.only({name: name for name in stated if _is_valid(name, stated[name])})


def _is_valid(name: str, value: str) -> bool:
    row = broker.TABLE.rows.get(name)
    try:
        if row is not None:
            row.parse(value)
    except TierctlError:
        return False
    return True


def _of_options(request: Request) -> StatedSettings:
    """Return the broker settings for which the request has separate options."""
    found = StatedSettings({}, {})
    for name, row in _OPTIONS:
        value = getattr(request, name)
        if value is not None:
            origin = Origin(source=SettingSource.OPTION, name=f"--{name.replace('_', '-')}")
            found |= StatedSettings({row.name: str(value)}, {row.name: origin})
    return found


def _overrides(texts: Sequence[str], in_file: Mapping[str, str]) -> StatedSettings:
    """Return the settings in `texts`, NAME=VALUE each; UsageError for one that no broker has, or uses."""
    values = dict(_parted(text) for text in texts)
    require_manager_prefix(values, in_file)
    for unknown in unknown_names(values):
        hint = did_you_mean(unknown.nearest, "expected the name of a broker's setting")
        raise UsageError(f'--override: unknown setting "{unknown.name}"', hint=hint)
    return StatedSettings(values, dict.fromkeys(values, _OVERRIDE))


def _parted(text: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE; UsageError for another form."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--override {name}: expected NAME=VALUE", hint="as --override chunk.size=4194304")
    return name.strip(), without_unit(name.strip(), value.strip(), "--override")


def require_named_files(request: Request) -> None:
    """Raise UsageError or, for a missing log directory, NotFoundError for what can't be read.

    Those that its command would not read are included: a mistyped name is an error everywhere. For the state
    directory, whose cached indexes every command may delete, raise the errors of `require_usable`.
    """
    for folder in request.log_dir:
        locallog.require_folder(folder)
    if request.state_dir is not None:
        require_no_file("--state-dir", request.state_dir)
        require_usable(request.state_dir)
    for file in private_keys_of(request.aiven_private_key).values():
        require_file("--aiven-private-key", file, hint=_KEY_HINT)


def cluster_location(request: Request) -> TopicLocation | None:
    """Return the location of the cluster that has the topics, for executors; None without a cluster."""
    servers = request.cluster_servers
    if servers is None:
        return None
    option, uri = METADATA, servers
    if request.bootstrap_server is not None:
        option, uri = BOOTSTRAP_SERVER, f"kafka://{servers}"
    return topic_location(
        option, uri, command_config=request.command_config, broker_config=request.broker_config
    )


# A run with several kinds of errors ends with the exit code that is first in this list.
_MOST_SEVERE_FIRST = (ExitCode.CORRUPT, ExitCode.NOT_FOUND, ExitCode.LIMIT)


class ToleratedErrors:
    """Collects errors that did not end a run, and passes each to `show` immediately."""

    def __init__(self, show: Callable[[TierctlError], None]) -> None:
        self._show = show
        self._codes: set[ExitCode] = set()
        self.count = 0

    def report(self, error: TierctlError) -> None:
        """Record and show one error."""
        self.count += 1
        self._codes.add(error.exit_code)
        self._show(error)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the most severe error; OK without errors."""
        for code in _MOST_SEVERE_FIRST:
            if code in self._codes:
                return code
        return min(self._codes, default=ExitCode.OK)

    def exit_code_of(self, *, has_read: bool) -> ExitCode:
        """Return the exit code of a run that `has_read` data: only one that read none lacks the rights."""
        code = self.exit_code
        return ExitCode.CORRUPT if has_read and code is ExitCode.AUTHENTICATION else code


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)
T = TypeVar("T")


@dataclass(kw_only=True)
class Resources:
    """Open the sources of `request` when they are first used; close all at the end of the `with` block.

    Errors that do not end the run are added to `problems`, which decides a reading command's exit code.
    """

    request: Request
    progress: Progress
    problems: ToleratedErrors = field(init=False)
    _selection: Selection | None = field(default=None, init=False, repr=False)
    _is_tier_known: bool = field(default=False, init=False, repr=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def __post_init__(self) -> None:
        self.problems = ToleratedErrors(self.progress.problem)

    def __enter__(self) -> Self:
        self._open.enter_context(kernel.reported(self._note_slowness))
        self._open.enter_context(WAITS.reported(self.progress.say, from_s=lambda: self.progress.waits_from_s))
        # A wrong setting ends the run before any source is opened.
        if self.request.states_broker_settings:
            _ = self.broker_settings
        if self.is_on_spark:
            _ = self._spark_settings
        require_named_files(self.request)
        self._check_client_file()
        return self

    def _note_slowness(self, why: str) -> None:
        self.progress.note(f"{why}: pip install numba" if why == kernel.WITHOUT_NUMBA else why)

    def _check_client_file(self) -> None:
        """Note misspelt names in the client's file; UsageError if the command changes something."""
        if self.request.command_config is None:
            return
        stated = read_client_file(self.request.command_config)
        for unknown in unknown_client_names(stated):
            if unknown.is_misspelt:
                text = (
                    f'{place_of(stated, unknown.name)}: no client of Kafka has the setting "{unknown.name}"'
                )
                _report_unknown(self.request, self.progress, unknown, text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The exception is passed to the resources' own `__exit__`, where Spark's errors are translated.
        self._open.__exit__(kind, error, trace)

    def _closing(self, opened: C) -> C:
        self._open.callback(opened.close)
        return opened

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Enter `context`, which is left when the other resources are closed."""
        return self._open.enter_context(context)

    @cached_property
    def broker_settings(self) -> StatedSettings:
        """The broker settings of `broker_config`, `override` and options that state one; empty if none do."""
        if not self.request.states_broker_settings:
            return StatedSettings({}, {})

        return resolve_broker_settings(self.request, self.progress)

    @property
    def is_on_cluster(self) -> bool:
        """Return whether `metadata` is a topic on a cluster."""
        return required("--metadata", self.request.metadata).startswith("kafka:")

    @property
    def metadata_location(self) -> TopicLocation:
        """Return the location of the metadata topic, also for executors; UsageError if it is missing."""
        return topic_location(
            self.request.metadata_option,
            required("--metadata", self.request.metadata),
            command_config=self.request.command_config,
            broker_config=self.request.broker_config,
            log_dirs=self.request.log_dir,
        )

    def metadata(
        self,
        *,
        writable: bool = False,
        may_be_new: bool = False,
        is_whole: bool = False,
        kept: Kept = Kept.SEGMENTS,
        make_topic: bool = False,
        folder: FolderSettings | None = None,
    ) -> TopicBasedRemoteLogMetadataManager:
        """Open the RemoteLogMetadataManager over the metadata topic; `writable` takes the writer's lock.

        If `is_whole`, the whole topic is read, also with a state directory. `kept` is what executors return
        of the segments. `make_topic` makes a topic on a cluster. Raise NotFoundError for a folder without one
        unless it `may_be_new` (then it is made when `writable`), and UsageError for a `writable` topic in a
        store. Others are as for `open_metadata`.
        """
        self.progress.detail(f"metadata topic: {self.metadata_location.uri}")
        if_missing = IfMissing.EMPTY if may_be_new else IfMissing.FAIL
        if writable and (make_topic if self.is_on_cluster else may_be_new):
            if_missing = IfMissing.CREATE
        manager = self._closing(
            open_metadata(
                self.metadata_location,
                state_dir=None if is_whole else self.request.state_dir,
                writable=writable,
                if_missing=if_missing,
                on_torn=self.progress.note,
                on_note=lambda note: self.progress.say(f"state directory: {note}"),
                fold_runner=self._bulk_fold(),
                kept=kept,
                folder=folder,
                reading=lambda total: self.progress.bar("reading metadata", unit="events", total=total),
            )
        )
        if on_topics := self.request.on_topics:
            self._open.callback(lambda: on_topics(manager.state.topics))
        return manager

    def _bulk_fold(self) -> FoldRunner | None:
        """Return the fold on executors, which reads the topic first; None on the local engine."""
        return self._fold_on_executors if self.is_on_spark else None

    def _fold_on_executors(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Implement `FoldRunner.__call__`: the session starts with the first call."""
        from tierctl.spark.fold import SparkFold

        yield from SparkFold(self.executors, self.metadata_location)(tasks)

    def inspect_tier(self, metadata: RemoteLogMetadataManager) -> None:
        """Call `require_own_tier` once, if the request names a tier."""
        if self.request.remote is not None and not self._is_tier_known:
            require_own_tier(self.request, self.remote, metadata, self.progress)
            self._is_tier_known = True

    def metadata_topic(self, *, complete: bool = True, quiet: bool = False) -> MetadataTopic:
        """Open the metadata topic for reading its records.

        Unless `complete`, a folder with only some partitions and a single segment file are accepted too. If
        `quiet`, nothing is reported about logs that end in an unfinished write.
        """
        on_torn = None if quiet else self.progress.note
        return self._closing(open_topic(self.metadata_location, complete=complete, on_torn=on_torn))

    @cached_property
    def cluster(self) -> Cluster | None:
        """The cluster that has the topics, as `Request.cluster_servers`; None without one."""
        servers = self.request.cluster_servers
        if servers is None:
            return None
        from tierctl.kafka.cluster import Cluster
        from tierctl.metadata.server_properties import cluster_client

        return self._closing(
            Cluster(
                cluster_client(
                    servers,
                    command_config=self.request.command_config,
                    broker_config=self.request.broker_config,
                ),
                self.request.kafka_version,
            )
        )

    @cached_property
    def remote(self) -> RemoteStorageManager:
        """The remote tier, with the broker settings of `broker_config`; one for the whole run."""
        spec = self.tier_spec()
        self.progress.detail(f"tier: {spec.uri}")
        return self.open_tier(spec)

    def open_tier(self, spec: TierSpec) -> RemoteStorageManager:
        """Open a tier and close it with the other resources."""
        remote = self._closing(open_tier(spec, throttle=self.request.throttle))
        meter = self.request.meter
        if meter is not None:
            counts = remote.fetches = FetchCounts()
            self._open.callback(lambda: meter.count_fetches(counts.take()))
        if spec.throttle.is_limited:
            self._open.enter_context(calling_on_signals(self.request.throttle.stop))
        return remote

    def tier_spec(self) -> TierSpec:
        """Return how to open the remote tier, by the broker settings.

        Failed calls are repeated as the settings say: up to --attempts by a command that may change the tier,
        by others not at all for a folder.
        """
        uri = store_uri("--remote", required("--remote", self.request.remote))
        retry = None
        if isinstance(self.request, MutationRequest):
            retry = RetrySettings.from_settings(self.broker_settings, attempts=self.request.attempts)
        return TierSpec.from_settings(
            uri,
            self.broker_settings,
            layout=self.request.layout,
            private_keys=private_keys_of(self.request.aiven_private_key),
            retry=retry,
        )

    @cached_property
    def indexes(self) -> IndexFetcher:
        """The source of the tier's indexes; with a state directory they are kept in a bounded cache there."""
        if self.request.state_dir is None:
            from tierctl.read.segment import UncachedIndexes

            return UncachedIndexes(self.remote)
        from tierctl.storage.index_cache import RemoteIndexCache

        return RemoteIndexCache(self.request.state_dir, self.remote, settings=self.broker_settings)

    def readable_log(
        self,
        partition: ReadablePartition,
        log_start_offset: int | None = None,
        report: Callable[[TierctlError], None] | None = None,
        leader: ClusterLog | None = None,
    ) -> ReadableLog:
        """Return a partition's readable records, as `ReadableLog.of`; `report` defaults to problems."""
        from tierctl.read.readable_log import ReadableLog

        return ReadableLog.of(
            partition.topic_id_partition,
            partition.cache,
            partition.logs,
            remote=self.remote,
            fetcher=self.indexes,
            report=self.problems.report if report is None else report,
            log_start_offset=log_start_offset,
            leader=leader,
        )

    def logs_if_given(self, *, is_tolerant: bool = False) -> list[LocalLog]:
        """Read the selected logs of the log directories; empty if none is given.

        If `is_tolerant`, an unreadable log becomes a problem, and the others are returned.
        """
        if not self.request.log_dir:
            return []
        from tierctl.commands.local_logs import read_local_logs

        select = self.selection_request.may_select
        on_error = self._report_unread if is_tolerant else None
        logs = read_local_logs(self.request.log_dir, self.progress, select=select, on_error=on_error)
        selected = [log for log in logs if log.topic_id_partition in self.selection]
        for log in selected:
            if log.damaged_end is not None:
                self.problems.report(log.damaged_end)
        return selected

    def _report_unread(self, folder: Path, error: TierctlError) -> None:
        error.message += f"; offsets that only {folder} has are left out"
        self.problems.report(error)

    def topic_configs(self) -> dict[str, TopicConfig]:
        """Read the settings by topic of `topic_configs`; empty if it is not given.

        Unstated settings have the defaults of a broker with the broker settings of the request.
        """
        if self.request.topic_configs is None:
            return {}
        file, trusted = self.request.topic_configs, self.request.is_binding
        found = read_topic_configs(file, self.broker_defaults(), trusted=trusted)
        for name, config in found.items() if self.request.is_mutating else ():
            values = config.stated.items()
            stated = StatedSettings(
                {setting: each.value for setting, each in values},
                {setting: each.origin for setting, each in values if each.origin},
            )
            conflicts = internal_topic_conflicts(name, stated)
            _require_no_conflict(stated, conflicts, f"{self.request.topic_configs}: topic {name}")
        return found

    def note_unused(self, in_force: Mapping[str, TopicConfig]) -> None:
        """Note which settings in --topic-configs are not used: those `in_force` by topic are others."""
        unused = unused_settings(self.topic_configs(), in_force)
        if unused:
            self.progress.note(
                f"--topic-configs: not used, because the cluster has other values: {names_text(unused)}"
            )

    def check_topic_names(
        self, stated: Collection[str], known: Collection[str], without_settings: Collection[str]
    ) -> None:
        """Note which topics in --topic-configs, `stated`, are not `known`; UsageError if they look mistyped.

        `without_settings` are the selected topics that have no settings.
        """
        note = require_known_names(stated, known, without_settings)
        if note is not None:
            self.progress.note(note)

    def broker_defaults(self) -> BrokerDefaults:
        """Return the defaults of topic settings that a broker with the broker settings has."""
        return BrokerDefaults(version=self.kafka_version, settings=self.broker_settings)

    @cached_property
    def kafka_version(self) -> KafkaVersion:
        """The version of the brokers to follow: the requested one, else the cluster's, else LATEST."""
        if self.request.kafka_version is not None:
            return self.request.kafka_version
        return LATEST if self.cluster is None else self.cluster.kafka_version()

    def known_topics(self, state: TierState) -> set[str]:
        """Return the names of the topics that the metadata or the log directories have."""
        return {p.topic for p in self.partitions_in_logs} | state.topics

    @cached_property
    def partitions_in_logs(self) -> frozenset[TopicIdPartition]:
        """The partitions that have a folder in the log directories, as `list_partitions` found them first."""
        return frozenset(locallog.list_partitions(self.request.log_dir))

    @property
    def is_on_spark(self) -> bool:
        """Whether the work is done on Spark."""
        return self.request.engine is EngineName.SPARK

    @cached_property
    def _spark_settings(self) -> SparkSettings:
        """The settings of the session; UsageError for those with which Spark can't start."""
        from tierctl.spark.session.jvm import SparkSettings, conf_of

        request = self.request
        return SparkSettings(
            master=request.master,
            conf=conf_of(request.spark_conf),
            changes_things=request.is_mutating,
            verbose=request.verbose,
            command=request.command_name,
        )

    @cached_property
    def spark(self) -> Session:
        """The Spark session of `master` and `spark_conf`; EngineError if the master does not answer."""
        if not self.is_on_spark:
            raise UsageError("this needs Spark", hint="add --engine spark")
        from tierctl.spark.session.open import opened_session

        begun_s = time.monotonic()
        session = self._open.enter_context(opened_session(self._spark_settings))
        self.progress.detail(f"Spark: ready after {time.monotonic() - begun_s:.1f} s")
        return session

    @cached_property
    def executors(self) -> Executors:
        """The executors of the Spark session."""
        from tierctl.spark.executors.transport import Executors

        return Executors(
            self.spark,
            command=self.request.command_name,
            on_transfers=self.request.add_transfers,
            on_note=self.progress.note,
        )

    @cached_property
    def selection_request(self) -> SelectionRequest:
        """The topics, partitions and topic ids of the request, not yet compared with existing ones."""
        asked = self.request
        return SelectionRequest.of(topics=asked.topic, partitions=asked.partition, topic_ids=asked.topic_id)

    def resolve_selection(self, *known: Iterable[TopicIdPartition]) -> Selection:
        """Resolve the request's selection among the `known` partitions, and store it in `selection`.

        Raise NotFoundError, with similar known names, for a topic, partition or topic id without a match.
        """
        self._selection = self.selection_request.resolve(chain(*known))
        return self._selection

    def select_among(self, state: TierState) -> Selection:
        """Resolve the selection among the partitions of `state`, of the log directories and of the cluster.

        The cluster is asked about all topics for a glob; otherwise about the named topics only, and only if
        the other two do not have them all.
        """
        asked = self.selection_request
        at_hand: set[TopicIdPartition] = set()
        if asked.narrows:
            at_hand = {part.topic_id_partition for part in state} | self.partitions_in_logs
        try:
            if not asked.globs or self.cluster is None:
                return self.resolve_selection(at_hand)
        except NotFoundError:
            if self.cluster is None:
                for missing in state.missing:
                    self.progress.note(f"{missing}; the missing events may name other topics")
                raise
        topics = self.cluster.topics(None if asked.globs else asked.topics)
        return self.resolve_selection(at_hand, *(topic.topic_id_partitions for topic in topics.values()))

    @property
    def selection(self) -> Selection:
        """The selected user partitions; available once `resolve_selection` was called."""
        if self._selection is None:
            raise RuntimeError("the selection is used before it is resolved")
        return self._selection

    @cached_property
    def now_ms(self) -> int:
        """The time as of which to decide, read once from the clock if it is not given."""
        return self.request.clock_ms() if self.request.now_ms is None else self.request.now_ms


def require_own_tier(
    request: Request,
    remote: RemoteStorageManager,
    metadata: RemoteLogMetadataManager,
    progress: Progress,
    *,
    may_be_new: bool = False,
) -> TierContents:
    """Return facts about `remote`; raise an error if it is not the tier of `metadata`, whose state was read.

    With `may_be_new`, the tier need not exist while the metadata has no finished segment. A request that
    changes nothing accepts missing objects in a tier with a matching identity.
    """
    contents = tier_contents(remote, metadata.state, may_be_new=may_be_new)
    changes = request if isinstance(request, MutationRequest) else None
    note = check_tier(
        contents,
        metadata.identity(),
        is_reading=not request.is_mutating,
        allow_missing_objects=changes is not None and changes.allow_missing_objects,
        adopt=changes is not None and changes.adopt_tier,
    )
    if note is not None:
        progress.note(note)
    return contents


def required(option: str, value: T | None) -> T:
    """Return `value`; if it is None, raise UsageError with the ways to give `option`."""
    if value is None:
        variable = "TIERCTL_" + option.strip("-").replace("-", "_").upper()
        cluster = "; --bootstrap-server names the topic of a cluster" if option == "--metadata" else ""
        raise UsageError(
            f"{option} is missing",
            hint=f"give it here, as {variable}, or in a profile of tierctl.toml{cluster}",
        )
    return value
