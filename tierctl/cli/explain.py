"""`tierctl explain`: what brokers do next with the segments of a partition, and why."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import completion, options, output_options
from tierctl.cli import mutation_options as own
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import request_of, with_options
from tierctl.errors import ExitCode
from tierctl.model.times import parse_time_ms
from tierctl.report import tables

_FIND = "Which segments"

TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="Name of the topic.", autocompletion=completion.topics, show_default=False
    ),
]
PartitionNumber = Annotated[
    int, typer.Argument(metavar="PARTITION", help="Number of the partition.", show_default=False)
]
Offset = Annotated[
    int | None,
    typer.Option(
        "--offset", metavar="N", min=0, help="Only segments with this offset.", rich_help_panel=_FIND
    ),
]
Segment = Annotated[
    str | None,
    typer.Option(
        "--segment", metavar="ID", help="Explain only the remote segment with this id.", rich_help_panel=_FIND
    ),
]
Time = Annotated[
    int | None,
    typer.Option(
        "--time",
        metavar="TIME",
        parser=parse_time_ms,
        help="Explain only the first segment of the tier, and the first of the log, with a record of this "
        f"time or later; {options.TIME_FORMS}.",
        rich_help_panel=_FIND,
    ),
]


app = new_app()


def _by_id(topic_id: options.TopicIds = None) -> None:
    """Group: the topic id, for a name that several topics have had."""


@app.command("explain", cls=Command)
@with_options(options.where, options.state, _by_id, ..., output_options.rows, options.engine)
def explain(
    ctx: typer.Context,
    topic_name: TopicName,
    partition_number: PartitionNumber,
    offset: Offset = None,
    segment: Segment = None,
    time_ms: Time = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
    now_ms: options.Now = None,
    custom_metadata_max_bytes: own.CustomMetadataMaxBytes = None,
) -> ExitCode:
    """Explain what brokers do next with each segment of a partition, and why.

    A segment of the log is copied or waits: until it is rolled, a transaction ends, more replicas have it, or
    the copy lag has passed; or because an earlier run with this --state-dir found that its custom metadata
    exceeds KIP-917's limit. A segment of the tier is deleted, expires at a stated time, waits until an older
    segment is deleted, or is not subject to retention: it is off the lineage, or its topic was deleted. The
    decisions are those of copy, sweep and delete with the same options. For each reason, json also has
    Kafka's rule and the settings that decide, with their values and origins.
    """
    printer = Printer.of(ctx, tables.EXPLANATIONS)
    request = request_of(commands.ExplainRequest, ctx, topic=(topic_name,), partition=(partition_number,))
    explanations = commands.explain(request, console_of(ctx))
    printer.show([each.row() for each in explanations.rows])
    printer.finish()
    return explanations.exit_code
