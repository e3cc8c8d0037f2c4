"""`tierctl rebuild`: publish lost metadata again, from the objects of the tier."""

from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.declare import add, option
from tierctl.cli.display import console_of, show_mutation
from tierctl.cli.options import with_options
from tierctl.cli.output_options import rows
from tierctl.cli.request import request_of

LogStart = Annotated[
    str | None,
    option(
        "--log-start",
        metavar="tier|disk|OFFSET",
        help="The log start of partitions whose log start a broker may have raised because it knew no "
        "segments: tier for the one that the objects of the newest segment say, and OFFSET for another one, "
        "put back the checkpoint files of every replica; disk keeps the raised one and leaves out the "
        "segments below it. Without this option such partitions are refused (exit 4).",
        panel=options.DECIDE,
    ),
]


def register(app: click.Group) -> None:
    """Add `rebuild`."""
    add(app, "rebuild", rebuild)


@with_options(
    options.where,
    options.private_keys,
    options.selection,
    ...,
    rows,
    own.publishing,
    options.reading_throttle,
)
def rebuild(ctx: click.Context, log_start: LogStart = None) -> int:
    """Publish the metadata of the tier's segments again, after the metadata topic was lost.

    Every field is derived from the objects, in either layout. Segments that serve the log are published as
    finished, in order of offsets. Diverged, doubled and incomplete ones are published as being deleted, so
    that brokers delete them in time; what is below the log start, beyond a hole or of a deleted topic is
    left unchanged, with the reason. No object of the tier is ever written or deleted.

    With the brokers stopped, name the log directories of all replicas, and one that has the metadata topic as
    --metadata: the topic's replicas in the others get the same bytes. Never start a broker with an empty
    metadata topic before: it raises the log starts. Beside running brokers (Kafka 3.9 and later), --metadata
    kafka://... needs remote.log.copy.disable=true, local.retention.ms=-2 and local.retention.bytes=-2 on the
    topics. Without any broker, --metadata names a new folder: fetch, segments and verify can read it.
    """
    request = request_of(commands.RebuildRequest, ctx)
    return show_mutation(ctx, lambda: commands.rebuild(request, console_of(ctx)))
