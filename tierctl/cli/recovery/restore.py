"""`tierctl restore`: topics from the objects of a tier."""

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
from tierctl.errors import UsageError
from tierctl.model.location import DERIVED
from tierctl.model.times import parse_time_ms

Metadata = Annotated[
    str | None,
    option(
        "--metadata",
        metavar="URI",
        help="The metadata topic of the tier, as for fetch. Without it, or with none, the metadata are "
        "derived from the objects of the tier.",
        panel=options.WHERE,
    ),
]
Materialise = Annotated[
    bool,
    option(
        "--materialise",
        help="Write the records as the local log of a new topic, into --log-dir of stopped brokers.",
        panel=options.DECIDE,
    ),
]
AsTopic = Annotated[
    str | None,
    option(
        "--as", metavar="NAME", help="Name of the new topic. Default: the topic's own.", panel=options.DECIDE
    ),
]
AsId = Annotated[
    str | None,
    option(
        "--as-id",
        metavar="ID",
        help="Id of the new topic. Default: the one in the folders of its partitions in --log-dir.",
        panel=options.DECIDE,
    ),
]


def _until(text: str) -> str:
    """Return --until with a time as a number: a relative one means the same when a plan is carried out."""
    return text if "=" in text else str(parse_time_ms(text))


Until = Annotated[
    list[str] | None,
    option(
        "--until",
        metavar="TIME|TOPIC-PARTITION=OFFSET",
        parser=_until,
        help="End each log before the first record that is later than TIME, or one partition's log before "
        f"OFFSET. Repeatable. TIME is {options.TIME_FORMS}.",
        panel=options.DECIDE,
    ),
]
AfterHole = Annotated[
    bool,
    option(
        "--after-hole",
        help="Where no segment has some offsets, restore the records after the last such hole. Without this "
        "option such partitions are refused (exit 4).",
        panel=options.DECIDE,
    ),
]


def register(app: click.Group) -> None:
    """Add `restore`."""
    add(app, "restore", restore)


@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    rows,
    own.publishing,
    options.reading_throttle,
)
def restore(
    ctx: click.Context,
    metadata: Metadata = None,
    materialise: Materialise = False,
    as_topic: AsTopic = None,
    as_id: AsId = None,
    until: Until = None,
    after_hole: AfterHole = False,
) -> int:
    """Restore topics from the objects of a tier.

    With --materialise the records are written as the local log of a new topic, of the same partitions, on
    stopped brokers: offsets, timestamps, headers and transactions stay. Create the topic first, with its
    settings, and stop its brokers; partition.metadata in its folders has the new id. Name the log directories
    of all its replicas, so that each gets the same log. Only empty folders are replaced. It is also the way
    back to a point in time (--until), and the way out of tiered storage; a tiered topic is copied again.

    Every batch is checked, and keeps its bytes but for the leader epoch, which becomes 0. --until may cut the
    last batch: its first records are kept, in a batch with a new CRC. A transaction that has no end below the
    end of the log is aborted there, by a marker that takes one more offset: readers would wait for its end.
    Producers of the old cluster are unknown to the new one.

    A log is written to a folder that brokers delete, and renamed when it is whole. After a kill, run again.
    """
    if not materialise:
        raise UsageError("--materialise is missing", hint="it is the way to restore that there is")
    given = None if metadata == DERIVED else metadata
    request = request_of(commands.MaterialiseRequest, ctx, metadata=given)
    return show_mutation(ctx, lambda: commands.materialise(request, console_of(ctx)))
