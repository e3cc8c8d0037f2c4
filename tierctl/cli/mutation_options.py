"""Options of the commands that may change a tier, in addition to those of every command."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.defaults import ATTEMPTS, NOT_A_BROKER_ID, THREADS
from tierctl.cli import options
from tierctl.cli.options import APPLY, DECIDE
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.model.times import DURATION_FORMS, parse_duration_ms

HOW = "How it is done"

WaveSize = Annotated[
    int | None,
    typer.Option(
        "--wave-size",
        metavar="N",
        min=1,
        help="Number of segments per wave: their events are published together, then their objects are "
        "stored or deleted, then the result is confirmed. Default: 16 for copies (on Spark 8 per "
        "concurrent task), 1000 for deletes and publishing.",
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
    list[str] | None,
    typer.Option(
        "--override",
        metavar="NAME=VALUE",
        help="A broker setting that overrides --config: remote.log.manager.task.retry.backoff.ms (500), "
        "remote.log.manager.task.retry.backoff.max.ms (30000), remote.log.manager.task.retry.jitter (0.2), "
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
        "unknown whether it does; or a broker runs on a --log-dir that decides deletes or that shows "
        "signs of tiering. This option is never needed to copy from a running broker that does not "
        "tier.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
AllowMissingObjects = Annotated[
    bool,
    typer.Option(
        "--allow-missing-objects",
        help="Continue although the tier has no objects of the finished segments, because the objects are "
        "known to be lost. Without this option tierctl assumes that --remote names the wrong tier and "
        "exits.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
AdoptTier = Annotated[
    bool,
    typer.Option(
        "--adopt-tier",
        help="Assign the tier to --metadata: --apply replaces the identity that is stored in the tier. Use "
        "it if the metadata topic was created again. Without this option tierctl refuses a tier that "
        "belongs to another metadata topic.",
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
        "remote.log.metadata.topic.* settings of --config (default: 50 partitions, 3 replicas).",
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
        "cluster's metadata (__cluster_metadata-0) nor --config states it. A folder that is missing is a "
        "lost partition. A new folder gets this number.",
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
        help="Also delete the objects of copies that started over 24 hours ago and did not finish. sweep "
        "deletes such objects, too, if they lie below the log start offset.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
LogStartOffsets = Annotated[
    list[str] | None,
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
        "only one id has that name. tierctl exits with code 4 without evidence that the topic is "
        "deleted: the cluster does not know its id, or --all-log-dirs.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not ask for confirmation. Without this option, --apply at a terminal asks for the topic's "
        "name before it carries out a plan of delete.",
        rich_help_panel=APPLY,
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
        "without a folder in any of them is deleted. --mark accepts this as evidence where it cannot "
        "ask a cluster. A directory that is unreadable, empty or of another cluster is no evidence.",
        rich_help_panel=DECIDE,
    ),
    TYPED_ONLY,
]
IKnowItIsDeleted = Annotated[
    list[str] | None,
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


FROM_TIER = "From one tier to another"

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
    options.Layout | None,
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


def changing(
    plan_out: options.PlanOut = None,
    detailed_exitcode: options.DetailedExitcode = False,
    apply: options.Apply = False,
    allow_live_brokers: AllowLiveBrokers = False,
    allow_missing_objects: AllowMissingObjects = False,
    adopt_tier: AdoptTier = False,
    no_lease: NoLease = False,
    broker_id: BrokerId = NOT_A_BROKER_ID,
    wave_size: WaveSize = None,
    threads: Threads = THREADS,
    attempts: Attempts = ATTEMPTS,
    override: Override = None,
) -> None:
    """Group: how a plan is printed or carried out."""


def publishing(
    plan_out: options.PlanOut = None,
    detailed_exitcode: options.DetailedExitcode = False,
    apply: options.Apply = False,
    broker_id: BrokerId = NOT_A_BROKER_ID,
    wave_size: WaveSize = None,
    threads: Threads = THREADS,
    attempts: Attempts = ATTEMPTS,
) -> None:
    """Group: how a plan that changes no object of the tier is printed or carried out."""
