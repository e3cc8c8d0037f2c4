"""Options that several requests share: name, type, help and panel; a request's field has the default.

    max_deletes: MaxDeletes = None

`with_options` makes the options of a command from the fields of its request; lists are sequences here.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from tierctl.model.times import parse_time_ms

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


Apply = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Carry out the plan. Without this option the plan is only printed.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
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
