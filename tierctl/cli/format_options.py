"""The options of `tierctl format`."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tierctl.cli import options
from tierctl.errors import UsageError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from tierctl.wire.metadata.schema import FIELD_NAMES

_STYLE = "How a record is written"
_INPUT = "What is read"
_FILTER = "Which records"
_CONSUMER = "As Kafka's console consumer"


class Input(StrEnum):
    """What the files, or stdin, hold."""

    SEGMENT = "segment"
    HEX = "hex"
    FRAMED = "framed"


class Order(StrEnum):
    """How the partitions of the metadata topic are put in a row."""

    PARTITION = "partition"
    TIME = "time"


_POSITION = ("metadata_partition", "metadata_offset", "timestamp_ms")
COLUMNS = (*FIELD_NAMES, "dialect", *_POSITION, "error", "value")
TABLE_COLUMNS = (
    *_POSITION,
    *("type", "topic", "partition", "segment_id", "start_offset", "end_offset", "state", "error"),
)

STATES = tuple(str(state) for state in (*RemoteLogSegmentState, *RemotePartitionDeleteState))
TYPES = tuple(
    event.type
    for event in (
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata,
        RemoteLogSegmentMetadataSnapshot,
    )
)


def chosen(option: str, texts: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The names that were given, in any case; UsageError for one that is none of `names`."""
    by_folded = {name.casefold(): name for name in names}
    for text in texts or ():
        if text.casefold() not in by_folded:
            raise UsageError(f"{option}: no {text!r}", hint=f"one of {', '.join(names)}")
    return [by_folded[text.casefold()] for text in texts or ()]


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Segment files of the metadata topic, or what --input says; - is stdin.",
        show_default=False,
    ),
]
InputOption = Annotated[
    Input | None,
    typer.Option(
        "--input",
        help="hex: a value a line. framed: 4-byte big-endian length, then the value. Without FILE: of stdin.",
        rich_help_panel=_INPUT,
    ),
]
OrderOption = Annotated[
    Order,
    typer.Option("--order", help="Partition by partition, or by time across them.", rich_help_panel=_INPUT),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for more, until stopped.", rich_help_panel=_INPUT)
]
PollInterval = Annotated[
    int,
    typer.Option(
        "--poll-interval-ms",
        metavar="MS",
        min=10,
        max=60_000,
        help="How long --follow waits before it looks again.",
        rich_help_panel=_INPUT,
    ),
]
MaxMessages = Annotated[
    int | None,
    typer.Option("--max-messages", metavar="N", min=1, help="Stop after so many.", rich_help_panel=_INPUT),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Consume this cluster's topic: from its end, until stopped. --partition is the topic's own.",
        rich_help_panel=_CONSUMER,
    ),
]
FromBeginning = Annotated[
    bool,
    typer.Option("--from-beginning", help="From the first record on.", rich_help_panel=_CONSUMER),
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="N",
        help="From this offset of --partition on: a number, earliest or latest.",
        rich_help_panel=_CONSUMER,
    ),
]
TimeoutMs = Annotated[
    int | None,
    typer.Option(
        "--timeout-ms",
        metavar="MS",
        min=0,
        help="Stop when nothing came for so long.",
        rich_help_panel=_CONSUMER,
    ),
]
FormatterJar = Annotated[
    bool,
    typer.Option(
        "--formatter-jar",
        help="Print where the jar is that lets Kafka's own console consumer write this text.",
        rich_help_panel=_CONSUMER,
    ),
]
Style = Annotated[
    str | None,
    typer.Option(
        "--style",
        metavar="NAME",
        help="kafka: as Kafka's own formatter. kip: as KIP-405 describes. json: an object a line. "
        "Or one that a plugin brings. Default: kip when it has properties, else kafka.",
        rich_help_panel=_STYLE,
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="As the console consumer's: format=json, print.partition=true, sep=; and so on. Repeatable.",
        rich_help_panel=_STYLE,
    ),
]
PrintPartition = Annotated[
    bool, typer.Option("--print-partition", help="kip: the metadata partition.", rich_help_panel=_STYLE)
]
PrintOffset = Annotated[
    bool, typer.Option("--print-message-offset", help="kip: the metadata offset.", rich_help_panel=_STYLE)
]
PrintVersion = Annotated[
    bool, typer.Option("--print-version", help="kip: the record's version.", rich_help_panel=_STYLE)
]
PrintAll = Annotated[
    bool,
    typer.Option(
        "--print-all-event-value-fields",
        help="kip: every field, not only the short form.",
        rich_help_panel=_STYLE,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--sep",
        "--separator",
        metavar="TEXT",
        help="kip: between fields. Default: a comma.",
        rich_help_panel=_STYLE,
    ),
]
ValueSeparator = Annotated[
    str | None,
    typer.Option(
        "--vs",
        "--value-separator",
        metavar="TEXT",
        help="kip: before event-value. Default: as --sep.",
        rich_help_panel=_STYLE,
    ),
]
Rows = Annotated[
    options.OutputFormat | None,
    typer.Option(
        "--output", "-o", help="The fields of --style json as rows of this format.", rich_help_panel=_STYLE
    ),
]
SegmentIds = Annotated[
    list[str] | None,
    typer.Option(
        "--segment-id", metavar="ID", help="Only this segment. Repeatable.", rich_help_panel=_FILTER
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        autocompletion=lambda: list(STATES),
        help="Only this state, as COPY_SEGMENT_FINISHED. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        autocompletion=lambda: list(TYPES),
        help="Only this type, as RemoteLogSegmentMetadata. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        help="Events from then on; milliseconds or ISO 8601.",
        rich_help_panel=_FILTER,
    ),
]
ToTime = Annotated[
    str | None,
    typer.Option("--to-time", metavar="TIME", help="Events up to then.", rich_help_panel=_FILTER),
]
MetadataPartitions = Annotated[
    list[int] | None,
    typer.Option(
        "--metadata-partition",
        metavar="N",
        min=0,
        help="Only this partition of the metadata topic. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
FromOffset = Annotated[
    int | None,
    typer.Option(
        "--from-offset", metavar="N", min=0, help="From this metadata offset on.", rich_help_panel=_FILTER
    ),
]
ToOffset = Annotated[
    int | None,
    typer.Option(
        "--to-offset",
        metavar="N",
        min=0,
        help="Up to and with this metadata offset.",
        rich_help_panel=_FILTER,
    ),
]
