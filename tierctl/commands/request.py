"""Requests: the input of each use case, as frozen data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tierctl import locallog
from tierctl.apply.defaults import ATTEMPTS, NOT_A_BROKER_ID, THREADS
from tierctl.errors import NotFoundError
from tierctl.metadata.topic import topic_location
from tierctl.model.engine import EngineName
from tierctl.model.location import TopicLocation, TruncatedMetadata
from tierctl.model.private_keys import private_keys_of
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.model.times import system_clock_ms
from tierctl.storage.observed import Transfers
from tierctl.storage.throttle import Throttle
from tierctl.wire.files.properties import read_client_file

if TYPE_CHECKING:
    from tierctl.plan.steps import Plan
    from tierctl.report.metrics import Meter


def no_question(_plan: "Plan") -> None:
    """Accept a plan: the default of `MutationRequest.confirm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Where the data are, which partitions are meant, and where the work is done.

    Each field means the same as the command-line option of its name. A use case reads the fields that its
    command has options for and ignores the others.
    """

    metadata: str | None = None
    """URI or path of the metadata topic."""
    bootstrap_server: str | None = None
    """`host:port[,...]` of the cluster that the topics are on; default: the one in `metadata`."""
    command_config: Path | None = None
    """Client properties file, as Kafka's own tools take it."""
    config: Path | None = None
    """A broker's server.properties."""
    override: Sequence[str] = ()
    """Broker settings as `NAME=VALUE`, which take precedence over those of `config`."""
    throttle_copy: int | None = None
    """Bytes per second that the run stores in tiers; default: as the broker settings say."""
    throttle_fetch: int | None = None
    """Bytes per second that the run reads from tiers; default: as the broker settings say."""
    throttle: Throttle = field(default_factory=Throttle, compare=False, repr=False)
    """Holds these limits for all tiers of the run, and has the times of its waits."""
    remote: str | None = None
    """URI or path of the remote tier."""
    layout: str | None = None
    """`kafka` or `aiven`; default: the layout found in the tier."""
    aiven_private_key: Sequence[str] = ()
    """`[ID=]FILE` of RSA private keys in PEM."""
    log_dir: Sequence[Path] = ()
    """Brokers' log directories."""
    topic_configs: Path | None = None
    """Properties file of topic settings, used where no cluster can be asked."""
    kafka_version: KafkaVersion | None = None
    """Version of the brokers whose decisions and text are used; default: the cluster's, else the latest."""
    state_dir: Path | None = None
    """Directory that keeps the state between runs."""
    truncated_metadata: TruncatedMetadata = TruncatedMetadata.REFUSE
    """Whether to decide for partitions whose oldest events were deleted from the metadata topic."""
    topic: Sequence[str] = ()
    """Names of the selected topics, or globs of their names; empty selects all."""
    partition: Sequence[int] = ()
    """Numbers of the selected partitions; empty selects all."""
    topic_id: Sequence[str] = ()
    """Ids of the selected topics, unpadded base64url; empty selects all."""
    now_ms: int | None = None
    """Time as of which to decide, in milliseconds since 1970; default: the clock."""
    clock_ms: Callable[[], int] = system_clock_ms
    """The clock: returns the present time in milliseconds since 1970."""
    engine: EngineName = EngineName.LOCAL
    """Where the work is done: in threads of this process, or on executors of Spark."""
    master: str | None = None
    """Spark's master URL."""
    spark_conf: Sequence[str] = ()
    """Spark settings as `KEY=VALUE`; never a credential."""
    verbose: bool = False
    """Whether Spark's own log is shown."""
    meter: "Meter | None" = None
    """Receives the metrics of the run; None if no metrics are needed."""
    on_topics: Callable[[set[str]], None] | None = None
    """Receives the names of all topics in the metadata, when the run is done with the metadata."""

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
        return self.config is not None or bool(self.override) or limits != (None, None)

    def add_transfers(self, transfers: Transfers) -> None:
        """Add what an executor transferred to the waits of the run, and to its metrics."""
        self.throttle.add_waits(transfers.process, transfers.waits)
        if self.meter is not None:
            self.meter.fetches.add(transfers.fetches)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest(Request):
    """A request of a command that may change a tier: it only plans unless `apply` is true."""

    apply: bool = False
    """Carry the plan out; otherwise change nothing."""
    metadata_partitions: int | None = None
    """Number of partitions of the metadata topic in a folder; default: as its own sources say."""
    plan_out: Path | None = None
    """File to which the plan is written as JSON."""
    allow_live_brokers: bool = False
    """Continue although brokers may do the same work."""
    allow_missing_objects: bool = False
    """Continue although the tier has no object of finished segments."""
    adopt_tier: bool = False
    """Make the tier that of `metadata`, although it belongs to another metadata topic."""
    no_lease: bool = False
    """Continue although the tier's store supports no lease that keeps other runs out."""
    broker_id: int = NOT_A_BROKER_ID
    """Broker id that published events carry."""
    wave_size: int | None = None
    """Number of segments per wave of publishing, transfer and confirmation; default: by engine."""
    threads: int = THREADS
    """Segments that are stored or deleted at the same time on the local engine."""
    attempts: int = ATTEMPTS
    """Tries of each call to the store."""
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

    def validate(self) -> None:
        """Raise UsageError for fields that are missing or contradict each other."""


def require_named_files(request: Request) -> None:
    """Raise NotFoundError or UsageError for a log directory, client file or key that can't be read.

    Those that its command would not read are included: a mistyped name is an error everywhere.
    """
    for folder in request.log_dir:
        locallog.require_folder(folder)
    if request.command_config is not None:
        read_client_file(request.command_config)
    for file in private_keys_of(request.aiven_private_key).values():
        if not file.is_file():
            raise NotFoundError(f"--aiven-private-key {file}: no such file")


def cluster_location(request: Request) -> TopicLocation | None:
    """Return the location of the cluster that has the topics, for executors; None without a cluster."""
    servers = request.cluster_servers
    if servers is None:
        return None
    option, uri = "--metadata", servers
    if request.bootstrap_server is not None:
        option, uri = "--bootstrap-server", f"kafka://{servers}"
    return topic_location(option, uri, command_config=request.command_config, config=request.config)
