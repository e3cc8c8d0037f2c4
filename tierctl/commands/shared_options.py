"""Options that several commands share: name, type, help and panel; a request's field has the default.

    topic: Topics = ()

`with_options` makes the options of a command from the fields of its request; lists are sequences here.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from tierctl.commands import completion
from tierctl.errors import UsageError
from tierctl.model.choices import EngineName
from tierctl.model.ids import TopicPartition
from tierctl.model.location import TruncatedMetadata
from tierctl.model.selection import parse_partition
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.model.times import DURATION_FORMS, parse_duration_ms, parse_time_ms
from tierctl.storage.throttle import parse_rate

TYPED_ONLY: Final = object()
"""In the annotation of an option that only the command line gives, neither the environment nor tierctl.toml.

Such an option chooses what is deleted, or weakens a rule of safety:

    Apply = Annotated[bool, typer.Option("--apply", help="Carry out the plan."), TYPED_ONLY]
"""
WHERE = "Where things are"
NARROW = "Which partitions"
DECIDE = "How to decide"
APPLY = "Changing things"
RUN = "Where the work is done"
HOW = "How it is done"
FROM_TIER = "From one tier to another"
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
        "__remote_log_metadata-N/ (file:///dir or a plain path). Default: the topic on the cluster of "
        "--bootstrap-server. Commands that only read also accept a copy "
        "of such a folder in a store: s3://bucket/folder or any other URI that --remote accepts.",
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
        "--broker-config",
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
        "file:///dir or a plain path. For S3, the endpoint, region and credentials come from the usual AWS "
        "environment variables and files.",
        rich_help_panel=WHERE,
    ),
]
RemoteLayout = Annotated[
    Layout | None,
    typer.Option(
        "--layout",
        help="Names and encoding of a segment's objects: kafka as in LocalTieredStorage, aiven as in Aiven's "
        "plugin with the rsm.config.* settings of --broker-config. Default: the layout found in the tier, "
        "otherwise kafka for folders and aiven for other stores.",
        rich_help_panel=WHERE,
    ),
]
AivenPrivateKeys = Annotated[
    Sequence[str],
    typer.Option(
        "--aiven-private-key",
        metavar="[ID=]FILE",
        help="Private key (RSA, PEM) that decrypts segments of Aiven's plugin, in addition to the keys that "
        "--broker-config names. Repeatable.",
        rich_help_panel=WHERE,
    ),
]
LogDirs = Annotated[
    Sequence[Path],
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
        "(powers of 1024). Default: remote.log.manager.copy.max.bytes.per.second in --broker-config "
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
        "(powers of 1024). Default: remote.log.manager.fetch.max.bytes.per.second in --broker-config "
        "(KIP-956), otherwise unlimited.",
        rich_help_panel=RUN,
    ),
]
TopicConfigs = Annotated[
    Path | None,
    typer.Option(
        "--topic-configs",
        metavar="FILE",
        help="Properties file with topic settings: <topic>.retention.bytes=... On a cluster, the topics' own "
        "settings take precedence.",
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
        "refuse: decide nothing for the partition, unless --state-dir, its log start offset or the objects "
        "in the tier show that its remaining events are complete. accept: decide from the remaining events, "
        "as a broker does; objects without events stay in the tier.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Topics = Annotated[
    Sequence[str],
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
    Sequence[int | TopicPartition],
    typer.Option(
        "--partition",
        metavar="[TOPIC-]N",
        parser=parse_partition,
        help="Only this partition, as 0 or orders-0. Repeatable.",
        rich_help_panel=NARROW,
    ),
]
TopicIds = Annotated[
    Sequence[str],
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
CopyLimit = Annotated[
    int,
    typer.Option(
        "--copy-limit",
        metavar="DURATION",
        show_default="1h",
        parser=parse_duration_ms,
        help="A copy that was begun this long ago and did not finish is a problem, and so is a transaction "
        f"that has kept segments from the tier for this long: {DURATION_FORMS}.",
        rich_help_panel=DECIDE,
    ),
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
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="local: threads of this process. spark: executors of Apache Spark; this process still makes the "
        "decisions and writes to the metadata topic.",
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
    Sequence[str],
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="With --engine spark: a Spark setting. Credentials are refused. Repeatable.",
        rich_help_panel=RUN,
    ),
]
WaveSize = Annotated[
    int | None,
    typer.Option(
        "--wave-size",
        metavar="N",
        min=1,
        help="Number of segments per wave: their events are published together, then their objects are "
        "stored or deleted, then the result is confirmed. Default: 16 for copies (on Spark 2 per concurrent "
        "task), 1000 for deletes and publishing.",
        rich_help_panel=HOW,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        help="Number of segments that are read, stored or deleted at the same time.",
        rich_help_panel=HOW,
    ),
]
BrokerId = Annotated[
    int,
    typer.Option(
        "--broker-id",
        metavar="ID",
        min=-1,
        help="Broker id in published events; -1 means that no broker published them.",
        rich_help_panel=HOW,
    ),
    TYPED_ONLY,
]
Override = Annotated[
    Sequence[str],
    typer.Option(
        "--override",
        metavar="NAME=VALUE",
        help="A broker setting that overrides --broker-config: remote.log.manager.task.retry.backoff.ms "
        "(500), remote.log.manager.task.retry.backoff.max.ms (30000), "
        "remote.log.manager.task.retry.jitter (0.2), "
        "remote.log.metadata.custom.metadata.max.bytes (128). Times and sizes may have units, such as 2s and "
        "1K. Repeatable.",
        rich_help_panel=HOW,
    ),
    TYPED_ONLY,
]
Attempts = Annotated[
    int,
    typer.Option(
        "--attempts",
        metavar="N",
        min=1,
        help="How often each call to the store is tried before the segment fails.",
        rich_help_panel=HOW,
    ),
]
AllowLiveBrokers = Annotated[
    bool,
    typer.Option(
        "--allow-live-brokers",
        help="Continue although brokers may do the same work: the cluster tiers a partition, or it is "
        "unknown whether it does; or a broker runs on a --log-dir that decides deletes or that shows signs "
        "of tiering. A broker that tiers a partition copies every segment again that tierctl copies, because "
        "it reads only once, when it becomes leader, what is copied. This option is never needed "
        "to copy from a running broker that does not tier.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
AllowMissingObjects = Annotated[
    bool,
    typer.Option(
        "--allow-missing-objects",
        help="Continue although the tier has no objects of the finished segments, because the objects are "
        "known to be lost. Without this option tierctl assumes that --remote names the wrong tier and exits.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
AdoptTier = Annotated[
    bool,
    typer.Option(
        "--adopt-tier",
        help="Assign the tier to --metadata: --apply replaces the identity that is stored in the tier. Use "
        "it if the metadata topic was created again. Without this option tierctl refuses a tier that belongs "
        "to another metadata topic.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
NoLease = Annotated[
    bool,
    typer.Option(
        "--no-lease",
        help="Continue although tierctl has no lease for the store of --remote (gs://, abfs://, viewfs://, "
        "S3 without conditional writes, file systems without locks). You must make sure that no other "
        "tierctl changes the tier.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
CreateMetadataTopic = Annotated[
    bool,
    typer.Option(
        "--create-metadata-topic",
        help="Create __remote_log_metadata if the cluster does not have it, with the "
        "remote.log.metadata.topic.* settings of --broker-config (default: 50 partitions, 3 replicas).",
        rich_help_panel=HOW,
    ),
]
MetadataPartitions = Annotated[
    int | None,
    typer.Option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Number of partitions of __remote_log_metadata in the folder of --metadata, where neither the "
        "cluster's metadata (__cluster_metadata-0) nor --broker-config states it. A folder that is missing "
        "is a lost partition. A new folder gets this number.",
        rich_help_panel=HOW,
    ),
]
AssumeEnabled = Annotated[
    bool,
    typer.Option(
        "--assume-enabled",
        help="With --topic: copy these topics although their settings do not state remote.storage.enable. "
        "Topics with remote.storage.enable=false and compacted topics are still refused.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
CustomMetadataMaxBytes = Annotated[
    int | None,
    typer.Option(
        "--custom-metadata-max-bytes",
        metavar="N",
        min=0,
        help="Maximum size of a segment's custom metadata (KIP-917). If a segment has more, the copy of its "
        "partition stops. Default: the broker setting, otherwise 128.",
        rich_help_panel=HOW,
    ),
    TYPED_ONLY,
]
CleanDangling = Annotated[
    bool,
    typer.Option(
        "--clean-dangling",
        help="Also delete the objects of copies that started over 24 hours ago and did not finish, whoever "
        "began them. copy always deletes what a killed run of tierctl began; sweep deletes objects below the "
        "log start offset.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
LogStartOffsets = Annotated[
    Sequence[str],
    typer.Option(
        "--log-start-offset",
        metavar="TOPIC-PARTITION=OFFSET",
        help="Raise the log start offset of a partition to OFFSET, as DeleteRecords does. Repeatable.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
OffLineage = Annotated[
    bool,
    typer.Option(
        "--off-lineage",
        help="Also delete segments that diverged from the current lineage, once the log start offset has "
        "passed their leader epochs.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
UnreferencedEpochs = Annotated[
    bool,
    typer.Option(
        "--unreferenced-epochs",
        help="Also delete segments above the log start offset whose leader epochs are all older than the "
        "earliest epoch of the log. Such segments below the log start offset are deleted without this "
        "option.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Assumed = Annotated[
    Sequence[str],
    typer.Option(
        "--assume",
        metavar="TOPIC.SETTING=VALUE",
        help="Plan as if a topic, or each topic that matches a glob, had this retention.ms or "
        "retention.bytes. Times such as 1h, sizes such as 50G, or numbers as in Kafka. Repeatable. Such a "
        "plan can't be saved, and --apply refuses it.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
MaxDeletes = Annotated[
    int | None,
    typer.Option(
        "--max-deletes",
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
        "--max-fraction",
        metavar="F",
        min=0,
        max=1,
        help="Maximum fraction of a partition's segments that a run may delete. Partitions with fewer than "
        "20 segments have no such limit. Default: 0.5.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Mark = Annotated[
    bool,
    typer.Option(
        "--mark",
        help="Publish DELETE_PARTITION_MARKED for a deleted topic: the one of --topic-id, or of --topic if "
        "only one id has that name. tierctl exits with code 4 without evidence that the topic is deleted: "
        "the cluster does not know its id, or --all-log-dirs.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Find = Annotated[
    bool,
    typer.Option(
        "--find",
        help="List the topic ids that the metadata has and the cluster's controller does not know. With "
        "--mark, mark these topics.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
AllLogDirs = Annotated[
    bool,
    typer.Option(
        "--all-log-dirs",
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
        "--i-know-it-is-deleted",
        metavar="TOPIC_ID",
        help="Mark this topic id without other evidence that the topic is deleted. If the cluster still has "
        "the topic, tierctl refuses anyway. Repeatable.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Interval = Annotated[
    int | None,
    typer.Option(
        "--interval",
        metavar="[DURATION]",
        parser=parse_duration_ms,
        help=f"Repeat the run at this interval after the end of the previous run: {DURATION_FORMS}. "
        "Without a value: 1h, the default of remote.partition.remover.task.interval.ms.",
        rich_help_panel=HOW,
    ),
]
FromRemote = Annotated[
    str | None,
    typer.Option(
        "--from-remote",
        metavar="URI",
        help="Copy segments from this tier, which --metadata describes, instead of from log directories.",
        rich_help_panel=FROM_TIER,
    ),
]
FromLayout = Annotated[
    Layout | None,
    typer.Option(
        "--from-layout",
        help="Layout of --from-remote. Default: the layout found there.",
        rich_help_panel=FROM_TIER,
    ),
]
ToMetadata = Annotated[
    str | None,
    typer.Option(
        "--to-metadata",
        metavar="URI",
        help="Metadata topic of --remote, the tier that receives the copies. It must not be the metadata "
        "topic of --from-remote.",
        rich_help_panel=FROM_TIER,
    ),
]
ToCommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--to-command-config",
        metavar="FILE",
        help="Like --command-config, for --to-metadata. Default: --command-config.",
        rich_help_panel=FROM_TIER,
    ),
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
        help="If the segments of a partition have a hole, restore the records after the last hole. Without "
        "this option such partitions are refused (exit 4).",
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
