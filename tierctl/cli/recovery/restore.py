"""`tierctl restore`: topics from the objects of a tier, in three ways, and a check of the result."""

from dataclasses import replace
from typing import Final, TypeVar

import typer

from tierctl import commands
from tierctl.checks.check import CHECKS
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import Display, Printer, Rows, console_of, show_mutation
from tierctl.cli.options import ENGINE, PRIVATE_KEYS, PUBLISHING, SELECTION, STATE, WHERE, with_options
from tierctl.errors import ExitCode
from tierctl.model.location import DERIVED
from tierctl.report.plans import PLAN_ROWS

_R = TypeVar("_R", commands.RestoreLogRequest, commands.RestoreCheckRequest)
_TIER: Final = ("broker_config", "remote", "layout", "log_dir")

app = new_app(name="restore", cls=Group)


@app.callback()
def restore() -> None:
    """Restore topics from the objects of a tier.

    `into` gives a new node the topics, whose objects stay in the tier; `new-ids` gives them to an existing
    cluster; `log` writes their records to local logs. `check` verifies what brokers serve afterwards. To
    publish the metadata of the tier again, use tierctl rebuild.

    All three ways abort a transaction that has no end below the end of the log: consumers would otherwise
    wait for its end. The abort marker takes one more offset. Offsets of consumer groups, ACLs and quotas are
    not in a tier and are not restored.
    """


@app.command("into", cls=Command)
@with_options(
    commands.RestoreIntoRequest,
    _TIER,
    PRIVATE_KEYS,
    ("topic", "topic_id"),
    "topic_configs",
    ...,
    Rows,
    PUBLISHING,
    Display,
    ENGINE,
    "throttle_fetch",
    rows=PLAN_ROWS,
)
def into(ctx: typer.Context, request: commands.RestoreIntoRequest) -> int:
    """Restore topics, under their old ids, on a node that was formatted and never started.

    A new cluster then serves the objects from their present location. The first node of the cluster gets an
    empty log for each partition, the metadata of the segments, and the topics with their settings. Format the
    node (kafka-storage format), do not start it, and run this command as the user of its broker;
    --broker-config states the number of metadata partitions. If something is wrong, brokers delete every
    object within seconds: configure the store to deny deletes, or copy the objects first. The restored topics
    have one replica, and copying is disabled. If the run is killed, run it again: the topics are written
    last. The cluster starts with one controller and one broker.

    With --engine spark, executors list the tier and read its objects. This process writes the files: run it
    on the node.
    """
    return show_mutation(ctx, commands.restore_into, request)


@app.command("new-ids", cls=Command)
@with_options(
    commands.RestoreNewIdsRequest,
    ("metadata", *_TIER),
    PRIVATE_KEYS,
    STATE,
    ("topic", "partition"),
    "topic_configs",
    ...,
    Rows,
    PUBLISHING,
    Display,
    ENGINE,
    "throttle_fetch",
    rows=PLAN_ROWS,
)
def new_ids(ctx: typer.Context, request: commands.RestoreNewIdsRequest) -> int:
    """Restore topics that were created again in a cluster whose brokers are stopped.

    An existing cluster then serves the objects. Copy them to the tier of that cluster first, under their
    names. Create each topic again with the same number of partitions, one replica and
    remote.storage.enable=true. Restart its broker until the leader epoch is at least that of the records (the
    plan names both), then stop it, and name its directories with --metadata and --log-dir. The store copies
    the objects of the lost topics of the same names under the new ids, and keeps the old ones; logs and
    metadata are written as by restore into. --topic-configs or --assume-enabled must state that the topics
    are tiered.

    With --engine spark, executors list the tier, read its objects and ask the store to copy them. This
    process writes the logs: run it on the node.
    """
    return show_mutation(ctx, commands.restore_new_ids, request)


@app.command("log", cls=Command)
@with_options(
    commands.RestoreLogRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    Rows,
    PUBLISHING,
    Display,
    ENGINE,
    "throttle_fetch",
    rows=PLAN_ROWS,
)
def log(ctx: typer.Context, request: commands.RestoreLogRequest) -> int:
    """Restore records as the local log of a new topic with the same partitions, on stopped brokers.

    Offsets, timestamps, headers and transactions are kept. Create the topic with its settings first and stop
    its brokers; partition.metadata in its folders has the new id. Name the log directories of all its
    replicas, so that each replica gets the same log. Only empty folders are replaced. Use this also to
    restore to a point in time (--until), or to leave tiered storage; if the new topic is tiered, its segments
    are copied again. Every batch is checked and keeps its bytes, except for the leader epoch, which becomes
    0. If --until falls inside the last batch, its first records are kept in a batch with a new CRC. Each log
    is written to a folder with a name that brokers delete, and renamed when it is complete. If the run is
    killed, run it again.

    --without-keys is for an erasure request; see ERASURE.

    With --engine spark, executors list the tier, read its objects and write the logs.
    """
    return show_mutation(ctx, commands.restore_log, _derived(request))


@app.command("check", cls=Command)
@with_options(
    commands.RestoreCheckRequest,
    WHERE,
    PRIVATE_KEYS,
    SELECTION,
    ...,
    Rows,
    ENGINE,
    "throttle_fetch",
    rows=(CHECKS,),
)
def check(ctx: typer.Context, request: commands.RestoreCheckRequest) -> ExitCode:
    """Verify what brokers serve after a restore or a rebuild, once they have started.

    The records and offsets are compared with the objects of the tier; see CHECKS. To check a topic of restore
    log, give the --topic-id of the old topic, and --as and --until as for the restore. Nothing is changed,
    except with --produce. Exit 0 if all requested checks succeed, 3 if a check failed or could not be made;
    the parts that were not checked are printed.

    With --engine spark, executors list the tier and read its objects.
    """
    printer = Printer.of(ctx, CHECKS)
    console = console_of(ctx)
    found = commands.restore_check(_derived(request), console)
    printer.show(found.table_rows()[1])
    if found.missing:
        console.say(f"not checked, or not all of it: {', '.join(found.missing)}")
    printer.finish()
    return found.exit_code


def _derived(request: _R) -> _R:
    """Return the request; its metadata are derived from the objects of the tier if --metadata is `none`."""
    return replace(request, metadata=None) if request.metadata == DERIVED else request
