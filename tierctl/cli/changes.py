"""The commands that change a tier, and those that prepare for a loss and come back from it.

Without --apply they print a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from tierctl import commands
from tierctl.cli.app import Command, command, group
from tierctl.cli.display import (
    Display,
    Printer,
    Rows,
    confirmation,
    console_of,
    plan_console,
    print_mutation,
)
from tierctl.cli.options import (
    CHANGING,
    ENGINE,
    METADATA_TOPIC,
    PRIVATE_KEYS,
    PUBLISHING,
    SELECTION,
    STATE,
    THROTTLES,
    TIER,
    WHERE,
    Yes,
)
from tierctl.errors import ExitCode
from tierctl.model.local import NOT_COVERED
from tierctl.model.location import DERIVED
from tierctl.model.times import duration_text
from tierctl.report.plans import PLAN_ROWS

if TYPE_CHECKING:
    from tierctl.commands.request import Request

_R = TypeVar("_R", bound="Request")
_AS_OF: Final = ("topic_configs", "kafka_version", "now_ms")
_PLANNED: Final = (Rows, CHANGING, Display, ENGINE)
"""How a plan that changes objects of the tier is shown and carried out."""
_RECOVERED: Final = (Rows, PUBLISHING, Display, ENGINE, "throttle_fetch")
_TIER: Final = ("broker_config", "remote", "layout", "log_dir")


@command("copy", *TIER, ..., *_AS_OF, "metadata_partitions", *_PLANNED, THROTTLES, rows=PLAN_ROWS)
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
    return print_mutation(ctx, commands.copy(request, plan_console(ctx)))


@command("sweep", *TIER, ..., *_AS_OF, *_PLANNED, rows=PLAN_ROWS)
def sweep(ctx: typer.Context, request: commands.SweepRequest) -> int:
    """Delete segments that retention or the log start expires, as a broker does.

    In each partition, sweep deletes the oldest segments of the current lineage, one after the other, up to
    the first segment that no limit expires. As in brokers, that may be a copy that did not finish, which
    copy --clean-dangling deletes 24 hours after it began, once its broker is gone. sweep also resumes
    deletions that were started and not finished. A copy that did not finish is deleted if the whole segment
    lies below the log start offset, and either a later copy has finished or the copy started over 24 hours
    ago (for a copy by tierctl only the latter). Before that the copy may still be running: the segment stays,
    and a note says so.

    With a cluster whose brokers do not tier, sweep takes settings, leader epochs and log start offsets from
    the leaders, and raises the log start offset on the cluster (DeleteRecords) before it deletes. Without a
    cluster, settings come from --topic-configs; a retention that is not stated there is unlimited. Without a
    cluster or a --log-dir that has the partition, sweep takes the lineage from the newest remote segment, and
    retention.bytes deletes nothing.

    With --assume, sweep shows the plan that other settings would give: --apply refuses it.

    With a --now more than five minutes in the future, only a plan can be made: --apply exits with code 4.
    """
    return print_mutation(ctx, commands.sweep(request, plan_console(ctx)))


class _Delete(Command):
    """A command whose option --interval may be given without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_default_interval(args))


def with_default_interval(args: Sequence[str]) -> list[str]:
    """Return the arguments, with Kafka's default added to an --interval that has no value."""
    completed = []
    for at, arg in enumerate(args):
        has_value = at + 1 < len(args) and args[at + 1].lstrip("-PT")[:1].isdigit()
        is_bare = arg == "--interval" and not has_value
        completed.append(f"{arg}={duration_text(commands.REMOVER_INTERVAL_MS)}" if is_bare else arg)
    return completed


@command(
    "delete",
    WHERE,
    STATE,
    SELECTION,
    ...,
    *_PLANNED,
    cls=_Delete,
    rows=lambda: (*PLAN_ROWS, commands.LEAKED_TOPICS),
)
def delete(ctx: typer.Context, request: commands.DeleteRequest, yes: Yes = False) -> int:
    """Delete the segments of deleted topics (RemotePartitionRemover); --find lists them.

    KIP-405 describes this flow, and no broker implements it: only leaders that run while a topic is deleted
    delete its segments, and what they leave stays in the tier for ever.

    --mark selects a deleted topic: it publishes DELETE_PARTITION_MARKED for the topic id, and exits with code
    4 without evidence that the topic is deleted. Evidence is the answer of the cluster, or the log
    directories of all replicas (--all-log-dirs). Without --mark, delete processes the partitions that are
    already marked, segment by segment; if the cluster still has one of their topics, it exits with code 4. If
    a topic was created again under the same name, the new topic has another id and is not changed.

    --find lists the topic ids that the metadata has and the cluster's controller does not know. No broker
    deletes the segments of such topics, so deleting them is safe while brokers run.
    """
    request = replace(request, confirm=confirmation(is_given=yes))
    if request.find and not request.mark:
        printer = Printer.of(ctx, commands.LEAKED_TOPICS)
        leaked = commands.find_leaked_topics(request, console_of(ctx))
        printer.show(leaked.topics)
        following = "tierctl delete" if leaked.are_marked else "tierctl delete --find --mark"
        printer.finish(following=following if leaked.topics else None)
        return leaked.exit_code
    if request.interval is None:
        if_empty = "tierctl delete --find" if request.has_cluster and not request.mark else None
        return print_mutation(ctx, commands.delete(request, plan_console(ctx)), if_empty=if_empty)
    runs = commands.delete_repeatedly(request, plan_console(ctx))
    for result in runs:
        print_mutation(ctx, result)
    return runs.exit_code


