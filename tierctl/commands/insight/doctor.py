"""`doctor`: find conditions that would make tiering fail; change nothing in a tier.

Each of the functions below makes the checks of one subject, with the sources that the request names; checks
without a source are reported as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.commands.broker_settings import stated_in_file
from tierctl.commands.insight.executors import check_spark
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import DECIDE
from tierctl.doctor import brokers, clocks, log_dirs, rights, secrets, state_dir, topics
from tierctl.doctor.brokers import Broker
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import (
    CHECKS,
    Examination,
    Result,
    exit_code_of,
    fault,
    not_checked,
    prevented,
)
from tierctl.doctor.store import REFUSALS, examine_store
from tierctl.doctor.store_probe import probe_store
from tierctl.errors import ExitCode, NotFoundError, TierctlError, UsageError
from tierctl.locallog import read_topic_configs
from tierctl.metadata.daily_changes import recent_writers
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.model import TopicConfig, TopicPartition
from tierctl.model.configs import BrokerDefaults
from tierctl.model.engine import EngineName
from tierctl.model.local import TopicFacts
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import admits_topic
from tierctl.model.settings import topic
from tierctl.model.settings.file_kinds import FileKind
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion
from tierctl.model.settings.table import SettingSource, StatedSettings
from tierctl.report.results import TableResult, TableRows
from tierctl.spark.inspection import newest_events
from tierctl.spark.session.settings import SparkSettings
from tierctl.storage.stores.base import store_uri
from tierctl.storage.tier import object_tier
from tierctl.verify.settings.checks import check_broker_file, check_client_file, check_topics_file

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster

import os
from collections.abc import Callable, Collection, Iterable

from tierctl.commands.broker_settings import valid_in_file
from tierctl.doctor.brokers import OUTCOMES, of_conflicts
from tierctl.doctor.examination import ok
from tierctl.doctor.result import Outcome
from tierctl.doctor.secrets import SecretFile
from tierctl.locallog import list_partitions, read_log_dirs
from tierctl.model.conflicts import metadata_topic_conflicts
from tierctl.model.engine import private_keys_of
from tierctl.model.local import PartitionFacts
from tierctl.model.settings import broker
from tierctl.model.settings import client as manager
from tierctl.model.settings.known import ProblemKind, SettingProblem
from tierctl.plan.preconditions import require_known_names
from tierctl.report.texts import counted
from tierctl.state.cut_epochs import cut_epochs_of
from tierctl.state.tier import TierState
from tierctl.wire.files.properties import read_client_file, require_kind_of_file

_SHOWN = 5


def check_settings(settings: Mapping[str, str], replicas: int | None) -> Iterator[Result]:
    """Yield the results about the settings in force; `replicas` is None if their number is not known.

    The number of replicas is that of the partition with the fewest.
    """
    least = topic.MIN_INSYNC_REPLICAS.value(settings)
    conflicts = [
        each
        for each in metadata_topic_conflicts(settings, replicas or least)
        if replicas is not None or topic.MIN_INSYNC_REPLICAS.name not in each.names
    ]
    yield from of_conflicts(Check.METADATA_SETTINGS, METADATA_TOPIC, conflicts)
    if not conflicts:
        of_replicas = "" if replicas is None else f"{replicas} replicas, min.insync.replicas={least}, "
        found = f"{of_replicas}unlimited retention, not compacted"
        yield ok(Check.METADATA_SETTINGS, METADATA_TOPIC, found)


def check_replicas(facts: TopicFacts, min_in_sync: int) -> Iterator[Result]:
    """Yield the results about leaders and replicas of the metadata partitions."""
    leaderless = [each.partition for each in facts.partitions if each.leader is None]
    too_few = [each.partition for each in facts.partitions if len(each.in_sync) < min_in_sync]
    behind = [each.partition for each in facts.partitions if len(each.in_sync) < len(each.replicas)]
    if leaderless:
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, f"no leader: {_partitions(leaderless)}")
    if unwritable := sorted(set(too_few) - set(leaderless)):
        found = f"fewer than min.insync.replicas={min_in_sync} in sync: {_partitions(unwritable)}"
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, found)
    if lagging := sorted(set(behind) - {*leaderless, *too_few}):
        found = f"not all replicas in sync: {_partitions(lagging)}"
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, found, outcome=Outcome.WARNING)
    if not (leaderless or too_few or behind):
        found = f"all replicas of {len(facts.partitions)} partitions are in sync"
        yield ok(Check.METADATA_REPLICAS, METADATA_TOPIC, found)


def fewest_replicas(partitions: tuple[PartitionFacts, ...]) -> int:
    """Return the number of replicas of the partition that has the fewest."""
    return min(len(each.replicas) for each in partitions)


def expected_partitions(settings: Mapping[str, str], source: str) -> int | None:
    """Return the number of metadata partitions that a broker's settings state, None if they state none."""
    prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
    name = manager.TOPIC_PARTITIONS.name
    own = {name: settings[f"{prefix}{name}"]} if f"{prefix}{name}" in settings else {}
    return manager.TOPIC_PARTITIONS.given(own, source)


