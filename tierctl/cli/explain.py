"""`tierctl explain`: what brokers do next with the segments of a partition, and why."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, Rows, console_of
from tierctl.cli.options import (
    ENGINE,
    STATE,
    WHERE,
    request_of,
    with_options,
)
from tierctl.commands import completion
from tierctl.commands.insight.explain import EXPLANATIONS
from tierctl.errors import ExitCode
from tierctl.model.selection import named_partition

_FIND = "Which segments"

TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC[-PARTITION]",
        help="The partition, as orders-0; or the name of its topic, if PARTITION is given.",
        autocompletion=completion.topics,
        show_default=False,
    ),
]
PartitionNumber = Annotated[
    int | None,
    typer.Argument(metavar="PARTITION", min=0, help="Number of the partition.", show_default=False),
]


app = new_app()


@app.command("explain", cls=Command)
@with_options(
    commands.ExplainRequest,
    WHERE,
    STATE,
    "topic_id",
    ...,
    "topic_configs",
    "kafka_version",
    "now_ms",
    "copy_limit_ms",
    Rows,
    ENGINE,
    rows=(EXPLANATIONS,),
)
def explain(
    ctx: typer.Context,
    request: commands.ExplainRequest,
    topic_name: TopicName,
    partition_number: PartitionNumber = None,
) -> ExitCode:
    """Explain what brokers do next with each segment of a partition, and why.

    A segment of the log is copied or waits: until it is rolled, a transaction ends, more replicas have it, or
    the copy lag has passed; or because an earlier run with this --state-dir found that its custom metadata
    exceeds KIP-917's limit. A segment of the tier is deleted, expires at a stated time, waits until an older
    segment is deleted, or is not subject to retention: it is off the lineage, or its topic was deleted. The
    decisions are those of copy, sweep and delete with the same options. For each reason, json also has
    Kafka's rule and the settings that decide, with their values and origins. Exit 3 if copies of the
    partition fail: explain then states how many, since when, and which broker's log has the error. Exit 3
    also if KIP-917's limit stops its copies, or if a transaction keeps segments from the tier for longer than
    --copy-limit: explain then prints the command that ends it; and if brokers never delete a segment of the
    tier, because it was copied again from the same offset.
    """
    printer = Printer.of(ctx, EXPLANATIONS)
    request = request_of(commands.ExplainRequest, ctx, **named_partition(topic_name, partition_number))
    explanations = commands.explain(request, console_of(ctx))
    printer.show(explanations.rows)
    printer.finish()
    return explanations.exit_code
