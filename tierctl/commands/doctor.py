"""`doctor`: find conditions that would make tiering fail; change nothing in a tier.

Each of the functions below makes the checks of one subject, with the sources that the request names; checks
without a source are reported as not checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from tierctl.checks.check import CheckResults, Examination, Result, fault, not_checked, ok, prevented
from tierctl.checks.environment import (
    ON_CLUSTER,
    ON_METADATA_TOPIC,
    ExecutorFacts,
    SecretFile,
    Versions,
    check_controller,
    check_controller_clock,
    check_event_clock,
    check_index_cache,
    check_leader_epochs,
    check_log_dir,
    check_reached,
    check_rights,
    check_scratch,
    check_secrets,
    check_state_dir_access,
    check_state_dir_space,
    check_topic_rights,
    check_versions,
    profile_file,
    settings_files,
)
from tierctl.checks.registry import CLUSTER, DoctorCheck
from tierctl.checks.settings import (
    Broker,
    check_agreement,
    check_broker_conflicts,
    check_broker_file,
    check_client_file,
    check_custom_metadata,
    check_file,
    check_metadata_partitions,
    check_metadata_replicas,
    check_metadata_settings,
    check_tiered,
    check_topic_conflicts,
    check_topics_file,
    check_version,
    is_tiered,
    is_tiering,
    missing_metadata_topic,
)
from tierctl.checks.store import REFUSALS, examine_store, probe_store
from tierctl.commands.histories import unusable_error
from tierctl.commands.request import DECIDE, Request
from tierctl.commands.resources import Resources, cluster_location, stated_in_file, valid_in_file
from tierctl.errors import EngineError, NotFoundError, TierctlError, UsageError
from tierctl.files import is_file, read_regular
from tierctl.locallog import list_partitions
from tierctl.metadata.daily_changes import RecentWriters, recent_writers
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.model import TopicConfig, TopicPartition
from tierctl.model.choices import EngineName, Severity, private_keys_of
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import admits_topic
from tierctl.model.settings import topic
from tierctl.model.settings.known import FileKind, SettingProblem
from tierctl.model.settings.scopes import LATEST, KafkaVersion, SettingSource, StatedSettings
from tierctl.model.settings.topic import BrokerDefaults
from tierctl.plan.preconditions import require_known_names
from tierctl.spark.executors import examined
from tierctl.spark.fold import newest_events
from tierctl.spark.session.jvm import SPECULATION, SparkSettings, conf_of, is_speculative
from tierctl.state.tier_state import Quarantined
from tierctl.storage.stores.base import store_uri
from tierctl.wire.files.properties import read_client_file, read_topic_configs, require_kind_of_file

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster
    from tierctl.spark.executors.transport import InputResult


def require_topics_of_files(
    resources: Resources, log_dirs: Sequence[Path], stated: Collection[str]
) -> TierctlError | None:
    """Raise NotFoundError for a requested topic that no file has; do nothing beside a cluster.

    `stated` are the topics in --topic-configs; UsageError if their names look mistyped. The metadata are read
    only for a name that the log directories lack; for a requested topic, the error of reading is returned.
    """
    request = resources.request
    if request.has_cluster or not (request.topic_configs or request.metadata or log_dirs):
        return None
    known = {
        each.topic
        for each in list_partitions(each for each in log_dirs if os.access(each / ".", os.R_OK | os.X_OK))
    }
    asked = resources.selection_request
    error = None
    if request.metadata is not None and (asked.unmatched_topics({*stated, *known}) or set(stated) - known):
        try:
            known |= resources.metadata(is_whole=True).refresh().topics
        except TierctlError as e:
            error = e
    if error is None:
        note = require_known_names(stated, known, known.difference(stated))
        if note is not None and known:
            resources.progress.note(note)
    if request.topic and error is None:
        asked.require_topics({*stated, *known})
    return error if request.topic else None


def secret_files(request: DoctorRequest) -> Iterator[SecretFile]:
    """Yield the files that may hold secrets: those of a request, tierctl.toml, and those that it names."""
    own = request.own_settings
    for file in own.with_own("command_config", request):
        if os.access(file, os.R_OK):
            yield from settings_files(file, read_client_file(file))
    for file in own.with_own("broker_config", request):
        if os.access(file, os.R_OK):
            yield from settings_files(file, valid_in_file(file))
    for file in private_keys_of(request.aiven_private_key).values():
        yield SecretFile(file, "a private key")
    if own.file is not None and os.access(own.file, os.R_OK):
        yield profile_file(own.file)
    if (request.remote or "").startswith("s3:"):
        named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        file = Path(named).expanduser()
        if is_file(file):
            yield SecretFile(file, "the keys of AWS clients")


_STORE_CHECKS = tuple(check for check in DoctorCheck if check.startswith("store_"))
_CLUSTER_CHECKS = tuple(check for check in DoctorCheck if CLUSTER in check.row.needs)
_METADATA_TOPIC_CHECKS = (
    DoctorCheck.METADATA_SETTINGS,
    DoctorCheck.METADATA_REPLICAS,
    DoctorCheck.METADATA_RIGHTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """What tierctl.toml and the environment state: their problems, and the files that all profiles name.

    `file` is the tierctl.toml in use, None without one.
    """

    file: Path | None = None
    problems: Sequence[SettingProblem] = ()
    broker_config: Sequence[Path] = ()
    command_config: Sequence[Path] = ()
    topic_configs: Sequence[Path] = ()

    def with_own(self, option: str, request: Request) -> list[Path]:
        """Return the files that profiles and the request name for `option`, each once."""
        named = getattr(request, option)
        return list(dict.fromkeys((*getattr(self, option), *([] if named is None else [named]))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest(Request):
    """A request to check the conditions under which tiering fails."""

    probe_writes: Annotated[
        bool,
        typer.Option(
            help="Also store, replace and delete two small objects, .tierctl-probe-<id>*, in the store of "
            "--remote. Only this shows whether tierctl may write and delete, and whether the store "
            "supports conditional writes and leases. A bucket with versioning keeps these objects as "
            "noncurrent versions.",
            rich_help_panel=DECIDE,
        ),
    ] = False
    skip: Annotated[
        Sequence[DoctorCheck],
        typer.Option(
            metavar="CHECK",
            help="Skip this check, named as in tierctl-doctor(1). It is listed as not checked. Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    own_settings: OwnSettings = field(default=OwnSettings())


def doctor(request: DoctorRequest, progress: Progress | None = None) -> CheckResults:
    """Return one result for each check, including the checks that could not be made.

    Errors of brokers, stores and files become results. UsageError if the request names nothing to check.
    """
    _validate(request)
    examination = Examination(DoctorCheck, skipped=frozenset(request.skip))
    run = _Run(request=request, progress=progress or SilentProgress(), examination=examination)
    run.check_settings_files()
    # An unusable settings file is already among the results; the checks that need no file are still made. A
    # directory that does not exist is a result, too.
    config = None if run.settings is None else request.broker_config
    usable = replace(request, broker_config=config, command_config=None, state_dir=None, log_dir=())
    with Resources(request=usable, progress=run.progress) as run.resources:
        run.resources.request = replace(request, broker_config=config, log_dir=())
        run.check_spark()
        run.check_topic_names()
        run.check_cluster()
        run.check_metadata()
        run.check_store()
        run.check_local_files()
    return examination.complete()


def _validate(request: DoctorRequest) -> None:
    """Raise UsageError if the request names no source to check, or an invalid tier or Spark setting."""
    named = (
        request.metadata,
        request.bootstrap_server,
        request.command_config,
        request.broker_config,
        request.remote,
        request.topic_configs,
        request.state_dir,
        request.kafka_version,
        request.own_settings.file,
        request.own_settings.problems,
    )
    if not any(named) and not request.log_dir and request.engine is EngineName.LOCAL:
        raise UsageError(
            "there is nothing to check",
            hint="name a cluster (--bootstrap-server), a tier (--remote), or files (--broker-config, "
            "--topic-configs, --log-dir, --state-dir), here or in a profile of tierctl.toml",
        )
    if request.probe_writes and request.remote is None:
        raise UsageError("--probe-writes needs --remote", hint="name the tier whose store is to be probed")
    if request.remote is not None:
        # A mistyped option is an error, not a check that could not be made.
        store_uri("--remote", request.remote)
    for file, source in (
        (request.broker_config, SettingSource.BROKER_FILE),
        (request.command_config, SettingSource.CLIENT_FILE),
        (request.topic_configs, SettingSource.FILE),
    ):
        # A file that can't be read is a result of its check.
        with suppress(OSError):
            if file is not None:
                require_kind_of_file(read_regular(file), FileKind.of(source), file)
    if request.engine is EngineName.SPARK:
        SparkSettings(master=request.master, conf=conf_of(request.spark_conf))


@dataclass(kw_only=True)
class _Run:
    """The checks of one run; `settings` is None without a valid --broker-config."""

    request: DoctorRequest
    progress: Progress
    examination: Examination
    resources: Resources = field(init=False)
    settings: StatedSettings | None = None
    topic_configs: dict[str, TopicConfig] = field(default_factory=dict)
    is_tiering: bool | None = None
    """Whether the brokers tier; None if neither a file nor a cluster states it."""

    # Files of settings

    def check_settings_files(self) -> None:
        """Check the files of settings that the request names, and keep their settings for other checks."""
        make, request = self.examination.make, self.request
        own_settings = request.own_settings
        if own_settings.file is not None or own_settings.problems:
            where = str(own_settings.file or "")
            checked = list(check_file(DoctorCheck.TIERCTL_SETTINGS, where, own_settings.problems))
            make([DoctorCheck.TIERCTL_SETTINGS], where, lambda: checked)
        for option, check, examine in (
            ("broker_config", DoctorCheck.BROKER_FILE, self._of_broker_file),
            ("topic_configs", DoctorCheck.TOPIC_FILE, self._of_topics),
            ("command_config", DoctorCheck.CLIENT_FILE, self._of_client),
        ):
            for file in own_settings.with_own(option, request):
                make([check], str(file), partial(examine, file))
        if self.settings is not None and request.broker_config is not None:
            own, source = self.settings, str(request.broker_config)
            names = self.topic_configs.keys() - {METADATA_TOPIC}
            make([DoctorCheck.CUSTOM_METADATA], source, lambda: check_custom_metadata(source, own, names))
        if request.kafka_version is not None:
            version = request.kafka_version
            make([DoctorCheck.BROKER_VERSION], "", lambda: check_version(version, is_tiering=None))

    @property
    def _defaults(self) -> BrokerDefaults:
        """Return the version and the settings of the brokers with which settings in files are checked."""
        settings = valid_in_file(self.request.broker_config) if self.settings is None else self.settings
        return BrokerDefaults(version=self.request.kafka_version or LATEST, settings=settings)

    def _of_broker_file(self, file: Path) -> Iterator[Result]:
        yield from check_file(DoctorCheck.BROKER_FILE, str(file), check_broker_file(file, self._defaults))
        if file == self.request.broker_config:
            found = stated_in_file(file)
            self.settings, self.is_tiering = found, is_tiering(found)

    def _of_client(self, file: Path) -> Iterator[Result]:
        yield from check_file(DoctorCheck.CLIENT_FILE, str(file), check_client_file(file, self._defaults))

    def _of_topics(self, file: Path) -> Iterator[Result]:
        defaults = self._defaults
        enabled = is_tiering(defaults.settings) if defaults.settings else None
        problems = check_topics_file(file, defaults, is_tiering=enabled)
        yield from check_file(DoctorCheck.TOPIC_FILE, str(file), problems)
        if file == self.request.topic_configs:
            self.topic_configs = read_topic_configs(file, self._defaults)
            own = self.topic_configs.get(METADATA_TOPIC)
            if own is not None:
                stated = {name: each.value for name, each in own.stated.items()}
                yield from check_metadata_settings(stated, None, self._defaults.version)

    # Spark

    def check_spark(self) -> None:
        """Check Spark with --engine spark; if it does not work, other checks are made by this process."""
        if self.resources.is_on_spark and not check_spark(self.examination, self.resources):
            self.resources.request = replace(self.resources.request, engine=EngineName.LOCAL)

    def check_topic_names(self) -> None:
        """Raise NotFoundError for a topic that is neither in the files nor in the metadata."""
        unread = require_topics_of_files(self.resources, self.request.log_dir, self.topic_configs)
        if unread is not None:
            where = self.request.metadata or ""
            self.examination.make([DoctorCheck.METADATA_PARTITIONS], where, lambda: _raise(unread))

    # The cluster

    def check_cluster(self) -> None:
        """Check the brokers, the topics and the rights of the cluster that the request names."""
        self.examination.make(_CLUSTER_CHECKS, self._cluster_name, self._of_cluster)

    @property
    def _cluster_name(self) -> str:
        return self.request.bootstrap_server or self.request.metadata or ""

    def _of_cluster(self) -> Iterator[Result]:
        cluster = self.resources.cluster
        if cluster is None:
            return
        self.progress.detail(f"cluster: {cluster.cluster_id()}")
        make, where = self.examination.make, self._cluster_name
        version = cluster.kafka_version()
        found = [Broker(name=name, settings=own) for name, own in cluster.broker_settings().items()]
        readable = [each.settings for each in found if not isinstance(each.settings, TierctlError)]
        if readable:
            self.is_tiering = any(map(is_tiering, readable))
        make([DoctorCheck.BROKER_CONFLICTS], where, lambda: check_broker_conflicts(found, version))
        make([DoctorCheck.BROKERS_AGREE], where, lambda: check_agreement(found))
        tiers, ask = self.is_tiering, cluster.why_tiering_is_refused
        make([DoctorCheck.CONTROLLER_TIERS], where, lambda: check_controller(ask, where, is_tiering=tiers))
        if self.request.kafka_version is None:
            make([DoctorCheck.BROKER_VERSION], where, lambda: check_version(version, is_tiering=tiers))
        clock_ms = self.request.clock_ms
        make(
            [DoctorCheck.CONTROLLER_CLOCK],
            where,
            lambda: check_controller_clock(cluster.leaders.controller_clock, clock_ms),
        )
        yield from self._of_topics_there(cluster, version)

    def _of_topics_there(self, cluster: Cluster, version: KafkaVersion) -> Iterator[Result]:
        """Yield the results about the topics of the cluster, the metadata topic apart."""
        there = cluster.topics()
        internal = there.keys() & INTERNAL_TOPICS
        there.pop(METADATA_TOPIC, None)
        of_cluster = DoctorCheck.CLUSTER_RIGHTS
        self.examination.make(
            [of_cluster],
            "",
            lambda: check_rights(of_cluster, None, cluster.admin.cluster_operations(), ON_CLUSTER),
        )
        self.examination.make(
            _METADATA_TOPIC_CHECKS, METADATA_TOPIC, lambda: self._of_metadata_topic(cluster, version)
        )
        named = {name for name, each in there.items() if not each.is_internal}
        chosen = {name for name in named if admits_topic(self.request.topic, name)}
        asked = self.resources.selection_request
        # The list leaves out topics that this login may not describe; asked for by name, they are refused.
        cluster.topics(set(asked.unmatched_topics(named)))
        asked.require_topics(named)
        with self.progress.bar("reading the settings of topics", unit="objects", total=len(chosen)):
            settings = cluster.topic_settings(chosen)
        internal_tiered = {
            name: own for name, own in cluster.topic_settings(internal).items() if is_tiered(own)
        }
        yield from check_topic_conflicts(settings | internal_tiered, version)
        if self.is_tiering is not None:
            yield from check_tiered(settings, is_tiering=self.is_tiering)
        tiered = {name for name, each in settings.items() if is_tiered(each)}
        yield from check_topic_rights(cluster.admin.operations(tiered or chosen))

    def _of_metadata_topic(self, cluster: Cluster, version: KafkaVersion) -> Iterator[Result]:
        facts = cluster.topics([METADATA_TOPIC]).get(METADATA_TOPIC)
        if facts is None:
            yield from missing_metadata_topic(self.is_tiering)
            reason = f"{METADATA_TOPIC} does not exist"
            for check in (DoctorCheck.METADATA_REPLICAS, DoctorCheck.METADATA_RIGHTS):
                yield not_checked(check, METADATA_TOPIC, reason)
            return
        allowed = cluster.admin.operations([METADATA_TOPIC])[METADATA_TOPIC]
        yield from check_rights(DoctorCheck.METADATA_RIGHTS, METADATA_TOPIC, allowed, ON_METADATA_TOPIC)
        settings = cluster.topic_settings([METADATA_TOPIC])[METADATA_TOPIC]
        if isinstance(settings, TierctlError):
            yield prevented(DoctorCheck.METADATA_SETTINGS, METADATA_TOPIC, settings)
            yield prevented(DoctorCheck.METADATA_REPLICAS, METADATA_TOPIC, settings)
            return
        fewest_replicas = min(len(each.replicas) for each in facts.partitions)
        yield from check_metadata_settings(settings, fewest_replicas, version)
        yield from check_metadata_replicas(facts, topic.MIN_INSYNC_REPLICAS.value(settings), version)

    # The metadata topic's events

    def check_metadata(self) -> None:
        """Check the number of metadata partitions, and the times of their newest events."""
        if self.request.metadata is not None:
            checks = (DoctorCheck.METADATA_PARTITIONS, DoctorCheck.EVENT_CLOCK)
            self.examination.make(checks, self.request.metadata, self._of_metadata)

    def _of_metadata(self) -> Iterator[Result]:
        try:
            read = self.resources.metadata_topic(complete=False, quiet=True)
        except NotFoundError as e:
            if self.resources.cluster is None:
                # The folder is mistyped; for a cluster, `check_cluster` decides whether a missing topic is a
                # fault.
                raise
            for check in (DoctorCheck.METADATA_PARTITIONS, DoctorCheck.EVENT_CLOCK):
                yield not_checked(check, self.request.metadata or "", e.message)
            return
        source = str(self.request.broker_config)
        yield from check_metadata_partitions(read.partition_count, self.settings or {}, source)
        now_ms = self.request.clock_ms()
        ends = read.end_offsets()
        latest: dict[int, int] = {}
        unusable: Quarantined | None = None
        with self.progress.bar("reading the newest events", unit="tasks", total=len(ends)) as advance:
            for writers in self._newest_events(read, ends, now_ms):
                for writer, at_ms in writers.latest.items():
                    latest[writer] = max(at_ms, latest.get(writer, at_ms))
                unusable = unusable or writers.unusable
                advance(1)
        error = None if unusable is None else unusable_error(unusable)
        yield from check_event_clock(latest, now_ms, error)

    def _newest_events(
        self, read: MetadataTopic, ends: Mapping[int, int], since_ms: int
    ) -> Iterator[RecentWriters]:
        """Yield the brokers that wrote to each metadata partition after `since_ms`, up to `ends`."""
        begins, resources = read.beginning_offsets(), self.resources
        if resources.is_on_spark:
            location = resources.metadata_location
            return newest_events(resources.executors, location, begins, ends, since_ms)
        return (recent_writers(read, each, begins[each], end, since_ms) for each, end in sorted(ends.items()))

    # The store

    def check_store(self) -> None:
        """Check the store of the tier."""
        remote, clock_ms = self.request.remote, self.request.clock_ms
        if remote is None:
            return
        try:
            tier = self.resources.remote.without_retry()
        except REFUSALS as e:
            error, hint = e, e.hint
            refused = fault(DoctorCheck.STORE_LIST, remote, e.message, fix=hint)
            self.examination.make([DoctorCheck.STORE_LIST], remote, lambda: [refused])
            others = [each for each in _STORE_CHECKS if each is not DoctorCheck.STORE_LIST]
            self.examination.make(others, remote, lambda: _raise(error))
        except TierctlError as e:
            failure = e
            self.examination.make(_STORE_CHECKS, remote, lambda: _raise(failure))
        else:
            is_probed = self.request.probe_writes
            examine_store(self.examination, tier, clock_ms, is_probed=is_probed)
            if is_probed:
                probe_store(self.examination, tier, clock_ms)

    # Local files

    def check_local_files(self) -> None:
        """Check the state directory, the log directories, and files with secrets."""
        make, folder = self.examination.make, self.request.state_dir
        if folder is not None:
            make([DoctorCheck.STATE_DIR_ACCESS], str(folder), lambda: check_state_dir_access(folder))
            make([DoctorCheck.STATE_DIR_SPACE], str(folder), lambda: check_state_dir_space(folder))
        select = self._selects
        for each in self.request.log_dir:
            checks = (DoctorCheck.LOG_DIR_ACCESS, DoctorCheck.LOG_SNAPSHOTS)
            make(checks, str(each), partial(check_log_dir, each, select))
            make([DoctorCheck.INDEX_CACHE], str(each), partial(check_index_cache, each))
            if self.request.metadata is not None:
                make([DoctorCheck.LEADER_EPOCHS], str(each), partial(self._of_leader_epochs, each))
        make([DoctorCheck.SECRETS], "", lambda: check_secrets(secret_files(self.request)))

    def _of_leader_epochs(self, folder: Path) -> Iterator[Result]:
        state = self.resources.metadata().refresh()
        unusable = next(map(unusable_error, state.quarantined), None)
        return check_leader_epochs(folder, self._selects, state, unusable)

    def _selects(self, partition: TopicPartition) -> bool:
        return admits_topic(self.request.topic, partition.topic)


def _raise(error: TierctlError) -> Iterator[Result]:
    raise error


WAIT_S = 120.0
"""How long to wait for the first task: a queue of YARN or Kubernetes may start executors slowly."""


def executor_facts(resources: Resources) -> dict[str, list[ExecutorFacts]]:
    """Return what the tasks found on their executors, by host.

    Raise the first error of an executor, and EngineError if Spark does not start or runs no task in time.
    """
    executors = resources.executors
    deadline_s = time.monotonic() + WAIT_S
    found: dict[str, list[ExecutorFacts]] = {}
    try:
        probes = executors.probe_each(examined.executor_facts, stopped=lambda: time.monotonic() > deadline_s)
    except EngineError as e:
        if time.monotonic() <= deadline_s:
            raise
        raise EngineError(
            f"no executor has finished a task within {WAIT_S:.0f} s",
            hint="check that the Spark cluster has free cores and memory for an executor",
        ) from e
    for each in probes:
        if each.error is not None:
            raise each.error
        if each.value is not None:
            found.setdefault(each.host, []).append(each.value)
    return found


def check_spark(examination: Examination, resources: Resources) -> bool:
    """Check Spark, its executors, and the sources that they reach; return whether executors can work."""
    if check_executors(examination, resources):
        check_sources(examination, resources)
        return True
    request = resources.request
    named = {
        DoctorCheck.SPARK_CLUSTER: cluster_location(request),
        DoctorCheck.SPARK_METADATA: request.metadata,
        DoctorCheck.SPARK_STORE: request.remote,
    }
    for check, source in named.items():
        if source is not None:
            examination.add(not_checked(check, "", "no executor works"))
    return False


def check_executors(examination: Examination, resources: Resources) -> bool:
    """Start Spark and check its session, and versions and space of the executors; return whether they work.

    Spark's own errors are faults of `spark_session`, and errors of jobs are faults of `spark_python`.
    """
    where = resources.request.master or ""
    try:
        session = resources.spark
    except TierctlError as e:
        examination.add(fault(DoctorCheck.SPARK_SESSION, where, e.message, fix=e.hint))
        for check in (DoctorCheck.SPARK_PYTHON, DoctorCheck.SPARK_SCRATCH):
            examination.add(not_checked(check, where, "the Spark session did not start"))
        return False
    where = str(session.conf.get("spark.master", None) or where)
    try:
        found = executor_facts(resources)
    except TierctlError as e:
        examination.add(ok(DoctorCheck.SPARK_SESSION, where, f"Spark {session.version} started"))
        examination.add(fault(DoctorCheck.SPARK_PYTHON, where, e.message, fix=e.hint))
        examination.add(not_checked(DoctorCheck.SPARK_SCRATCH, where, "no executor works"))
        return False
    examination.add(_of_session(session.version, where, session.conf.get(SPECULATION, None), found))
    examination.make([DoctorCheck.SPARK_PYTHON], where, lambda: check_versions(found, Versions.here()))
    examination.make([DoctorCheck.SPARK_SCRATCH], where, lambda: check_scratch(found))
    return True


def _of_session(
    version: str, where: str, speculation: str | None, found: Mapping[str, Sequence[ExecutorFacts]]
) -> Result:
    tasks = sum(map(len, found.values()))
    text = f"Spark {version}, tasks at a time: {tasks} on hosts: {len(found)}"
    if not is_speculative(speculation):
        return ok(DoctorCheck.SPARK_SESSION, where, text)
    return fault(
        DoctorCheck.SPARK_SESSION,
        where,
        f"{SPECULATION} is on",
        severity=Severity.WARNING,
        why="copy, sweep, delete and apply refuse this session: no segment may be stored or deleted twice "
        "at a time.",
        fix="set spark.speculation=false where the session is started",
    )


def check_sources(examination: Examination, resources: Resources) -> None:
    """Check that executors reach the cluster, the metadata topic and the store that the request names.

    A source that the driver can't reach itself is not examined: other checks report its error.
    """
    finders = {
        DoctorCheck.SPARK_CLUSTER: _driver_cluster,
        DoctorCheck.SPARK_METADATA: _driver_metadata,
        DoctorCheck.SPARK_STORE: _tier_to_inspect,
    }
    found: dict[DoctorCheck, dict[str, Any]] = {}
    for check, find in finders.items():
        try:
            found[check] = find(resources)
        except (TierctlError, OSError) as e:
            reason = e.message if isinstance(e, TierctlError) else str(e)
            examination.add(not_checked(check, "", f"the driver can't reach it either: {reason}"))
    wanted = [check for check, facts in found.items() if facts]
    if wanted:
        sources = examined.Sources(**{name: each for facts in found.values() for name, each in facts.items()})
        examination.make(wanted, "", lambda: _reached(resources, sources, wanted))


def _reached(
    resources: Resources, sources: examined.Sources, wanted: Sequence[DoctorCheck]
) -> Iterator[Result]:
    """Yield the results of the executors about the sources of the checks `wanted`."""
    probes = resources.executors.probe_each(partial(examined.reach_sources, sources, uuid4().hex))
    for check in wanted:
        yield from check_reached(check, ((each.host, _found(each, check)) for each in probes))


def _found(probe: InputResult[dict[str, str | TierctlError]], check: DoctorCheck) -> str | TierctlError:
    if probe.value is not None:
        return probe.value[check.value]
    return probe.error or EngineError("the executor returned nothing")


def _driver_cluster(resources: Resources) -> dict[str, Any]:
    """Return the cluster of the request and its id as fields of `Sources`; empty without a cluster."""
    location, cluster = cluster_location(resources.request), resources.cluster
    if location is None or cluster is None:
        return {}
    return {"cluster": location, "cluster_id": cluster.cluster_id()}


def _driver_metadata(resources: Resources) -> dict[str, Any]:
    """Return the metadata topic of the request and its end as fields of `Sources`; empty without one."""
    if resources.request.metadata is None:
        return {}
    topic = resources.metadata_topic(complete=False, quiet=True)
    return {"metadata": resources.metadata_location, "end_offsets": topic.end_offsets()}


def _tier_to_inspect(resources: Resources) -> dict[str, Any]:
    """Return the tier of the request and one of its objects as fields of `Sources`; empty without one."""
    if resources.request.remote is None:
        return {}
    tier = resources.remote.without_retry()
    keys = (each.key for each in tier.list_objects() if each.problem is None and each.size_bytes)
    return {"tier": resources.tier_spec(), "key": next(keys, None)}
