"""Requests: where the data are, which partitions are meant; and the options that several requests share.

An option of several requests has its name, type, help and panel here; a request's field has the default:

    max_deletes: MaxDeletes = None

`with_options` makes the options of a command from the fields of its request; lists are sequences here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer

from tierctl.commands import completion
from tierctl.commands.request_fields import fit_fields
from tierctl.errors import UsageError
from tierctl.model import TopicPartition
from tierctl.model.choices import (
    ATTEMPTS,
    COPY_LIMIT_MS,
    NOT_A_BROKER_ID,
    THREADS,
    EngineName,
)
from tierctl.model.location import BOOTSTRAP_SERVER, METADATA, Layout, TruncatedMetadata
from tierctl.model.selection import parse_partition
from tierctl.model.settings.scopes import KNOWN, LATEST, KafkaVersion
from tierctl.model.times import (
    DURATION_FORMS,
    TIME_FORMS,
    TIME_MS_MAX,
    parse_duration_ms,
    parse_time_ms,
    system_clock_ms,
)
from tierctl.storage.throttle import Throttle, Transfers, parse_rate

if TYPE_CHECKING:
    from tierctl.plan.steps import Plan
    from tierctl.report.prometheus import Meter


TYPED_ONLY: Final = object()
"""In the annotation of an option that only the command line gives, neither the environment nor tierctl.toml.

Such an option chooses what is deleted, or weakens a rule of safety:

    Apply = Annotated[bool, typer.Option(help="Carry out the plan."), TYPED_ONLY]
