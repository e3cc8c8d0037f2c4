"""Options of the commands that may change a tier, in addition to those of every command."""

from pathlib import Path
from typing import Annotated

from tierctl.apply.defaults import ATTEMPTS, NOT_A_BROKER_ID, THREADS
from tierctl.cli import options
from tierctl.cli.declare import option
from tierctl.cli.options import APPLY, DECIDE
from tierctl.model.times import parse_duration_ms

HOW = "How it is done"

WaveSize = Annotated[
    int | None,
    option(
        "--wave-size",
        metavar="N",
        min=1,
        help="Segments that are published, moved and confirmed together. Default: 16 to copy, on Spark 8 for "
        "each task that runs at the same time; 1000 to delete or to publish.",
        panel=HOW,
    ),
]
Threads = Annotated[
    int,
    option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        help="Segments that are read, stored or deleted at the same time.",
        panel=HOW,
    ),
]
BrokerId = Annotated[
    int,
    option(
        "--broker-id",
        metavar="ID",
        min=-1,
        help="Broker id in published events; -1 stands for no broker.",
        panel=HOW,
    ),
]
Override = Annotated[
    list[str] | None,
    option(
        "--override",
        metavar="NAME=VALUE",
        help="A broker setting that overrides --config: remote.log.manager.task.retry.backoff.ms (500), "
        "remote.log.manager.task.retry.backoff.max.ms (30000), remote.log.manager.task.retry.jitter (0.2), "
        "remote.log.metadata.custom.metadata.max.bytes (128). Repeatable.",
        panel=HOW,
    ),
]
Attempts = Annotated[
    int,
    option(
        "--attempts",
        metavar="N",
        min=1,
        help="Attempts of each call to the store before the segment fails.",
        panel=HOW,
    ),
]
AllowLiveBrokers = Annotated[
    bool,
    option(
        "--allow-live-brokers",
        help="Continue although brokers may do the same work: the cluster tiers a partition, or nothing says "
        "whether it does; a broker runs on a --log-dir that decides deletes, or that shows signs of tiering. "
        "Never needed to copy from a running broker that does not tier.",
        panel=APPLY,
    ),
]
AllowMissingObjects = Annotated[
    bool,
    option(
        "--allow-missing-objects",
        help="Continue although the tier has no object of finished segments, because they are known to be "
        "lost. Without this option tierctl treats such a tier as the wrong one.",
        panel=APPLY,
    ),
]
AdoptTier = Annotated[
    bool,
    option(
        "--adopt-tier",
        help="Make the tier that of --metadata: with --apply, write --metadata's identity over the one in "
        "the tier. For a metadata topic that was created again. Without this option tierctl refuses the tier "
        "of another metadata topic.",
        panel=APPLY,
    ),
]
NoLease = Annotated[
    bool,
    option(
        "--no-lease",
        help="Continue although tierctl has no lease for the store of --remote (gs://, abfs://, viewfs://, "
        "file systems without locks): you make sure that no other tierctl changes the tier.",
        panel=APPLY,
    ),
]
CreateMetadataTopic = Annotated[
    bool,
    option(
        "--create-metadata-topic",
        help="Create __remote_log_metadata if the cluster has none, with --config's "
        "remote.log.metadata.topic.* settings (50 partitions, 3 replicas).",
        panel=HOW,
    ),
]
AssumeEnabled = Annotated[
    bool,
    option(
        "--assume-enabled",
        help="With --topic: copy these topics although their settings do not state remote.storage.enable. "
        "A stated false, and a compacted topic, are refused all the same.",
        panel=DECIDE,
    ),
]
CustomMetadataMaxBytes = Annotated[
    int | None,
    option(
        "--custom-metadata-max-bytes",
        metavar="N",
        min=0,
        help="KIP-917's limit; a segment with more stops its partition. Default: the setting, else 128.",
        panel=HOW,
    ),
]
CleanDangling = Annotated[
    bool,
    option(
        "--clean-dangling",
        help="Also delete the objects of copies that began over 24 hours ago and never finished. Those below "
        "the log start are deleted by sweep, too.",
        panel=DECIDE,
    ),
]
LogStartOffsets = Annotated[
    list[str] | None,
    option(
        "--log-start-offset",
        metavar="TOPIC-PARTITION=OFFSET",
        help="Raise a partition's log start offset, as DeleteRecords does. Repeatable.",
        panel=DECIDE,
    ),
]
OffLineage = Annotated[
    bool,
    option(
        "--off-lineage",
        help="Also delete segments that diverged from the lineage, once its start has passed their epochs.",
        panel=DECIDE,
    ),
]
UnreferencedEpochs = Annotated[
    bool,
    option(
        "--unreferenced-epochs",
        help="Also delete segments above the log start whose leader epochs are all older than the log's "
        "earliest one. Those below the log start are deleted in any case.",
        panel=DECIDE,
    ),
]
MaxDeletes = Annotated[
    int | None,
    option(
        "--max-deletes",
        metavar="N",
        min=0,
        help="Segments that a run may delete; a plan with more ends with exit code 8. Default: 10000.",
        panel=DECIDE,
    ),
]
MaxFraction = Annotated[
    float | None,
    option(
        "--max-fraction",
        metavar="F",
        min=0,
        max=1,
        help="Share of a partition's segments that a run may delete, if it has 20 or more. Default: 0.5.",
        panel=DECIDE,
    ),
]
Mark = Annotated[
    bool,
    option(
        "--mark",
        help="Publish DELETE_PARTITION_MARKED for a deleted topic: --topic-id, or a --topic with one id. "
        "Without evidence that the topic is deleted, tierctl refuses (exit 4): the cluster does not know its "
        "id, or --all-log-dirs.",
        panel=DECIDE,
    ),
]
Yes = Annotated[
    bool,
    option(
        "--yes",
        "-y",
        help="At a terminal --apply asks for the topic's name before a plan of delete is carried out. With "
        "this option it does not.",
        panel=APPLY,
    ),
]
Find = Annotated[
    bool,
    option(
        "--find",
        help="List the topic ids that the metadata have and the cluster's controller does not know. "
        "With --mark they are marked.",
        panel=DECIDE,
    ),
]
AllLogDirs = Annotated[
    bool,
    option(
        "--all-log-dirs",
        help="The --log-dir options name the log directories of all replicas: a topic id without a folder in "
        "any of them is deleted. This is the evidence that --mark needs where no cluster can be asked. A "
        "directory that can't be read, is empty or belongs to another cluster is no evidence.",
        panel=DECIDE,
    ),
]
IKnowItIsDeleted = Annotated[
    list[str] | None,
    option(
        "--i-know-it-is-deleted",
        metavar="TOPIC_ID",
        help="Mark this topic id without other evidence that the topic is deleted. A topic that the cluster "
        "still has is refused nevertheless. Repeatable.",
        panel=DECIDE,
    ),
]
Interval = Annotated[
    int | None,
    option(
        "--interval",
        metavar="[DURATION]",
        parser=parse_duration_ms,
        help="Repeat the run, this long after the last run has ended: 90s, 1h30m, or milliseconds. Without "
        "a value: 1h, the default of remote.partition.remover.task.interval.ms.",
        panel=HOW,
    ),
]


FROM_TIER = "From one tier to another"

FromRemote = Annotated[
    str | None,
    option(
        "--from-remote",
        metavar="URI",
        help="Copy from this tier, which --metadata describes, instead of from log directories.",
        panel=FROM_TIER,
    ),
]
FromLayout = Annotated[
    options.Layout | None,
    option(
        "--from-layout",
        help="Layout of --from-remote. Default: the layout found there.",
        panel=FROM_TIER,
    ),
]
ToMetadata = Annotated[
    str | None,
    option(
        "--to-metadata",
        metavar="URI",
        help="The metadata topic of --remote, the tier that is copied to; never that of --from-remote.",
        panel=FROM_TIER,
    ),
]
ToCommandConfig = Annotated[
    Path | None,
    option(
        "--to-command-config",
        metavar="FILE",
        help="Like --command-config, for --to-metadata. Default: --command-config.",
        panel=FROM_TIER,
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
