"""Options with the same meaning in every command, groups of them, and `with_options` to use the groups.

    def selection(topic: Topics = None, partition: Partitions = None) -> None: ...

    @with_options(options.where, options.selection, ..., output_options.rows)
    def segments(ctx: typer.Context, check: Check = False) -> ExitCode: ...

`main` gives each option an environment variable, TIERCTL_<OPTION>, and a key in tierctl.toml.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from inspect import Parameter, Signature
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Any, TypeVar, get_args

import typer
from typer.models import OptionInfo

from tierctl.cli import completion
from tierctl.cli.everywhere import everywhere, help_of_all
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.cli.settings.run import RunSettings
from tierctl.cli.unattended import EVERYWHERE
from tierctl.errors import UsageError
from tierctl.model.engine import EngineName
from tierctl.model.location import TruncatedMetadata
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.model.times import parse_time_ms
from tierctl.storage.throttle import parse_rate

_Command = Callable[..., Any]
R = TypeVar("R")

WHERE = "Where things are"
NARROW = "Which partitions"
DECIDE = "How to decide"
APPLY = "Changing things"
SHOW = "Output"
RUN = "Where the work is done"


TIME_FORMS = "as 2026-11-21T12:00:00Z, -2h, 3d (ago), +1d, or milliseconds since 1970"
"""Text for the help of options: the forms that `parse_time_ms` accepts."""


def _now_ms(text: str) -> int:
    """Return the time of --now in milliseconds since 1970; UsageError for one before 1970."""
    at_ms = parse_time_ms(text)
    if at_ms < 0:
        raise UsageError(f"--now {text} is before 1970", hint=f"expected {TIME_FORMS}")
    return at_ms


class OutputFormat(StrEnum):
    """The format of the rows on stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Layout(StrEnum):
    """The layout of a tier: names and encoding of a segment's objects."""

    KAFKA = "kafka"
    AIVEN = "aiven"


Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="URI",
        help="The metadata topic: kafka://host:port[,host:port...], or a folder with "
        "__remote_log_metadata-N/ (file:///dir or a plain path). Commands that only read also accept a "
        "copy of such a folder in a store: s3://bucket/folder or any other URI that --remote accepts.",
        rich_help_panel=WHERE,
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="The cluster that has the topics. Default: the cluster of --metadata kafka://...",
        rich_help_panel=WHERE,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file for the connection to a cluster (SASL, TLS), in the format of Kafka's own "
        "tools.",
        rich_help_panel=WHERE,
    ),
]
ServerProperties = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A broker's server.properties. Its settings remote.log.metadata.* and rlmm.config.* apply to "
        "the metadata topic; the help of a command names other settings that it uses.",
        rich_help_panel=WHERE,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URI",
        help="The remote tier: s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., "
        "file:///dir or a plain path. For S3, the endpoint, region and credentials come from the usual "
        "AWS environment variables and files.",
        rich_help_panel=WHERE,
    ),
]
RemoteLayout = Annotated[
    Layout | None,
    typer.Option(
        "--layout",
        help="Names and encoding of a segment's objects: kafka as in LocalTieredStorage, aiven as in "
        "Aiven's plugin with the rsm.config.* settings of --config. Default: the layout found in the "
        "tier, otherwise kafka for folders and aiven for other stores.",
        rich_help_panel=WHERE,
    ),
]
AivenPrivateKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--aiven-private-key",
        metavar="[ID=]FILE",
        help="Private key (RSA, PEM) that decrypts segments of Aiven's plugin, in addition to the keys that "
        "--config names. Repeatable.",
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
ThrottleCopy = Annotated[
    int | None,
    typer.Option(
        "--throttle-copy",
        metavar="RATE",
        parser=parse_rate,
        help="Maximum bytes per second that the run stores in the tier, all threads together: 50M, 800K "
        "(powers of 1024). Default: remote.log.manager.copy.max.bytes.per.second in --config "
        "(KIP-956), otherwise unlimited.",
        rich_help_panel=RUN,
    ),
]
ThrottleFetch = Annotated[
    int | None,
    typer.Option(
        "--throttle-fetch",
        metavar="RATE",
        parser=parse_rate,
        help="Maximum bytes per second that the run reads from the tier, all threads together: 50M, 800K "
        "(powers of 1024). Default: remote.log.manager.fetch.max.bytes.per.second in --config "
        "(KIP-956), otherwise unlimited.",
        rich_help_panel=RUN,
    ),
]
TopicConfigs = Annotated[
    Path | None,
    typer.Option(
        "--topic-configs",
        metavar="FILE",
        help="Properties file with topic settings: <topic>.retention.bytes=... On a cluster, the topics' "
        "own settings take precedence.",
        rich_help_panel=WHERE,
    ),
]
KafkaVersionOption = Annotated[
    KafkaVersion | None,
    typer.Option(
        "--kafka-version",
        metavar="VERSION",
        parser=KafkaVersion.parse,
        help="Decide, and print, as brokers of this version: 3.6 to 4.4. Default: the version of the "
        "cluster, otherwise 4.4.",
        rich_help_panel=DECIDE,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Directory that keeps the state between runs, so that the next run reads only new events.",
        rich_help_panel=WHERE,
    ),
]
Truncated = Annotated[
    TruncatedMetadata,
    typer.Option(
        "--truncated-metadata",
        help="What to do if the retention of the metadata topic deleted the oldest events of a partition. "
        "refuse: decide nothing for the partition, unless --state-dir, its log start offset or the "
        "objects in the tier show that its remaining events are complete. accept: decide from the "
        "remaining events, as a broker does; objects without events stay in the tier.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        help="Do not check the names of topics, tiers, settings and files in the command: they are those of "
        "another machine, or not reachable from this one.",
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="Select this topic, or the topics that exist now and match a glob such as 'orders-*'. "
        "Repeatable.",
        autocompletion=completion.topics,
        rich_help_panel=NARROW,
    ),
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
        metavar="TIME",
        parser=_now_ms,
        help=f"Decide as of this time; {TIME_FORMS}. Default: the current time.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="Format of the rows on stdout.", rich_help_panel=SHOW),
]
Apply = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Carry out the plan. Without this option the plan is only printed.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
PlanOut = Annotated[
    Path | None,
    typer.Option(
        "--plan-out",
        metavar="FILE",
        help="Write the plan as JSON to this file, for 'tierctl apply'.",
        rich_help_panel=APPLY,
    ),
]
DetailedExitcode = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help="Exit with code 9 instead of 0 if the plan has steps.",
        rich_help_panel=APPLY,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="local: threads of this process. spark: executors of Apache Spark; this process still makes "
        "the decisions and writes to the metadata topic.",
        rich_help_panel=RUN,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="With --engine spark: local[N], spark://host:port, yarn, k8s://..., or sc://host:port for Spark "
        "Connect. Default: the master of spark-submit or of Spark's configuration, otherwise local[*].",
        rich_help_panel=RUN,
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="With --engine spark: a Spark setting. Credentials are refused. Repeatable.",
        rich_help_panel=RUN,
    ),
]