"""
WHERE = "Where things are"
NARROW = "Which partitions"
DECIDE = "How to decide"
APPLY = "Changing things"
RUN = "Where the work is done"
HOW = "How it is done"
FROM_TIER = "From one tier to another"


Apply = Annotated[
    bool,
    typer.Option(
        help="Carry out the plan. Without this option the plan is only printed.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
PlanOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the plan as JSON to this file, for 'tierctl apply'. An earlier plan is replaced; any "
        "other file that is not empty is refused.",
        rich_help_panel=APPLY,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=256,
        help="Number of segments that are read, stored or deleted at the same time.",
        rich_help_panel=HOW,
    ),
]
SparkConf = Annotated[
    Sequence[str],
    typer.Option(
        metavar="KEY=VALUE",
        help="With --engine spark: a Spark setting. Credentials are refused. Repeatable.",
        rich_help_panel=RUN,
    ),
]
CustomMetadataMaxBytes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Maximum size of a segment's custom metadata (KIP-917). If a segment has more, the copy of its "
        "partition stops. Default: the broker setting, otherwise 128.",
        rich_help_panel=HOW,
    ),
    TYPED_ONLY,
]
MaxDeletes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Maximum number of segments that a run may delete. If the plan has more, the run exits with "
        "code 8. Default: 10000.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
MaxFraction = Annotated[
    float | None,
    typer.Option(
        metavar="F",
        min=0,
        max=1,
        help="Maximum fraction of a partition's segments that a run may delete. Partitions with fewer than "
        "20 segments have no such limit. Default: 0.5.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
AllLogDirs = Annotated[
    bool,
    typer.Option(
        help="State that the --log-dir options name the log directories of all replicas, so that a topic id "
        "without a folder in any of them is deleted. --mark accepts this as evidence where it cannot ask a "
        "cluster. A directory that is unreadable, empty or of another cluster is no evidence.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
IKnowItIsDeleted = Annotated[
    Sequence[str],
    typer.Option(
        metavar="TOPIC_ID",
        help="Mark this topic id without other evidence that the topic is deleted. If the cluster still has "
        "the topic, tierctl refuses anyway. Repeatable.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
RestoredMetadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="URI",
        help="The metadata topic of the tier, as for fetch. Without this option, or with the value none, the "
        "metadata is derived from the objects of the tier.",
        rich_help_panel=WHERE,
    ),
]
RestoreAfterHole = Annotated[
    bool,
    typer.Option(
        "--after-hole",
        help="If the segments of a partition have a hole, restore the records after the last hole. restore "
        "into and new-ids then also give up an incomplete set above the last segment, such as that of an "
        "interrupted copy. Without this option such partitions are refused (exit 4).",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
AsTopic = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Name of the new topic. Default: the old name.",
        rich_help_panel=DECIDE,
    ),
]


def _until(text: str) -> str:
    """Return the value of --until with an absolute time, which does not depend on when a plan is applied."""
    return text if "=" in text else str(parse_time_ms(text))


RestoreUntil = Annotated[
    Sequence[str],
    typer.Option(
        "--until",
        metavar="TIME|TOPIC-PARTITION=OFFSET",
        parser=_until,
        help="End each log before the first record that is later than TIME, or one partition's log before "
        "OFFSET. Repeatable. The markers at the end of transactions count, too; their time is that of the "
        f"broker's clock, whatever the times of the records are. TIME is {TIME_FORMS}.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]


def _now_ms(text: str) -> int:
    """Return the time of --now in milliseconds since 1970; UsageError outside of the years 1970 to 9999."""
    at_ms = parse_time_ms(text)
    if not 0 <= at_ms <= TIME_MS_MAX:
        side = "before 1970" if at_ms < 0 else "after the year 9999"
        raise UsageError(f"--now {text} is {side}", hint=f"expected {TIME_FORMS}")
    return at_ms


def no_question(_plan: "Plan") -> None:
    """Accept a plan: the default of `MutationRequest.confirm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Where the data are, which partitions are meant, and where the work is done.

    Each field means the same as the command-line option of its name. A use case reads the fields that its
    command has options for and ignores the others.
    """

    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The metadata topic: kafka://host:port[,host:port...], or a folder with "
            "__remote_log_metadata-N/ (file:///dir or a plain path). Default: the topic on the cluster "
            "of --bootstrap-server. Commands that only read also accept a copy of such a folder in a "
            "store: s3://bucket/folder or any other URI that --remote accepts.",
            rich_help_panel=WHERE,
        ),
    ] = None
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="The cluster that has the topics. Default: the cluster of --metadata kafka://...",
            rich_help_panel=WHERE,
        ),
    ] = None
    command_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Properties file for the connection to a cluster (SASL, TLS), in the format of Kafka's own "
            "tools.",
            rich_help_panel=WHERE,
        ),
    ] = None
    broker_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A broker's server.properties. Its settings remote.log.metadata.* and rlmm.config.* apply "
            "to the metadata topic; the help of a command names other settings that it uses.",
            rich_help_panel=WHERE,
        ),
    ] = None
    override: Annotated[
        Sequence[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="A broker setting that overrides --broker-config: remote.log.manager.task.retry.backoff.ms "
            "(500), remote.log.manager.task.retry.backoff.max.ms (30000), "
            "remote.log.manager.task.retry.jitter (0.2), remote.log.metadata.custom.metadata.max.bytes "
            "(128). Times and sizes may have units, such as 2s and 1K. Repeatable.",
            rich_help_panel=HOW,
        ),
        TYPED_ONLY,
    ] = ()
    throttle_copy: Annotated[
        int | None,
        typer.Option(
            metavar="RATE",
            parser=parse_rate,
            help="Maximum bytes per second that the run stores in the tier, all threads together: 50M, 800K "
            "(powers of 1024). Default: remote.log.manager.copy.max.bytes.per.second in --broker-config "
            "(KIP-956), otherwise unlimited.",
            rich_help_panel=RUN,
        ),
    ] = None
    throttle_fetch: Annotated[
        int | None,
        typer.Option(
            metavar="RATE",
            parser=parse_rate,
            help="Maximum bytes per second that the run reads from the tier, all threads together: 50M, 800K "
            "(powers of 1024). Default: remote.log.manager.fetch.max.bytes.per.second in "
            "--broker-config (KIP-956), otherwise unlimited.",
            rich_help_panel=RUN,
        ),
    ] = None
    throttle: Throttle = field(default_factory=Throttle, compare=False, repr=False)
    """Holds these limits for all tiers of the run, and has the times of its waits."""
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The remote tier: s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., "
            "file:///dir or a plain path. For S3, the endpoint, region and credentials come from the "
            "usual AWS environment variables and files.",
            rich_help_panel=WHERE,
        ),
    ] = None
    layout: Annotated[
        Layout | None,
        typer.Option(
            help="Names and encoding of a segment's objects: kafka as in LocalTieredStorage, aiven as in "
            "Aiven's plugin with the rsm.config.* settings of --broker-config. Default: the layout "
            "found in the tier or in its identity, otherwise kafka for folders and aiven for other stores.",
            rich_help_panel=WHERE,
        ),
    ] = None
    aiven_private_key: Annotated[
        Sequence[str],
        typer.Option(
            metavar="[ID=]FILE",
            help="Private key (RSA, PEM) that decrypts segments of Aiven's plugin, in addition to the keys "
            "that --broker-config names. Repeatable.",
            rich_help_panel=WHERE,
        ),
    ] = ()
    log_dir: Annotated[
        Sequence[Path],
        typer.Option(metavar="DIR", help="A broker's log directory. Repeatable.", rich_help_panel=WHERE),
    ] = ()
    topic_configs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Properties file with topic settings: <topic>.retention.bytes=... On a cluster, the topics' "
            "own settings take precedence.",
            rich_help_panel=WHERE,
        ),
    ] = None
    kafka_version: Annotated[
        KafkaVersion | None,
        typer.Option(
            metavar="VERSION",
            parser=KafkaVersion.parse,
            help=f"Decide, and print, as brokers of this version: {KNOWN[0]} to {LATEST}. Default: the "
            f"version of the cluster, otherwise {LATEST}.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory that keeps the state between runs, so that the next run reads only new events.",
            rich_help_panel=WHERE,
        ),
    ] = None
    truncated_metadata: Annotated[
        TruncatedMetadata,
        typer.Option(
            help="What to do if the retention of the metadata topic deleted the oldest events of a "
            "partition. refuse: decide nothing for the partition, unless --state-dir, its log start "
            "offset or the objects in the tier show that its remaining events are complete. accept: "
            "decide from the remaining events, as a broker does; objects without events stay in the "
            "tier.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = TruncatedMetadata.REFUSE
    topic: Annotated[
        Sequence[str],
        typer.Option(
            metavar="NAME",
            autocompletion=completion.topics,
            help="Select this topic, or the topics that exist now and match a glob such as 'orders-*'. "
            "Repeatable.",
            rich_help_panel=NARROW,
        ),
    ] = ()
    partition: Annotated[
        Sequence[int | TopicPartition],
        typer.Option(
            metavar="[TOPIC-]N",
            parser=parse_partition,
            help="Only this partition, as 0 or orders-0. Repeatable.",
            rich_help_panel=NARROW,
        ),
    ] = ()
    topic_id: Annotated[
        Sequence[str],
        typer.Option(metavar="ID", help="Only this topic id. Repeatable.", rich_help_panel=NARROW),
    ] = ()
    now_ms: Annotated[
        int | None,
        typer.Option(
            "--now",
            metavar="TIME",
            parser=_now_ms,
            help=f"Decide as of this time; {TIME_FORMS}. Default: the current time.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None
    copy_limit_ms: Annotated[
        int,
        typer.Option(
            "--copy-limit",
            metavar="DURATION",
            show_default="1h",
            parser=parse_duration_ms,
            help="A copy that was begun this long ago and did not finish is a problem, and so is a "
            f"transaction that has kept segments from the tier for this long: {DURATION_FORMS}.",
            rich_help_panel=DECIDE,
        ),
    ] = COPY_LIMIT_MS
    clock_ms: Callable[[], int] = system_clock_ms
    """The clock: returns the present time in milliseconds since 1970."""
    engine: Annotated[
        EngineName,
        typer.Option(
            help="local: threads of this process. spark: executors of Apache Spark; this process still makes "
            "the decisions and writes to the metadata topic.",
            rich_help_panel=RUN,
        ),
    ] = EngineName.LOCAL
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --engine spark: local[N], spark://host:port, yarn, k8s://..., or sc://host:port for "
            "Spark Connect. Default: SPARK_REMOTE of the environment, otherwise the master of spark-submit "
            "or of Spark's configuration, otherwise local[*].",
            rich_help_panel=RUN,
        ),
    ] = None
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
        fit_fields(self)
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
    def is_binding(self) -> bool:
        """Whether this run carries out or saves what it decides."""
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
    metadata_partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000,  # Far above what a cluster can have.
            help="Number of partitions of __remote_log_metadata in the folder of --metadata, where neither "
            "the cluster's metadata (__cluster_metadata-0) nor --broker-config states it. A folder that "
            "is missing is a lost partition. A new folder gets this number.",
            rich_help_panel=HOW,
        ),
    ] = None
    plan_out: PlanOut = None
    allow_live_brokers: Annotated[
        bool,
        typer.Option(
            help="Continue although brokers may do the same work: the cluster tiers a partition, or it is "
            "unknown whether it does; or a broker runs on a --log-dir that decides deletes or that "
            "shows signs of tiering. A broker that tiers a partition copies every segment again that "
            "tierctl copies, because it reads only once, when it becomes leader, what is copied. This "
            "option is never needed to copy from a running broker that does not tier.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    allow_missing_objects: Annotated[
        bool,
        typer.Option(
            help="Continue although the tier has no objects of the finished segments, because the objects "
            "are known to be lost. Without this option tierctl assumes that --remote names the wrong "
            "tier and exits.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    adopt_tier: Annotated[
        bool,
        typer.Option(
            help="Assign the tier to --metadata: --apply replaces the identity that is stored in the tier. "
            "Use it if the metadata topic was created again. Without this option tierctl refuses a tier "
            "that belongs to another metadata topic.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    no_lease: Annotated[
        bool,
        typer.Option(
            help="Continue although tierctl has no lease for the store of --remote (gs://, abfs://, "
            "viewfs://, S3 without conditional writes, file systems without locks). You must make sure "
            "that no other tierctl changes the tier.",
            rich_help_panel=APPLY,
        ),
        TYPED_ONLY,
    ] = False
    broker_id: Annotated[
        int,
        typer.Option(
            metavar="ID",
            min=-1,
            max=(1 << 31) - 1,
            help="Broker id in published events; -1 means that no broker published them.",
            rich_help_panel=HOW,
        ),
        TYPED_ONLY,
    ] = NOT_A_BROKER_ID
    wave_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of segments per wave: their events are published together, then their objects are "
            "stored or deleted, then the result is confirmed. Default: 16 for copies (on Spark 2 per "
            "concurrent task), 1000 for deletes and publishing.",
            rich_help_panel=HOW,
        ),
    ] = None
    threads: Threads = THREADS
    attempts: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How often each call to the store is tried before the segment fails.",
            rich_help_panel=HOW,
        ),
    ] = ATTEMPTS
    confirm: Callable[["Plan"], None] = no_question
    """Called with the plan before it is carried out; it may raise an error to stop the run."""
    on_begun: Callable[[], None] | None = None
    """Called before the first step of a plan: from then on a run that is interrupted may have changed
    something."""

    @property
    def is_mutating(self) -> bool:
        """Whether the use case may change a tier or the metadata topic."""
        return True

    @property
    def is_binding(self) -> bool:
        """Whether this run carries out or saves what it decides."""
        return self.apply or self.plan_out is not None

    @property
    def target(self) -> Self:
        """The request whose `metadata` describe `remote`, the tier that is changed."""
        return self


R = TypeVar("R", bound=Request)


def request_as(kind: type[R], request: Request) -> R:
    """Return the request of class `kind` with what `request` names; its own fields have their defaults."""
    values: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(Request)}
    return kind(**values)
