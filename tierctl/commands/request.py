"""Requests: the input of each use case, as frozen data."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tierctl import locallog
from tierctl.commands.shared_options import (
    AdoptTier,
    AivenPrivateKeys,
    AllowLiveBrokers,
    AllowMissingObjects,
    Apply,
    Attempts,
    BootstrapServer,
    BrokerId,
    CommandConfig,
    CopyLimit,
    Engine,
    KafkaVersionOption,
    LogDirs,
    Master,
    Metadata,
    MetadataPartitions,
    NoLease,
    Now,
    Override,
    Partitions,
    PlanOut,
    Remote,
    RemoteLayout,
    ServerProperties,
    SparkConf,
    StateDir,
    Threads,
    ThrottleCopy,
    ThrottleFetch,
    TopicConfigs,
    TopicIds,
    Topics,
    Truncated,
    WaveSize,
)
from tierctl.errors import NotFoundError
from tierctl.metadata.topic import topic_location
from tierctl.model.choices import (
    ATTEMPTS,
    COPY_LIMIT_MS,
    NOT_A_BROKER_ID,
    THREADS,
    EngineName,
    private_keys_of,
)
from tierctl.model.location import BOOTSTRAP_SERVER, METADATA, TopicLocation, TruncatedMetadata
from tierctl.model.times import system_clock_ms
from tierctl.storage.throttle import Throttle, Transfers

if TYPE_CHECKING:
    from tierctl.plan.steps import Plan
    from tierctl.report.prometheus import Meter


def no_question(_plan: "Plan") -> None:
    """Accept a plan: the default of `MutationRequest.confirm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Where the data are, which partitions are meant, and where the work is done.

    Each field means the same as the command-line option of its name. A use case reads the fields that its
    command has options for and ignores the others.
    """

    metadata: Metadata = None
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    broker_config: ServerProperties = None
    override: Override = ()
    throttle_copy: ThrottleCopy = None
    throttle_fetch: ThrottleFetch = None
    throttle: Throttle = field(default_factory=Throttle, compare=False, repr=False)
    """Holds these limits for all tiers of the run, and has the times of its waits."""
    remote: Remote = None
    layout: RemoteLayout = None
    aiven_private_key: AivenPrivateKeys = ()
    log_dir: LogDirs = ()
    topic_configs: TopicConfigs = None
    kafka_version: KafkaVersionOption = None
    state_dir: StateDir = None
    truncated_metadata: Truncated = TruncatedMetadata.REFUSE
    topic: Topics = ()
    partition: Partitions = ()
    topic_id: TopicIds = ()
    now_ms: Now = None
    copy_limit_ms: CopyLimit = COPY_LIMIT_MS
    clock_ms: Callable[[], int] = system_clock_ms
    """The clock: returns the present time in milliseconds since 1970."""
    engine: Engine = EngineName.LOCAL
    master: Master = None
    spark_conf: SparkConf = ()
    verbose: bool = False
    """Whether Spark's own log is shown."""
    command_name: str = field(default="", compare=False)
    """The words of the command, without `tierctl`, for Spark's user interface."""
    meter: "Meter | None" = None
    """Receives the metrics of the run; None if no metrics are needed."""
    on_topics: Callable[[set[str]], None] | None = None
    """Receives the names of all topics in the metadata, when the run is done with the metadata."""

    def __post_init__(self) -> None:
        if self.metadata is None and self.bootstrap_server is not None and self.reads_metadata_of_cluster:
            object.__setattr__(self, "metadata", f"kafka://{self.bootstrap_server}")
        if self.engine is EngineName.SPARK:
            # Executors have other working directories.
            object.__setattr__(self, "log_dir", tuple(each.absolute() for each in self.log_dir))

    @property
    def reads_metadata_of_cluster(self) -> bool:
        """Whether `metadata` that are not named are those of the cluster of `bootstrap_server`."""
        return True

    @property
    def metadata_option(self) -> str:
        """The option that states `metadata`, for messages: --bootstrap-server, or --metadata."""
        implied = None if self.bootstrap_server is None else f"kafka://{self.bootstrap_server}"
        return METADATA if self.metadata is None or self.metadata != implied else BOOTSTRAP_SERVER

    def validate(self) -> None:
        """Raise UsageError for fields that are missing or contradict each other."""

    def require_complete(self) -> None:
        """Do as `validate`; raise UsageError also for missing fields of which a run complains only later."""
        self.validate()

    @property
    def is_mutating(self) -> bool:
        """Whether the use case may change a tier or the metadata topic."""
        return False

    @property
    def cluster_servers(self) -> str | None:
        """The cluster that has the topics: `bootstrap_server`, else a kafka:// `metadata`, else None."""
        if self.bootstrap_server is None and (self.metadata or "").startswith("kafka:"):
            return self.metadata
        return self.bootstrap_server

    @property
    def has_cluster(self) -> bool:
        """Whether settings and logs are those of a cluster."""
        return self.cluster_servers is not None

    @property
    def states_broker_settings(self) -> bool:
        """Whether the request names a file of broker settings, or states one."""
        limits = (self.throttle_copy, self.throttle_fetch)
        return self.broker_config is not None or bool(self.override) or limits != (None, None)

    def add_transfers(self, transfers: Transfers) -> None:
        """Add what an executor transferred to the waits of the run, and to its metrics."""
        self.throttle.add_waits(transfers.process, transfers.waits)
        if self.meter is not None:
            self.meter.count_fetches(transfers.fetches)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest(Request):
    """A request of a command that may change a tier: it only plans unless `apply` is true."""

    apply: Apply = False
    metadata_partitions: MetadataPartitions = None
    plan_out: PlanOut = None
    allow_live_brokers: AllowLiveBrokers = False
    allow_missing_objects: AllowMissingObjects = False
    adopt_tier: AdoptTier = False
    no_lease: NoLease = False
    broker_id: BrokerId = NOT_A_BROKER_ID
    wave_size: WaveSize = None
    threads: Threads = THREADS
    attempts: Attempts = ATTEMPTS
    confirm: Callable[["Plan"], None] = no_question
    """Called with the plan before it is carried out; it may raise an error to stop the run."""

    @property
    def is_mutating(self) -> bool:
        """Whether the use case may change a tier or the metadata topic."""
        return True

    @property
    def target(self) -> Self:
        """The request whose `metadata` describe `remote`, the tier that is changed."""
        return self


R = TypeVar("R", bound=Request)


def request_as(kind: type[R], request: Request) -> R:
    """Return the request of class `kind` with what `request` names; its own fields have their defaults."""
    values: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(Request)}
    return kind(**values)


def require_named_files(request: Request) -> None:
    """Raise NotFoundError or UsageError for a log directory or a key that can't be read.

    Those that its command would not read are included: a mistyped name is an error everywhere.
    """
    for folder in request.log_dir:
        locallog.require_folder(folder)
    for file in private_keys_of(request.aiven_private_key).values():
        if not file.is_file():
            raise NotFoundError(f"--aiven-private-key {file}: no such file")


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
