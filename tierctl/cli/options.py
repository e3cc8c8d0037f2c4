"""Options that mean the same for every command, and the groups of them that commands take.

`main` gives each of them an environment variable, TIERCTL_<OPTION>, and a key in tierctl.toml.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl.errors import ExitCode
from tierctl.model.engine import EngineName

WHERE = "Where things are"
NARROW = "Which partitions"
DECIDE = "How to decide"
APPLY = "Changing things"
SHOW = "Output"
RUN = "Where the work is done"


class OutputFormat(StrEnum):
    """How rows are printed on stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Layout(StrEnum):
    """How a segment's objects are named in the tier."""

    KAFKA = "kafka"
    AIVEN = "aiven"


Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="URI",
        help="The metadata topic: kafka://host:port[,host:port...], or a folder with "
        "__remote_log_metadata-N/ (file:///dir or a plain path).",
        rich_help_panel=WHERE,
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="The cluster the topics are on. Default: that of --metadata kafka://...",
        rich_help_panel=WHERE,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties for connecting to a cluster (SASL, TLS), as Kafka's own tools take them.",
        rich_help_panel=WHERE,
    ),
]
ServerProperties = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A broker's server.properties: its remote.log.metadata.* and rlmm.config.* settings for the "
        "metadata topic, and where a command says so its other settings.",
        rich_help_panel=WHERE,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URI",
        help="The remote tier: s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., "
        "file:///dir or a plain path. For S3, endpoint, region and credentials come the usual AWS ways.",
        rich_help_panel=WHERE,
    ),
]
RemoteLayout = Annotated[
    Layout | None,
    typer.Option(
        "--layout",
        help="What a segment's objects are: kafka as LocalTieredStorage has them, aiven as Aiven's plugin, "
        "with the rsm.config.* of --config. Default: what is there, else kafka for folders and aiven for "
        "other stores.",
        rich_help_panel=WHERE,
    ),
]
AivenPrivateKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--aiven-private-key",
        metavar="[ID=]FILE",
        help="Private key (RSA, PEM) that opens segments which Aiven's plugin encrypted; those that --config "
        "names need not be given. Repeatable.",
        rich_help_panel=WHERE,
    ),
]
LogDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        help="A broker's log directory. Repeatable.",
        rich_help_panel=WHERE,
    ),
]
TopicConfigs = Annotated[
    Path | None,
    typer.Option(
        "--topic-configs",
        metavar="FILE",
        help="Topic settings as properties: <topic>.retention.bytes=... "
        "They never override a cluster: a topic it knows has the settings it has there.",
        rich_help_panel=WHERE,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Keeps what was read, so that the next run reads only what is new.",
        rich_help_panel=WHERE,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="Only this topic. Repeatable.", rich_help_panel=NARROW),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", metavar="N", min=0, help="Only this partition. Repeatable.", rich_help_panel=NARROW
    ),
]
TopicIds = Annotated[
    list[str] | None,
    typer.Option("--topic-id", metavar="ID", help="Only this topic id. Repeatable.", rich_help_panel=NARROW),
]
Now = Annotated[
    int | None,
    typer.Option(
        "--now",
        metavar="MS",
        min=0,
        help="Decide as of this time, in milliseconds since 1970. Default: the clock.",
        rich_help_panel=DECIDE,
    ),
]
Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output", "-o", help="Format of what goes to stdout.", show_default=True, rich_help_panel=SHOW
    ),
]
Apply = Annotated[
    bool,
    typer.Option(
        "--apply", help="Do it. Without this the plan is printed, nothing changes.", rich_help_panel=APPLY
    ),
]
PlanOut = Annotated[
    Path | None,
    typer.Option(
        "--plan-out",
        metavar="FILE",
        help="Write the plan as JSON, for 'tierctl apply'.",
        rich_help_panel=APPLY,
    ),
]
DetailedExitcode = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode", help="Exit 9 when the plan has something to do.", rich_help_panel=APPLY
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="local: threads of this process. spark: executors of Apache Spark; the deciding, and what is "
        "written to the metadata topic, stay here.",
        show_default=True,
        rich_help_panel=RUN,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="With --engine spark: local[N], spark://host:port, yarn, k8s://..., or sc://host:port for Spark "
        "Connect. Default: what spark-submit or Spark's configuration say, else local[*].",
        rich_help_panel=RUN,
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="With --engine spark: a setting of Spark; never a credential. Repeatable.",
        rich_help_panel=RUN,
    ),
]


def metadata_topic(
    metadata: Metadata = None, command_config: CommandConfig = None, config: ServerProperties = None
) -> None:
    """The metadata topic."""


def where(
    metadata: Metadata = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    config: ServerProperties = None,
    remote: Remote = None,
    layout: RemoteLayout = None,
    log_dir: LogDirs = None,
) -> None:
    """The metadata topic, the cluster, the tier and the logs."""


def private_keys(aiven_private_key: AivenPrivateKeys = None) -> None:
    """What opens encrypted segments."""


def state(state_dir: StateDir = None) -> None:
    """What was read before."""


def folders(state_dir: StateDir = None, log_dir: LogDirs = None) -> None:
    """Where flat files lie."""


def selection(topic: Topics = None, partition: Partitions = None, topic_id: TopicIds = None) -> None:
    """The partitions that are meant."""


def rows(output: Output = OutputFormat.TABLE) -> None:
    """How rows are printed."""


def applying(detailed_exitcode: DetailedExitcode = False, apply: Apply = False) -> None:
    """A plan that is shown or carried out."""


def is_typed(ctx: Any, name: str) -> bool:
    """Whether an option was given on the command line, rather than by the environment or a profile."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def ended(ctx: typer.Context, *, pending: bool) -> ExitCode:
    """The exit code of who takes `applying`, and has or had something to do."""
    shown_only = ctx.params["detailed_exitcode"] and not ctx.params["apply"]
    return ExitCode.PLAN_PENDING if pending and shown_only else ExitCode.OK


def engine(engine: Engine = EngineName.LOCAL, master: Master = None, spark_conf: SparkConf = None) -> None:
    """Where the work is done."""