def metadata_topic(
    metadata: Metadata = None, command_config: CommandConfig = None, config: ServerProperties = None
) -> None:
    """Group: the metadata topic."""


def where(
    metadata: Metadata = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    config: ServerProperties = None,
    remote: Remote = None,
    layout: RemoteLayout = None,
    log_dir: LogDirs = None,
) -> None:
    """Group: the metadata topic, the cluster, the tier and the log directories."""


def private_keys(aiven_private_key: AivenPrivateKeys = None) -> None:
    """Group: keys of encrypted segments."""


def state(state_dir: StateDir = None, truncated_metadata: Truncated = TruncatedMetadata.REFUSE) -> None:
    """Group: the state directory, and how to handle partitions whose oldest events are missing."""


def reading_throttle(throttle_fetch: ThrottleFetch = None) -> None:
    """Group: the limit for reads from the tier."""


def throttles(throttle_copy: ThrottleCopy = None, throttle_fetch: ThrottleFetch = None) -> None:
    """Group: the limits for writes to the tier and reads from it."""


def folders(state_dir: StateDir = None, log_dir: LogDirs = None) -> None:
    """Group: the folders with flat files."""


def selection(topic: Topics = None, partition: Partitions = None, topic_id: TopicIds = None) -> None:
    """Group: the selected partitions."""


