"""`tierctl sweep`: retention over the tier."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Display, Rows, show_mutation
from tierctl.cli.options import (
    CHANGING,
    ENGINE,
    SELECTION,
    STATE,
    WHERE,
    with_options,
)
from tierctl.report.plans import PLAN_ROWS

app = new_app()


@app.command("sweep", cls=Command)
@with_options(
    commands.SweepRequest,
    WHERE,
    STATE,
    SELECTION,
    ...,
    "topic_configs",
    "kafka_version",
    "now_ms",
    Rows,
    CHANGING,
    Display,
    ENGINE,
    rows=PLAN_ROWS,
)
def sweep(ctx: typer.Context, request: commands.SweepRequest) -> int:
    """Delete segments that retention or the log start expires, as a broker does.

    In each partition, sweep deletes the oldest segments of the current lineage, one after the other, up to
    the first segment that no limit expires. It also resumes deletions that were started and not finished. A
    copy that did not finish is deleted if the whole segment lies below the log start offset, and either a
    later copy has finished or the copy started over 24 hours ago (for a copy by tierctl only the latter).
    Before that the copy may still be running: the segment stays, and a note says so.

    With a cluster whose brokers do not tier, sweep takes settings, leader epochs and log start offsets from
    the leaders, and raises the log start offset on the cluster (DeleteRecords) before it deletes. Without a
    cluster, settings come from --topic-configs; a retention that is not stated there is unlimited. Without a
    cluster or a --log-dir that has the partition, sweep takes the lineage from the newest remote segment, and
    retention.bytes deletes nothing.

    With --assume, sweep shows the plan that other settings would give: --apply refuses it.

    With a --now more than five minutes in the future, only a plan can be made: --apply exits with code 4.
    """
    return show_mutation(ctx, commands.sweep, request)
