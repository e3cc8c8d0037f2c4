"""`tierctl copy`: rolled segments to the tier."""

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
    """Add `copy`."""
    add(app, "copy", copy)


@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    rows,
    own.changing,
    options.engine,
    options.throttles,
)
def copy(
    ctx: click.Context,
    from_remote: own.FromRemote = None,
    from_layout: own.FromLayout = None,
    to_metadata: own.ToMetadata = None,
    to_command_config: own.ToCommandConfig = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
    assume_enabled: own.AssumeEnabled = False,
    now_ms: options.Now = None,
    clean_dangling: own.CleanDangling = False,
    create_metadata_topic: own.CreateMetadataTopic = False,
    custom_metadata_max_bytes: own.CustomMetadataMaxBytes = None,
) -> int:
    """Copy rolled segments below the last stable offset to the tier, as a broker would.

    Only topics with remote.storage.enable=true are copied: on a cluster by the leader's settings, else by
    --topic-configs. Compacted topics are refused, as by Kafka.

    A second run copies nothing; a run that was killed is made good by the next. Events of tierctl carry
    broker id -1, which is no broker's. A --now that is more than five minutes ahead of the clock only plans:
    --apply exits with code 4.

    Brokers that do not tier may run on the log directories: only rolled segments are read, and a segment
    whose files change meanwhile is not finished. Beside brokers that tier, copy refuses (exit 4). The
    metadata topic of a running broker is written through the broker only (--metadata kafka://...).

    A metadata topic in a stopped broker's log directory gets its indexes when the run ends. If the run is
    killed before, the broker rebuilds them at its start, and logs "Could not find offset index file" at
    ERROR; nothing is lost.

    With --from-remote segments come from another tier: every finished one of the current lineage, contiguous
    from its start, under new ids and into --to-metadata. Each is fetched whole to a folder for temporary
    files (TMPDIR; at most --threads at a time) and checked before it is stored.

    With --engine spark executors read, check and store segments: folders named here, and files of private
    keys, have to be the same ones there. Credentials are those of their own environment.
    """
    request = request_of(commands.CopyRequest, ctx)
    return show_mutation(ctx, lambda: commands.copy(request, console_of(ctx)))
