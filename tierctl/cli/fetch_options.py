"""The options of `tierctl fetch`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tierctl.cli import options
from tierctl.model import IndexType, IsolationLevel

_RECORDS = "Which records"
_OBJECTS = "Instead of records"


class BinaryForm(StrEnum):
    """How keys, values and header values are written."""

    AUTO = "auto"
    UTF8 = "utf8"
    BASE64 = "base64"
    HEX = "hex"
    SHA256 = "sha256"


class IndexName(StrEnum):
    """The indexes by the names of `IndexType`."""

    OFFSET = IndexType.OFFSET.value
    TIMESTAMP = IndexType.TIMESTAMP.value
    PRODUCER_SNAPSHOT = IndexType.PRODUCER_SNAPSHOT.value
    TRANSACTION = IndexType.TRANSACTION.value
    LEADER_EPOCH = IndexType.LEADER_EPOCH.value


Offset = Annotated[
    str,
    typer.Option(
        "--offset",
        metavar="N|NAME",
        help="From this offset on: a number, earliest, earliest-local, latest-tiered or latest.",
        rich_help_panel=_RECORDS,
    ),
]
UntilOffset = Annotated[
    int | None,
    typer.Option(
        "--until-offset",
        metavar="N",
        min=0,
        help="Up to, but without, this offset.",
        rich_help_panel=_RECORDS,
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        help="From the first record that is as late as this; milliseconds or ISO 8601.",
        rich_help_panel=_RECORDS,
    ),
]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        help="Up to the first record that is later than this.",
        rich_help_panel=_RECORDS,
    ),
]
MaxRecords = Annotated[
    int | None,
    typer.Option("--max-records", metavar="N", min=1, help="Stop after so many.", rich_help_panel=_RECORDS),
]
Isolation = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation",
        help="read_committed leaves aborted transactions out and ends at the last stable offset.",
        rich_help_panel=_RECORDS,
    ),
]
Binary = Annotated[
    BinaryForm,
    typer.Option(
        "--binary",
        help="How keys and values are written. auto: as text where they are UTF-8, else as base64; "
        "key_encoding and value_encoding say which.",
        rich_help_panel=options.SHOW,
    ),
]
Rows = Annotated[
    options.OutputFormat | None,
    typer.Option(
        "--output",
        "-o",
        help="Format of what goes to stdout. Default: jsonl for records, raw bytes for objects.",
        rich_help_panel=options.SHOW,
    ),
]
RawSegment = Annotated[
    str | None,
    typer.Option(
        "--raw-segment",
        metavar="SEGMENT_ID",
        help="The segment's log as it lies in the tier, or with --index one of its indexes.",
        rich_help_panel=_OBJECTS,
    ),
]
Index = Annotated[
    IndexName | None,
    typer.Option(
        "--index",
        help="An index of the segment of --raw-segment, or of the one that holds --offset; "
        "with --output decoded.",
        rich_help_panel=_OBJECTS,
    ),
]
AuxiliaryState = Annotated[
    int | None,
    typer.Option(
        "--auxiliary-state",
        metavar="OFFSET",
        min=1,
        help="What a follower whose leader's local log begins at OFFSET takes from the tier: "
        "leader epochs and producer snapshot. With --out DIR also as the files it would have.",
        rich_help_panel=_OBJECTS,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write the object to this file (--auxiliary-state: into this folder).",
        rich_help_panel=_OBJECTS,
    ),
]
