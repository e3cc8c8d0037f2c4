"""`tierctl sweep`: retention over the tier."""

import click

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.declare import add
from tierctl.cli.display import console_of, show_mutation
from tierctl.cli.options import with_options
from tierctl.cli.output_options import rows
from tierctl.cli.request import request_of


def register(app: click.Group) -> None:
    """Add `sweep`."""
    add(app, "sweep", sweep)


@with_options(options.where, options.state, options.selection, ..., rows, own.changing, options.engine)
def sweep(
    ctx: click.Context,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
    now_ms: options.Now = None,
    log_start_offset: own.LogStartOffsets = None,
    off_lineage: own.OffLineage = False,
    unreferenced_epochs: own.UnreferencedEpochs = False,
    max_deletes: own.MaxDeletes = None,
    max_fraction: own.MaxFraction = None,
) -> int:
    """Delete from the tier what retention and the log start offset say, as a broker would.

    The oldest segments of each partition's lineage, up to the first that nothing says; deletions that were
    begun are resumed. So go copies that were cut off, wholly below the log start, once a later copy got
    further or 24 hours have passed; until then they may still run, and a note says so. Beside a cluster
    whose brokers don't tier, settings, lineages and log starts are its leaders', and log starts are raised
    there first (DeleteRecords). Else settings come from --topic-configs: what they don't say is unlimited.
    Without a partition's --log-dir its lineage is then read from the newest remote segment, and
    retention.bytes deletes nothing.

    A --now that is more than five minutes ahead of the clock only plans: --apply exits with code 4.
    """
    request = request_of(commands.SweepRequest, ctx)
    return show_mutation(ctx, lambda: commands.sweep(request, console_of(ctx)))