def check_partitions(found: int, expected: int) -> Iterator[Result]:
    """Yield the result about the number of metadata partitions that brokers expect."""
    setting = f"remote.log.metadata.topic.num.partitions={expected}"
    if found == expected:
        yield ok(Check.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, {setting}")
    else:
        yield fault(Check.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, but {setting}")


def missing(is_tiering: bool | None) -> Iterator[Result]:
    """Yield the result about a cluster without the metadata topic; `is_tiering` is None if not known."""
    found = f"the cluster has no topic {METADATA_TOPIC}"
    if is_tiering:
        why = "The brokers tier, and have not made the topic: nothing is copied."
        fix = "look for errors of TopicBasedRemoteLogMetadataManager in the brokers' logs"
        yield fault(Check.METADATA_SETTINGS, METADATA_TOPIC, found, why=why, fix=fix)
    else:
        what = "; brokers make it when they tier, and copy --create-metadata-topic does"
        yield ok(Check.METADATA_SETTINGS, METADATA_TOPIC, found + what)


def _partitions(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"partition {shown}{', …' if len(numbers) > _SHOWN else ''}"


def check_file(check: Check, file: Path, problems: Iterable[SettingProblem]) -> Iterator[Result]:
    """Yield the results about one file: its problems without those that are only information.

    Files that other users can read are left to the check of secrets.
    """
    is_good = True
    for problem in problems:
        outcome = OUTCOMES[problem.severity]
        if outcome is Outcome.OK or problem.kind is ProblemKind.OPEN_PERMISSIONS:
            continue
        is_good = False
        where = f"{file}" if problem.line is None else f"{file}, line {problem.line}"
        yield fault(check, where, _found(problem), outcome=outcome, why=_why(problem), fix=problem.hint)
    if is_good:
        yield ok(check, str(file), "its settings are known, valid and free of contradictions")


def _found(problem: SettingProblem) -> str:
    """Return the facts: the part of a contradiction's message before its meaning."""
    return (
        problem.message.partition(f"{problem.found}: ")[0] + problem.found
        if _why(problem)
        else problem.message
    )


def _why(problem: SettingProblem) -> str | None:
    """Return the meaning that ends the message of a contradiction; None for the meaning of the check."""
    if problem.kind is not ProblemKind.CONTRADICTION:
        return None
    return problem.message.partition(f"{problem.found}: ")[2] or None


def check_leader_epochs(
    folder: Path, select: Callable[[TopicPartition], bool], state: TierState
) -> Iterator[Result]:
    """Yield a result for each replica in a log directory whose checkpoint was cut; `state` is the tier's."""
    unreadable: list[tuple[Path, TierctlError]] = []
    logs = read_log_dirs([folder], select=select, on_error=lambda *found: unreadable.append(found))
    for where, error in unreadable:
        yield not_checked(Check.LEADER_EPOCHS, str(where), error.message)
    is_good = True
    for log in logs:
        part = state.partition(log.topic_id_partition)
        cut = None if part is None else cut_epochs_of(log, part.segments)
        if cut is not None:
            is_good = False
            yield fault(Check.LEADER_EPOCHS, str(log.directory), str(cut))
    if is_good:
        found = f"{counted(len(logs), 'replica')} have the leader epochs of the tier from the log start on"
        yield ok(Check.LEADER_EPOCHS, str(folder), found)


def require_topics_of_files(
    resources: Resources, log_dirs: Sequence[Path], stated: Collection[str]
) -> TierctlError | None:
    """Raise NotFoundError for a requested topic that no file has; do nothing beside a cluster.

    `stated` are the topics in --topic-configs; UsageError if their names look mistyped. The metadata are read
    only for a name that the log directories lack; for a requested topic, the error of reading is returned.
    """
    request = resources.request
    if resources.cluster is not None or not (request.topic_configs or request.metadata or log_dirs):
        return None
    known = {each.topic for each in list_partitions(filter(Path.is_dir, log_dirs))}
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


def secret_files(request: Request, profile_file: Path | None) -> Iterator[SecretFile]:
    """Yield the files of a request that may hold secrets; `profile_file` is the tierctl.toml in use."""
    if request.command_config is not None and request.command_config.exists():
        yield from secrets.settings_files(request.command_config, read_client_file(request.command_config))
    if request.broker_config is not None and request.broker_config.exists():
        yield from secrets.settings_files(request.broker_config, valid_in_file(request.broker_config))
    for file in private_keys_of(request.aiven_private_key).values():
        yield SecretFile(file, "a private key")
    if profile_file is not None:
        yield secrets.profile_file(profile_file)
    if (request.remote or "").startswith("s3:"):
        named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        file = Path(named).expanduser()
        if file.is_file():
            yield SecretFile(file, "the keys of AWS clients")


_STORE_CHECKS = tuple(check for check in Check if check.startswith("store_"))
_CLUSTER_CHECKS = (
    Check.BROKERS_AGREE,
    Check.BROKER_VERSION,
    Check.METADATA_SETTINGS,
    Check.METADATA_REPLICAS,
    Check.TOPIC_CONFLICTS,
    Check.TIERED_TOPICS,
    Check.CONTROLLER_CLOCK,
    Check.CLUSTER_RIGHTS,
    Check.METADATA_RIGHTS,
    Check.TOPIC_RIGHTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest(Request):
    """A request to check the conditions under which tiering fails."""

    probe_writes: Annotated[
        bool,
        typer.Option(
            "--probe-writes",
            help="Also store, replace and delete two small objects, .tierctl-probe-<id>*, in the store of "
            "--remote. Only this shows whether tierctl may write and delete, and whether the store supports "
            "conditional writes and leases. A bucket with versioning keeps these objects as noncurrent "
            "versions.",
            rich_help_panel=DECIDE,
        ),
    ] = False
    skip: Annotated[
        Sequence[Check],
        typer.Option(
            "--skip",
            metavar="CHECK",
            help="Skip this check, named as in tierctl-doctor(1). It is listed as not checked. Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    profile_file: Path | None = None
    """The tierctl.toml in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(TableResult):
    """The results, the worst first; the exit code is PARTIAL if an operator must act."""

    results: tuple[Result, ...]
    exit_code: ExitCode

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return CHECKS, self.results


def doctor(request: DoctorRequest, progress: Progress | None = None) -> Diagnosis:
    """Return one result for each check, including the checks that could not be made.

    Errors of brokers, stores and files become results. UsageError if the request names nothing to check.
    """
    _validate(request)
    run = _Run(request=request, progress=progress or SilentProgress())
    run.check_settings_files()
    with run:
        run.check_spark()
        run.check_topic_names()
        run.check_cluster()
        run.check_metadata()
        run.check_store()
    run.check_local_files()
    results = run.examination.complete()
    return Diagnosis(results=results, exit_code=exit_code_of(results))


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
        if file is not None and file.is_file() and os.access(file, os.R_OK):
            require_kind_of_file(file.read_bytes(), FileKind.of(source), file)
    if request.engine is EngineName.SPARK:
        SparkSettings.of(request.master, request.spark_conf)


@dataclass(kw_only=True)
class _Run:
    """The checks of one run; `settings` is None without a valid --broker-config."""

    request: DoctorRequest
    progress: Progress
    examination: Examination = field(init=False)
    resources: Resources = field(init=False)
    settings: StatedSettings | None = None
    topic_configs: dict[str, TopicConfig] = field(default_factory=dict)
    is_tiering: bool | None = None
    """Whether the brokers tier; None if neither a file nor a cluster states it."""
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.examination = Examination(skipped=frozenset(self.request.skip))

    def __enter__(self) -> None:
        # An unusable settings file is already among the results; the checks that need no file are still made.
        config = None if self.settings is None else self.request.broker_config
        # A log directory that does not exist is a result, too.
        request = replace(self.request, broker_config=config, log_dir=())
        self.resources = Resources(request=request, progress=self.progress)
        self._open.enter_context(self.resources)

    def __exit__(self, *error: object) -> None:
        self._open.close()

    # Files of settings

    def check_settings_files(self) -> None:
        """Check the files of settings that the request names, and keep their settings for other checks."""
        make, request = self.examination.make, self.request
        if request.broker_config is not None:
            make(
                [Check.BROKER_FILE],
                str(request.broker_config),
                partial(self._of_broker_file, request.broker_config),
            )
        if request.topic_configs is not None:
            make(
                [Check.TOPIC_FILE],
                str(request.topic_configs),
                partial(self._of_topics, request.topic_configs),
            )
        if request.command_config is not None:
            make(
                [Check.CLIENT_FILE],
                str(request.command_config),
                partial(self._of_client, request.command_config),
            )
        if self.settings is not None and request.broker_config is not None:
            own, source = self.settings, str(request.broker_config)
            names = self.topic_configs.keys() - {METADATA_TOPIC}
            make([Check.CUSTOM_METADATA], source, lambda: brokers.check_custom_metadata(source, own, names))
        if request.kafka_version is not None:
            version = request.kafka_version
            make([Check.BROKER_VERSION], "", lambda: brokers.check_version(version, is_tiering=None))

    @property
    def _defaults(self) -> BrokerDefaults:
        """Return the version and the settings of the brokers with which settings in files are checked."""
        return BrokerDefaults(version=self.request.kafka_version or LATEST, settings=self.settings or {})

    def _of_broker_file(self, file: Path) -> Iterator[Result]:
        yield from check_file(Check.BROKER_FILE, file, check_broker_file(file, self._defaults))
        found = stated_in_file(file)
        self.settings, self.is_tiering = found, brokers.is_tiering(found)

    def _of_client(self, file: Path) -> Iterator[Result]:
        yield from check_file(Check.CLIENT_FILE, file, check_client_file(file, self._defaults))

    def _of_topics(self, file: Path) -> Iterator[Result]:
        problems = check_topics_file(file, self._defaults, is_tiering=self.is_tiering)
        yield from check_file(Check.TOPIC_FILE, file, problems)
        self.topic_configs = read_topic_configs(file, self._defaults)
        own = self.topic_configs.get(METADATA_TOPIC)
        if own is not None:
            stated = {name: each.value for name, each in own.stated.items()}
            yield from check_settings(stated, None)

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
            self.examination.make([Check.METADATA_PARTITIONS], where, lambda: _raise(unread))

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
            self.is_tiering = any(map(brokers.is_tiering, readable))
        make([Check.BROKER_CONFLICTS], where, lambda: brokers.check_conflicts(found, version))
        make([Check.BROKERS_AGREE], where, lambda: brokers.check_agreement(found))
        if self.request.kafka_version is None:
            tiering = self.is_tiering
            make([Check.BROKER_VERSION], where, lambda: brokers.check_version(version, is_tiering=tiering))
        clock_ms = self.request.clock_ms
        make(
            [Check.CONTROLLER_CLOCK],
            where,
            lambda: clocks.check_controller(cluster.controller_clock, clock_ms),
        )
        yield from self._of_topics_there(cluster, version)

    def _of_topics_there(self, cluster: Cluster, version: KafkaVersion) -> Iterator[Result]:
        """Yield the results about the topics of the cluster, the metadata topic apart."""
        there = cluster.topics()
        own = there.pop(METADATA_TOPIC, None)
        self.examination.make(
            [Check.CLUSTER_RIGHTS], "", lambda: rights.check_cluster(cluster.cluster_operations())
        )
        yield from self._of_metadata_topic(cluster, own)
        named = {name for name, each in there.items() if not each.is_internal}
        chosen = {name for name in named if admits_topic(self.request.topic, name)}
        self.resources.selection_request.require_topics(named)
        with self.progress.bar("reading the settings of topics", unit="objects", total=len(chosen)):
            settings = cluster.topic_settings(chosen)
        yield from topics.check_conflicts(settings, version)
        if self.is_tiering is not None:
            yield from topics.check_tiered(settings, is_tiering=self.is_tiering)
        tiered = {
            name for name, each in settings.items() if isinstance(each, dict) and topics.is_tiered(each)
        }
        yield from rights.check_topics(cluster.operations(tiered or chosen))

    def _of_metadata_topic(self, cluster: Cluster, facts: TopicFacts | None) -> Iterator[Result]:
        if facts is None:
            yield from missing(self.is_tiering)
            reason = f"{METADATA_TOPIC} does not exist"
            for check in (Check.METADATA_REPLICAS, Check.METADATA_RIGHTS):
                yield not_checked(check, METADATA_TOPIC, reason)
            return
        yield from rights.check_metadata_topic(cluster.operations([METADATA_TOPIC])[METADATA_TOPIC])
        settings = cluster.topic_settings([METADATA_TOPIC])[METADATA_TOPIC]
        if isinstance(settings, TierctlError):
            yield prevented(Check.METADATA_SETTINGS, METADATA_TOPIC, settings)
            yield prevented(Check.METADATA_REPLICAS, METADATA_TOPIC, settings)
            return
        replicas = fewest_replicas(facts.partitions)
        yield from check_settings(settings, replicas)
        yield from check_replicas(facts, topic.MIN_INSYNC_REPLICAS.value(settings))

    # The metadata topic's events

    def check_metadata(self) -> None:
        """Check the number of metadata partitions, and the times of their newest events."""
        if self.request.metadata is not None:
            checks = (Check.METADATA_PARTITIONS, Check.EVENT_CLOCK)
            self.examination.make(checks, self.request.metadata, self._of_metadata)

    def _of_metadata(self) -> Iterator[Result]:
        try:
            read = self.resources.metadata_topic(complete=False, quiet=True)
        except NotFoundError as e:
            if self.resources.cluster is None:
                # The folder is mistyped; for a cluster, `check_cluster` decides whether a missing topic is a
                # fault.
                raise
            for check in (Check.METADATA_PARTITIONS, Check.EVENT_CLOCK):
                yield not_checked(check, self.request.metadata or "", e.message)
            return
        expected = expected_partitions(self.settings or {}, str(self.request.broker_config))
        if expected is not None:
            yield from check_partitions(read.partition_count, expected)
        now_ms = self.request.clock_ms()
        ends = read.end_offsets()
        latest: dict[int, int] = {}
        with self.progress.bar("reading the newest events", unit="tasks", total=len(ends)) as advance:
            for writers in self._newest_events(read, ends, now_ms):
                for writer, at_ms in writers.items():
                    latest[writer] = max(at_ms, latest.get(writer, at_ms))
                advance(1)
        yield from clocks.check_events(latest, now_ms)

    def _newest_events(
        self, read: MetadataTopic, ends: Mapping[int, int], since_ms: int
    ) -> Iterator[dict[int, int]]:
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
            tier = object_tier(self.resources.remote)
        except REFUSALS as e:
            error, hint = e, e.hint
            refused = fault(Check.STORE_LIST, remote, e.message, fix=hint)
            self.examination.make([Check.STORE_LIST], remote, lambda: [refused])
            self.examination.make(_STORE_CHECKS[1:], remote, lambda: _raise(error))
        except TierctlError as e:
            failure = e
            self.examination.make(_STORE_CHECKS, remote, lambda: _raise(failure))
        else:
            if tier is not None:
                is_probed = self.request.probe_writes
                examine_store(self.examination, tier, clock_ms, is_probed=is_probed)
                if is_probed:
                    probe_store(self.examination, tier, clock_ms)

    # Local files

    def check_local_files(self) -> None:
        """Check the state directory, the log directories, and files with secrets."""
        make, folder = self.examination.make, self.request.state_dir
        if folder is not None:
            make([Check.STATE_DIR_ACCESS], str(folder), lambda: state_dir.check_access(folder))
            make([Check.STATE_DIR_SPACE], str(folder), lambda: state_dir.check_space(folder))
        select = self._selects
        for each in self.request.log_dir:
            checks = (Check.LOG_DIR_ACCESS, Check.LOG_SNAPSHOTS)
            make(checks, str(each), partial(log_dirs.check_log_dir, each, select))
            if self.request.metadata is not None:
                make([Check.LEADER_EPOCHS], str(each), partial(self._of_leader_epochs, each))
        files = list(secret_files(self.request, self.request.profile_file))
        if files:
            make([Check.SECRETS], "", lambda: secrets.check_secrets(files))

    def _of_leader_epochs(self, folder: Path) -> Iterator[Result]:
        return check_leader_epochs(folder, self._selects, self.resources.metadata().refresh())

    def _selects(self, partition: TopicPartition) -> bool:
        return admits_topic(self.request.topic, partition.topic)


def _raise(error: TierctlError) -> Iterator[Result]:
    raise error