@command("apply", ..., "topic_configs", "kafka_version", *TIER, *_PLANNED, THROTTLES, rows=PLAN_ROWS)
def apply_plan(ctx: typer.Context, request: commands.ApplyRequest, yes: Yes = False) -> int:
    """Carry out a plan of copy, sweep, delete, rebuild, restore or verify.

    apply decides each step again from the current metadata, settings and logs. If a step is no longer
    decided, apply drops it and prints the reason. Give the same --topic-configs and --log-dir as for the
    command that made the plan, or the cluster; the plan contains the other options. A plan for a copy from
    tier to tier needs --from-remote and --to-metadata again. Without --apply, the remaining steps are
    printed.

    A plan of rebuild for brokers on several hosts is applied on each of them, with the log directory of the
    host, and is not decided again: each host must write the same bytes. apply exits with code 4, and writes
    nothing, if a metadata partition is not as the plan states it, if a replica has another history or a
    raised log start, if the tier lacks an object, or on the host of another broker. A plan that is applied
    already changes nothing.

    apply exits with code 4 if the plan was edited, is older than --max-age, or was made for another cluster,
    metadata topic or tier; and if another user than this one or root owns the file or may write it or its
    folder (a sticky folder, as /tmp, is accepted). The digest in the plan detects mistakes. Whoever may write
    the file can replace it, too: where the plan passed through other hands, give the printed digest with
    --digest. apply prints the options that are saved in the plan. With --apply, the exit code is also 4 if no
    step remains, and 0 if all steps were already done.
    """
    request = replace(request, confirm=confirmation(is_given=yes))
    return print_mutation(ctx, commands.apply(request, plan_console(ctx)))


@command("backup-config", (*METADATA_TOPIC, "topic"), ..., Rows, rows=lambda: (commands.SAVED_TOPICS,))
def backup_config(ctx: typer.Context, request: commands.BackupConfigRequest) -> ExitCode:
    """Save what a tier lacks: the topic ids and settings of a running cluster.

    The YAML file has each topic's name, id, number of partitions, and the settings of the topic itself. With
    this file and the objects of the tier, the topics can be restored in a new cluster; once the cluster is
    lost, no other source has this data. Run the command from cron, and keep the file outside the cluster.
    Internal topics are left out. ACLs, quotas, users, delegation tokens, offsets of consumer groups and
    broker settings are not saved: back them up by other means.
    """
    printer = Printer.of(ctx)
    console = console_of(ctx)
    result = commands.backup_config(request, console)
    _, shown = result.table_rows()
    printer.show(shown)
    console.say(f"written to {request.output_file}; not covered: {', '.join(NOT_COVERED)}")
    printer.finish()
    return ExitCode.OK


