"""`tierctl copy`: rolled segments to the tier."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Display, Rows, show_mutation
from tierctl.cli.options import (
    CHANGING,
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    THROTTLES,
    WHERE,
    with_options,
)
from tierctl.report.plans import PLAN_ROWS

app = new_app()


@app.command("copy", cls=Command)
@with_options(
    commands.CopyRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    "topic_configs",
    "kafka_version",
    "now_ms",
    "metadata_partitions",
    Rows,
    CHANGING,
    Display,
    ENGINE,
    THROTTLES,
    rows=PLAN_ROWS,
)
def copy(ctx: typer.Context, request: commands.CopyRequest) -> int:
    """Copy rolled segments below the last stable offset to the tier, as a broker does.

    Only topics with remote.storage.enable=true are copied. The setting comes from the cluster, or else from
    --topic-configs. Compacted topics are refused, as Kafka does.

    A second run copies nothing new. If a run is killed, the next run completes its work. The events that
    tierctl publishes have broker id -1, which no broker has. With a --now more than five minutes in the
    future, only a plan can be made: --apply exits with code 4.

    Brokers that do not tier may run on the log directories: copy reads only rolled segments, and does not
    finish a segment whose files change during the copy. If brokers tier the topics, copy exits with code 4.
    The metadata topic of a running broker is written only through the broker (--metadata kafka://...).

    If --metadata is in the log directory of a stopped broker, the broker rebuilds the indexes of the written
    metadata partitions when it starts, and logs "Could not find offset index file" at ERROR; no data are
    lost.

    With --from-remote, segments come from another tier: every finished segment of the current lineage,
    without gaps from the start of the log. The copies get new ids, and their metadata is published to
    --to-metadata. Each segment is fetched to a folder for temporary files (TMPDIR; at most --threads segments
    at a time) and checked before it is stored.

    With --engine spark, executors read, check and store the segments. They need the same folders and the same
    private key files under the same paths, and use the credentials of their own environment.
    """
    return show_mutation(ctx, commands.copy, request)