def applying(detailed_exitcode: DetailedExitcode = False, apply: Apply = False) -> None:
    """Group: whether a plan is carried out, and the exit code of a plan."""


def is_typed(ctx: Any, name: str) -> bool:
    """Return whether an option was given on the command line, not by the environment or a profile."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed_option(ctx: typer.Context, names: Iterable[str]) -> str | None:
    """Return the first option of the parameters `names` that the command line has, as --log-dir, or None."""
    written = {param.name: max(param.opts, key=len) for param in ctx.command.get_params(ctx)}
    return next((written[name] for name in names if is_typed(ctx, name)), None)


def engine(engine: Engine = EngineName.LOCAL, master: Master = None, spark_conf: SparkConf = None) -> None:
    """Group: the engine."""


_REPEATED = frozenset({WHERE, SHOW, RUN, EVERYWHERE})
"""The titles of groups of options that most commands have, whose help only names them."""


def with_options(
    *groups: Callable[..., None] | EllipsisType, needs_valid_settings: bool = True
) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command the options of `groups` and its own; all are in `ctx.params`.

    The help lists them in this order; `...` stands for the command's own options, which are last without it.
    An option that a group and the command both declare is used as the command declares it. The decorator
    calls the command with the parameters of its own signature only. With `needs_valid_settings` it raises
    UsageError for a wrong tierctl.toml or environment before that.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command).parameters

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            settings = given["ctx"].obj
            if isinstance(settings, RunSettings):
                settings.announce()
                if needs_valid_settings:
                    settings.require_valid()
            return command(**{name: given[name] for name in own})

        taken: dict[str, Parameter] = {}
        listed = groups if ... in groups else (*groups, ...)
        for group in (*listed, everywhere, help_of_all):
            taken |= own if isinstance(group, EllipsisType) else inspect.signature(group).parameters
        taken |= own
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in taken.values()]
        called.__signature__ = Signature(named)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in named}
        called.needs_valid_settings = needs_valid_settings  # type: ignore[attr-defined]
        called.repeated = {  # type: ignore[attr-defined]
            each.name for each in named if each.name not in own and _panel(each) in _REPEATED
        }
        return called

    return decorate


def _panel(parameter: Parameter) -> str | None:
    """Return the title under which the help lists an option."""
    return next(
        (each.rich_help_panel for each in get_args(parameter.annotation) if isinstance(each, OptionInfo)),
        None,
    )


def request_of(kind: type[R], ctx: typer.Context, **more: object) -> R:
    """Return the request of class `kind` whose fields have the values of the options of the same names.

    Options that were not given leave a field at its default; fields in `more` have the values given there.
    Raise UsageError for options of Spark that are typed without `--engine spark`.
    """
    given: Mapping[str, Any] = ctx.params
    if given.get("engine") is EngineName.LOCAL:
        # A profile may have them for other runs, so only typed options are an error.
        option = typed_option(ctx, ("master", "spark_conf"))
        if option:
            raise UsageError(
                f"{option} needs --engine spark", hint=f"add --engine spark, or leave {option} out"
            )
    of_run = {"verbose": getattr(ctx.obj, "verbosity", 0) > 1, "meter": getattr(ctx.obj, "meter", None)}
    if isinstance(ctx.obj, RunSettings):
        of_run |= {"on_topics": ctx.obj.topics.update, "throttle": ctx.obj.throttle}
    values = dict(given) | of_run | more
    if isinstance(ctx.obj, RunSettings) and given.get("apply") is not False:
        # A run that only plans changes nothing in the state directory.
        ctx.obj.state_dir = values.get("state_dir")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in names and value is not None
        }
    )
