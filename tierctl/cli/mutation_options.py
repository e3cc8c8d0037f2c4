"""Options of the commands that change things, beside those every command shares."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.defaults import ATTEMPTS, NOT_A_BROKER_ID, THREADS
from tierctl.cli import options
from tierctl.cli.options import APPLY, DECIDE

HOW = "How it is done"

WaveSize = Annotated[
    int | None,
    typer.Option(
        "--wave-size",
        metavar="N",
        min=1,
        help="Segments that are published, moved and confirmed together. Default: 16; on Spark 8 for each "
        "task that runs at the same time.",
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
        help="Segments that are stored or deleted at the same time.",
        show_default=True,
        rich_help_panel=HOW,
    ),
]
BrokerId = Annotated[
    int,
    typer.Option(
        "--broker-id",
        metavar="ID",
        min=-1,
        help="Written into events as their author; -1 is no broker's.",
        show_default=True,
        rich_help_panel=HOW,
    ),
]
Override = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        metavar="NAME=VALUE",
        help="A broker setting, before what --config says: remote.log.manager.task.retry.backoff.ms (500), "
        "remote.log.manager.task.retry.backoff.max.ms (30000), remote.log.manager.task.retry.jitter (0.2), "
        "remote.log.metadata.custom.metadata.max.bytes (128). Repeatable.",
        rich_help_panel=HOW,
    ),
]
Attempts = Annotated[
    int,
    typer.Option(
        "--attempts",
        metavar="N",
        min=1,
        help="How often a call to the store is tried before the segment fails.",
        show_default=True,
        rich_help_panel=HOW,
    ),
]
AllowLiveBrokers = Annotated[
    bool,
    typer.Option(
        "--allow-live-brokers",
        help="Go on although brokers may do the same work: one runs on a --log-dir, or tiers a partition "
        "on the cluster.",
        rich_help_panel=APPLY,
    ),
]
AllowMissingObjects = Annotated[
    bool,
    typer.Option(
        "--allow-missing-objects",
        help="Go on although the tier has no object of finished segments, since they are known to be lost. "
        "Without it such a tier is taken for the wrong one.",
        rich_help_panel=APPLY,
    ),
]
CreateMetadataTopic = Annotated[
    bool,
    typer.Option(
        "--create-metadata-topic",
        help="Make __remote_log_metadata when the cluster has none, with --config's "
        "remote.log.metadata.topic.* settings (50 partitions, 3 replicas).",
        rich_help_panel=HOW,
    ),
]
CustomMetadataMaxBytes = Annotated[
    int | None,
    typer.Option(
        "--custom-metadata-max-bytes",
        metavar="N",
        min=0,
        help="KIP-917's limit; a segment with more stops its partition. Default: the setting, else 128.",
        rich_help_panel=HOW,
    ),
]
CleanDangling = Annotated[
    bool,
    typer.Option(
        "--clean-dangling",
        help="Also delete what copies begun over 24 hours ago and never finished have left.",
        rich_help_panel=DECIDE,
    ),
]
LogStartOffsets = Annotated[
    list[str] | None,
    typer.Option(
        "--log-start-offset",
        metavar="TOPIC-PARTITION=OFFSET",
        help="Raise a partition's log start offset, as DeleteRecords does. Repeatable.",
        rich_help_panel=DECIDE,
    ),
]
OffLineage = Annotated[
    bool,
    typer.Option(
        "--off-lineage",
        help="Also delete segments that diverged from the lineage, once its start has passed their epochs.",
        rich_help_panel=DECIDE,
    ),
]
UnreferencedEpochs = Annotated[
    bool,
    typer.Option(
        "--unreferenced-epochs",
        help="Also delete segments above the log start whose leader epochs are all older than the log's "
        "earliest one. Those below the log start are deleted in any case.",
        rich_help_panel=DECIDE,
    ),
]
MaxDeletes = Annotated[
    int | None,
    typer.Option(
        "--max-deletes",
        metavar="N",
        min=0,
        help="Segments a run may delete; more stop it before the first, with exit code 8. Default: 10000.",
        rich_help_panel=DECIDE,
    ),
]
MaxFraction = Annotated[
    float | None,
    typer.Option(
        "--max-fraction",
        metavar="F",
        min=0,
        max=1,
        help="Share of a partition's segments a run may delete, where it has 20 or more. Default: 0.5.",
        rich_help_panel=DECIDE,
    ),
]
Mark = Annotated[
    bool,
    typer.Option(
        "--mark",
        help="Publish DELETE_PARTITION_MARKED for a deleted topic: --topic-id, or a --topic with one id.",
        rich_help_panel=DECIDE,
    ),
]
Find = Annotated[
    bool,
    typer.Option(
        "--find",
        help="Which topic ids the metadata have and the cluster's controller does not know. "
        "With --mark these are marked.",
        rich_help_panel=DECIDE,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Mark a topic although the cluster or a --log-dir still has it; with --find, although the "
        "cluster knows none of the topics in the metadata.",
        rich_help_panel=DECIDE,
    ),
]
Interval = Annotated[
    int | None,
    typer.Option(
        "--interval",
        metavar="[MS]",
        min=1,
        help="Run again and again, this long after the last run has ended. Without a value: "
        "3600000, the default of remote.partition.remover.task.interval.ms.",
        rich_help_panel=HOW,
    ),
]


FROM_TIER = "From one tier to another"

FromRemote = Annotated[
    str | None,
    typer.Option(
        "--from-remote",
        metavar="URI",
        help="Copy from this tier, which --metadata is about, rather than from log directories.",
        rich_help_panel=FROM_TIER,
    ),
]
FromLayout = Annotated[
    options.Layout | None,
    typer.Option(
        "--from-layout",
        help="Names of the objects in --from-remote. Default: what is there.",
        rich_help_panel=FROM_TIER,
    ),
]
ToMetadata = Annotated[
    str | None,
    typer.Option(
        "--to-metadata",
        metavar="URI",
        help="The metadata topic of --remote, the tier that is copied to; never that of --from-remote.",
        rich_help_panel=FROM_TIER,
    ),
]
ToCommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--to-command-config",
        metavar="FILE",
        help="As --command-config, for --to-metadata. Default: --command-config.",
        rich_help_panel=FROM_TIER,
    ),
]


def changing(
    output: options.Output = options.OutputFormat.TABLE,
    plan_out: options.PlanOut = None,
    detailed_exitcode: options.DetailedExitcode = False,
    apply: options.Apply = False,
    allow_live_brokers: AllowLiveBrokers = False,
    allow_missing_objects: AllowMissingObjects = False,
    broker_id: BrokerId = NOT_A_BROKER_ID,
    wave_size: WaveSize = None,
    threads: Threads = THREADS,
    attempts: Attempts = ATTEMPTS,
    override: Override = None,
) -> None:
    """How a plan is shown or carried out."""
