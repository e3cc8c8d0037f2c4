"""`tierctl restore`: topics from the objects of a tier."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Display, Rows, console_of, show_mutation
from tierctl.cli.options import (
    ENGINE,
    PRIVATE_KEYS,
    PUBLISHING,
    SELECTION,
    STATE,
    WHERE,
    Fields,
    request_of,
    typed_option,
    with_options,
)
from tierctl.cli.recovery import check as after
from tierctl.commands.recovery.check.results import RESTORE_CHECKS
from tierctl.commands.shared_options import DECIDE
from tierctl.errors import UsageError
from tierctl.model.location import DERIVED
from tierctl.report.plans import PLAN_ROWS

Materialise = Annotated[
    bool,
    typer.Option(
        "--materialise",
        help="Write the records as the local log of a new topic, into the --log-dir of stopped brokers.",
        rich_help_panel=DECIDE,
    ),
]
NewIds = Annotated[
    bool,
    typer.Option(
        "--new-ids",
        help="Restore topics that were created again in a cluster whose brokers are stopped: the store "
        "copies the objects of the lost topics of the same names, under the new ids.",
        rich_help_panel=DECIDE,
    ),
]


app = new_app()
_INTO = Fields(
    commands.RestoreRequest,
    ("into", "topics_file", "publish_later", "deletes_are_denied", "copy_of_objects"),
)
_NEW_IDS = Fields(commands.NewIdsRequest, ("from_id", "assume_enabled"))


@app.command("restore", cls=Command)
@with_options(
    commands.MaterialiseRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    "topic_configs",
    ...,
    _INTO,
    _NEW_IDS,
    after.CHECKING,
    Rows,
    PUBLISHING,
    Display,
    ENGINE,
    "throttle_fetch",
    rows=(*PLAN_ROWS, RESTORE_CHECKS),
)
def restore(
    ctx: typer.Context, materialise: Materialise = False, new_ids: NewIds = False, check: after.Check = False
) -> int:
    """Restore topics from the objects of a tier.

    With --into, a new cluster serves the objects from their present location, under the old topic ids. The
    first node of the cluster gets an empty log for each partition, the metadata of the segments, and the
    topics with their settings. Format the node (kafka-storage format), do not start it, and run this command
    as the user of its broker; --broker-config states the number of metadata partitions. If something is
    wrong, brokers delete every object within seconds: configure the store to deny deletes, or copy the
    objects first. The restored topics have one replica, and copying is disabled. If the run is killed, run it
    again: the topics are written last. The cluster starts with one controller and one broker.

    With --new-ids, an existing cluster serves the objects. Copy them to the tier of that cluster first, under
    their names. Create each topic again with the same number of partitions, one replica and
    remote.storage.enable=true. Restart its broker until the leader epoch is at least that of the records (the
    plan names both), then stop it, and name its directories with --metadata and --log-dir. The store copies
    the objects under the new ids and keeps the old ones; logs and metadata are written as with --into.
    --topic-configs or --assume-enabled must state that the topics are tiered.

    With --materialise, the records are written as the local log of a new topic with the same partitions, on
    stopped brokers. Offsets, timestamps, headers and transactions are kept. Create the topic with its
    settings first and stop its brokers; partition.metadata in its folders has the new id. Name the log
    directories of all its replicas, so that each replica gets the same log. Only empty folders are replaced.
    Use this also to restore to a point in time (--until), or to leave tiered storage; if the new topic is
    tiered, its segments are copied again. Every batch is checked and keeps its bytes, except for the leader
    epoch, which becomes 0. If --until falls inside the last batch, its first records are kept in a batch with
    a new CRC. Each log is written to a folder with a name that brokers delete, and renamed when it is
    complete. If the run is killed, run it again.

    --without-keys is for an erasure request; see ERASURE.

    With --engine spark, executors list the tier and read its objects. With --materialise they also write the
    logs, and with --new-ids they ask the store to copy the objects. With --into, and for the logs of
    --new-ids, this process writes the files: run it on the node.

    All three ways abort a transaction that has no end below the end of the log: consumers would otherwise
    wait for its end. The abort marker takes one more offset. Offsets of consumer groups, ACLs and quotas are
    not in a tier and are not restored.

    With --check, verify what brokers serve after a restore or a rebuild, once they have started, against the
    objects of the tier; see CHECKS. To check a materialised topic, give the --topic-id of the old topic, and
    --as and --until as for the restore. Nothing is changed, except with --produce. Exit 0 if all requested
    checks succeed, 3 if a check failed or could not be made; the parts that were not checked are printed.
    """
    after.require_consistent(ctx, check=check)
    metadata = ctx.params["metadata"]
    if check:
        return after.show_check(ctx, None if metadata == DERIVED else metadata)
    chosen = [way for way in _OPTIONS_OF if typed_option(ctx, (_NAME_OF[way],))]
    if len(chosen) != 1:
        raise UsageError(
            f"{' and '.join(chosen)} exclude each other"
            if chosen
            else f"{', '.join(_OPTIONS_OF)}: none given",
            hint="--into gives a new node the topics, whose objects stay in the tier; --new-ids gives them "
            "to an existing cluster; --materialise writes their records to local logs, and --check verifies "
            "all; to publish the metadata of the tier again, use 'tierctl rebuild'",
        )
    _require_effect(ctx, chosen[0])
    if chosen == ["--into"]:
        request = request_of(commands.RestoreRequest, ctx, metadata=None, bootstrap_server=None)
        return show_mutation(ctx, lambda: commands.restore(request, console_of(ctx)))
    if new_ids:
        if typed_option(ctx, ("topic_id",)):
            raise UsageError(
                "--topic-id can't be used with --new-ids, because each topic has two ids",
                hint="name the id of a lost topic with --from-id",
            )
        renamed = request_of(commands.NewIdsRequest, ctx, bootstrap_server=None)
        return show_mutation(ctx, lambda: commands.restore_new_ids(renamed, console_of(ctx)))
    given = None if metadata == DERIVED else metadata
    records = request_of(commands.MaterialiseRequest, ctx, metadata=given)
    return show_mutation(ctx, lambda: commands.materialise(records, console_of(ctx)))


_OPTIONS_OF = {
    "--into": ("topics_file", "publish_later", "topic_configs", "deletes_are_denied", "copy_of_objects"),
    "--new-ids": ("from_id", "assume_enabled", "topic_configs", "metadata", "partition"),
    "--materialise": (
        *("metadata", "as_topic", "as_id", "until", "partition"),
        *("without_keys", "left_out", "sign_with"),
    ),
}
"""The ways to restore, with the options that have an effect only with some of them."""
_NAME_OF = {way: way.removeprefix("--").replace("-", "_") for way in _OPTIONS_OF}


def _require_effect(ctx: typer.Context, chosen: str) -> None:
    """Raise UsageError for a typed option that has an effect only with other ways to restore."""
    others = [name for names in _OPTIONS_OF.values() for name in names if name not in _OPTIONS_OF[chosen]]
    for name in others:
        typed = typed_option(ctx, (name,))
        if typed:
            ways = [way for way, names in _OPTIONS_OF.items() if name in names]
            raise UsageError(f"{typed} can only be used with {' or '.join(ways)}", hint=f"leave {typed} out")