@command("rebuild", WHERE, PRIVATE_KEYS, SELECTION, ..., "metadata_partitions", *_RECOVERED, rows=PLAN_ROWS)
def rebuild(ctx: typer.Context, request: commands.RebuildRequest) -> int:
    """Publish lost metadata again, from the objects of the tier.

    rebuild derives every field from the objects, in either layout. Segments that the log needs are published
    as finished, in order of offsets. Diverged, duplicate and incomplete segments are published with
    DELETE_SEGMENT_STARTED: sweep deletes them, and brokers do once retention has deleted what is older.
    Segments below the log start offset, beyond a hole or of a deleted topic are left unchanged, and the
    reason is printed. Nothing is published about a partition that may need a set of objects that is not
    understood (exit code 7). rebuild never writes or deletes an object of the tier.

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
    return print_mutation(ctx, commands.rebuild(request, plan_console(ctx)))


group(
    "restore",
    """Restore topics from the objects of a tier.

    `into` gives a new node the topics, whose objects stay in the tier; `new-ids` gives them to an existing
    cluster; `log` writes their records to local logs. `check` verifies what brokers serve afterwards. To
    publish the metadata of the tier again, use tierctl rebuild.

    All three ways abort a transaction that has no end below the end of the log: consumers would otherwise
    wait for its end. The abort marker takes one more offset. Offsets of consumer groups, ACLs and quotas are
    not in a tier and are not restored.
    """,
)


@command(
    "restore into",
    _TIER,
    PRIVATE_KEYS,
    ("topic", "topic_id"),
    "topic_configs",
    ...,
    *_RECOVERED,
    rows=PLAN_ROWS,
)
def into(ctx: typer.Context, request: commands.RestoreIntoRequest) -> int:
    """Restore topics, under their old ids, on a node that was formatted and never started.

    A new cluster then serves the objects from their present location. The first node of the cluster gets an
    empty log for each partition, the metadata of the segments, and the topics with their settings. Format the
    node (kafka-storage format), do not start it, and run this command as the user of its broker;
    --broker-config states the number of metadata partitions. If something is wrong, brokers delete every
    object within seconds: configure the store to deny deletes, or copy the objects first. The restored topics
    have one replica, and copying is disabled. A setting with a value that the node's Kafka refuses ends the
    run, and settings that it does not have any more are left out. If the run is killed, run it again: the
    topics are written last. The cluster starts with one controller and one broker.

    With --engine spark, executors list the tier and read its objects. This process writes the files: run it
    on the node.
    """
    return print_mutation(ctx, commands.restore_into(request, plan_console(ctx)))


@command(
    "restore new-ids",
    ("metadata", *_TIER),
    PRIVATE_KEYS,
    STATE,
    ("topic", "partition"),
    "topic_configs",
    ...,
    *_RECOVERED,
    "adopt_tier",
    rows=PLAN_ROWS,
)
def new_ids(ctx: typer.Context, request: commands.RestoreNewIdsRequest) -> int:
    """Restore topics that were created again in a cluster whose brokers are stopped.

    An existing cluster then serves the objects. Copy them to the tier of that cluster first, under their
    names; if it has tiered nothing yet, --adopt-tier makes them its tier. Create each topic again with the
    same number of partitions, one replica and remote.storage.enable=true. Restart its broker until the leader
    epoch is at least that of the records (the plan names both), then stop it, and name its directories with
    --metadata and --log-dir. The store copies the objects of the lost topics of the same names under the new
    ids, and keeps the old ones; logs and metadata are written as by restore into. --topic-configs or
    --assume-enabled must state that the topics are tiered.

    With --engine spark, executors list the tier, read its objects and ask the store to copy them. This
    process writes the logs: run it on the node.
    """
    return print_mutation(ctx, commands.restore_new_ids(request, plan_console(ctx)))


@command("restore log", *TIER, ..., *_RECOVERED, rows=PLAN_ROWS)
def log(ctx: typer.Context, request: commands.RestoreLogRequest) -> int:
    """Restore records as the local log of a new topic with the same partitions, on stopped brokers.

    Offsets, timestamps, headers and transactions are kept. Create the topic with its settings first and stop
    its brokers; partition.metadata in its folders has the new id. Name the log directories of all its
    replicas, so that each replica gets the same log. Only empty folders are replaced. Use this also to
    restore to a point in time (--until), or to leave tiered storage; if the new topic is tiered, its segments
    are copied again. Every batch is checked and keeps its bytes, except for the leader epoch, which becomes
    0. If --until falls inside the last batch, its first records are kept in a batch with a new CRC. Each log
    is written to a folder with a name that brokers delete, and renamed when it is complete. The checkpoints
    of the log directories from before the run are kept as .bak, or as .2.bak beside an earlier one. If the
    run is killed, run it again.

    --without-keys is for an erasure request; see ERASURE.

    With --engine spark, executors list the tier, read its objects and write the logs.
    """
    return print_mutation(ctx, commands.restore_log(_derived(request), plan_console(ctx)))


@command(
    "restore check",
    WHERE,
    PRIVATE_KEYS,
    SELECTION,
    ...,
    Rows,
    ENGINE,
    "throttle_fetch",
    rows=lambda: (commands.CHECKS,),
)
def check(ctx: typer.Context, request: commands.RestoreCheckRequest) -> ExitCode:
    """Verify what brokers serve after a restore or a rebuild, once they have started.

    The records and offsets are compared with the objects of the tier; see CHECKS. To check a topic of restore
    log, give the --topic-id of the old topic, and --as and --until as for the restore. Nothing is changed,
    except with --produce.

    Exit 0 if all requested checks succeed, and 3 if one failed or could not be made completely: where the
    tier has a hole, or for a topic of the tier that the cluster has not. Exit 7 if something is not
    understood. Checks that do not apply are printed as not_checked and leave the exit code as it is: those
    that no option asks for, and what nothing can tell. That is, in a partition without an event of tierctl,
    when segments below the log start were deleted and which copies are new; restarts, if no metadata
    partition begins with an event of tierctl; next_copy before the first copy; election, if no epoch has two
    records; and read_committed from a transaction on whose end the tier lacks, or with --until.

    With --engine spark, executors list the tier and read its objects.
    """
    printer = Printer.of(ctx)
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
