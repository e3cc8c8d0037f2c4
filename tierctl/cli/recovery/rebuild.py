"""`tierctl rebuild`: publish lost metadata again, from the objects of the tier."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Display, Rows, show_mutation
from tierctl.cli.options import ENGINE, PRIVATE_KEYS, PUBLISHING, SELECTION, WHERE, with_options
from tierctl.report.plans import PLAN_ROWS

app = new_app()


@app.command("rebuild", cls=Command)
@with_options(
    commands.RebuildRequest,
    WHERE,
    PRIVATE_KEYS,
    SELECTION,
    ...,
    "metadata_partitions",
    Rows,
    PUBLISHING,
    Display,
    ENGINE,
    "throttle_fetch",
    rows=PLAN_ROWS,
)
def rebuild(ctx: typer.Context, request: commands.RebuildRequest) -> int:
    """Publish lost metadata again, from the objects of the tier.

    rebuild derives every field from the objects, in either layout. Segments that the log needs are published
    as finished, in order of offsets. Diverged, duplicate and incomplete segments are published with
    DELETE_SEGMENT_STARTED, so that brokers delete them later. Segments below the log start offset, beyond a
    hole or of a deleted topic are left unchanged, and the reason is printed. Nothing is published about a
    partition that may need a set of objects that is not understood (exit code 7). rebuild never writes or
    deletes an object of the tier.

    If the brokers are stopped, name the log directories of all replicas, and as --metadata the one that has
    the metadata topic; the topic's replicas in the other directories get the same bytes. If the
    cluster's metadata name a replica on a broker without a --log-dir, rebuild exits with code 4: that broker
    would lead with its empty log. If the brokers are on different hosts, use --plan-out without --apply on
    one of them, and apply with the plan on each of them, before any broker starts: every host then writes the
    same bytes, and rebuild prints these steps. The number of metadata partitions comes from the cluster's
    metadata, --broker-config or --metadata-partitions, and a partition without a folder is made again. Do not
    start a broker with an empty metadata topic before the rebuild: the broker would raise the log start
    offsets. If brokers run (Kafka 3.9 and later), --metadata kafka://... needs remote.log.copy.disable=true,
    local.retention.ms=-2 and local.retention.bytes=-2 on the topics, and a metadata topic with unlimited
    retention: one that was created by auto-creation loses its events after a week. Such a run ends with
    "published; restart the brokers before copying is enabled again" and exit code 0: brokers under which the
    topic was deleted skip new events until they are restarted. Without brokers,
    --metadata names a new folder, which fetch, segments and verify can read. With --engine spark, executors
    read the metadata topic, list the tier and read its objects; this process decides and publishes.
    """
    return show_mutation(ctx, commands.rebuild, request)
