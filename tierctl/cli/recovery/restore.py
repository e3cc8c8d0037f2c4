"""`tierctl restore`: topics from the objects of a tier."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import console_of, show_mutation
from tierctl.cli.options import request_of, with_options
from tierctl.cli.output_options import rows
from tierctl.cli.recovery import check as after
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.errors import UsageError
from tierctl.model.location import DERIVED
from tierctl.model.times import parse_time_ms
from tierctl.read.record_rows import KEY_FORMS

Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="URI",
        help="The metadata topic of the tier, as for fetch. Without this option, or with the value none, "
        "the metadata is derived from the objects of the tier. With --check: the metadata topic of the "
        "brokers that are checked.",
        rich_help_panel=options.WHERE,
    ),
]
Materialise = Annotated[
    bool,
    typer.Option(
        "--materialise",
        help="Write the records as the local log of a new topic, into the --log-dir of stopped brokers.",
        rich_help_panel=options.DECIDE,
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="DIR",
        help="Restore the topics, under their old ids, on a node that was formatted and never started. DIR "
        "is the metadata log directory (metadata.log.dir) of its controller; --log-dir names the log "
        "directories of its broker. If the server.properties in --config names several controllers, the "
        "output states which file each of them needs.",
        rich_help_panel=options.DECIDE,
    ),
]
NewIds = Annotated[
    bool,
    typer.Option(
        "--new-ids",
        help="Restore topics that were created again in a cluster whose brokers are stopped: the store "
        "copies the objects of the lost topics of the same names, under the new ids.",
        rich_help_panel=options.DECIDE,
    ),
]
FromId = Annotated[
    list[str] | None,
    typer.Option(
        "--from-id",
        metavar="ID",
        help="With --new-ids: the id of the lost topic, if the tier has objects of several topics with its "
        "name. Repeatable.",
        rich_help_panel=options.DECIDE,
    ),
]
AssumeEnabled = Annotated[
    bool,
    typer.Option(
        "--assume-enabled",
        help="With --new-ids: assume remote.storage.enable=true for the new topics if there is no "
        "--topic-configs.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]
TopicsFile = Annotated[
    str | None,
    typer.Option(
        "--topics-file",
        metavar="FILE",
        help="With --into: the YAML file that backup-config wrote, with topic ids, numbers of partitions "
        "and settings. Settings in --topic-configs take precedence.",
        rich_help_panel=options.DECIDE,
    ),
]
DeletesAreDenied = Annotated[
    bool,
    typer.Option(
        "--deletes-are-denied",
        help="With --into: assume that nobody, brokers included, can delete objects of the tier now. "
        "Without this option tierctl requires that the bucket has versioning, or that it denies the "
        "deletion of a test object that tierctl writes.",
        rich_help_panel=options.APPLY,
    ),
    TYPED_ONLY,
]
PublishLater = Annotated[
    bool,
    typer.Option(
        "--publish-later",
        help="With --into, from Kafka 3.9 on: do not write the metadata topic. Publish the events with "
        "rebuild --metadata kafka://... once the brokers run. Copying stays disabled until then.",
        rich_help_panel=options.DECIDE,
    ),
]
CopyOfObjects = Annotated[
    str | None,
    typer.Option(
        "--copy-of-objects",
        metavar="URI",
        help="With --into: a copy of the tier. tierctl requires that it has every object, with the same "
        "size.",
        rich_help_panel=options.APPLY,
    ),
    TYPED_ONLY,
]
AsTopic = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Name of the new topic. Default: the old name.",
        rich_help_panel=options.DECIDE,
    ),
]
AsId = Annotated[
    str | None,
    typer.Option(
        "--as-id",
        metavar="ID",
        help="Id of the new topic. Default: the id in the folders of its partitions in --log-dir.",
        rich_help_panel=options.DECIDE,
    ),
]


def _until(text: str) -> str:
    """Return the value of --until with an absolute time, which does not depend on when a plan is applied."""
    return text if "=" in text else str(parse_time_ms(text))


Until = Annotated[
    list[str] | None,
    typer.Option(
        "--until",
        metavar="TIME|TOPIC-PARTITION=OFFSET",
        parser=_until,
        help="End each log before the first record that is later than TIME, or one partition's log before "
        f"OFFSET. Repeatable. TIME is {options.TIME_FORMS}.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]
AfterHole = Annotated[
    bool,
    typer.Option(
        "--after-hole",
        help="If the segments of a partition have a hole, restore the records after the last hole. Without "
        "this option such partitions are refused (exit 4).",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]


def _absolute(text: str) -> str:
    """Return an absolute path, which means the same when a plan is carried out in another folder."""
    return str(Path(text).absolute())


WithoutKeys = Annotated[
    str | None,
    typer.Option(
        "--without-keys",
        metavar="FILE",
        parser=_absolute,
        help="With --materialise: write the records with these keys without key, value and headers, at "
        f"their offsets. The file has one key per line: {KEY_FORMS}, as for fetch --erase-report. Needs "
        "--left-out and --sign-with.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]
LeftOut = Annotated[
    str | None,
    typer.Option(
        "--left-out",
        metavar="DIR",
        parser=_absolute,
        help="With --without-keys: folder for the lists of the erased records, one list and its signature "
        "per new partition. A list has the SHA-256 of the keys.",
        rich_help_panel=options.DECIDE,
    ),
]
SignWith = Annotated[
    str | None,
    typer.Option(
        "--sign-with",
        metavar="FILE",
        parser=_absolute,
        help="With --without-keys: the Ed25519 private key that signs the lists, in PEM without a password.",
        rich_help_panel=options.DECIDE,
    ),
]


app = new_app()


@app.command("restore", cls=Command)
@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    after.checking,
    rows,
    own.publishing,
    options.engine,
    options.reading_throttle,
)
def restore(
    ctx: typer.Context,
    metadata: Metadata = None,
    topic_configs: options.TopicConfigs = None,
    materialise: Materialise = False,
    into: Into = None,
    new_ids: NewIds = False,
    from_id: FromId = None,
    assume_enabled: AssumeEnabled = False,
    topics_file: TopicsFile = None,
    publish_later: PublishLater = False,
    as_topic: AsTopic = None,
    as_id: AsId = None,
    until: Until = None,
    after_hole: AfterHole = False,
    without_keys: WithoutKeys = None,
    left_out: LeftOut = None,
    sign_with: SignWith = None,
    check: after.Check = False,
    deletes_are_denied: DeletesAreDenied = False,
    copy_of_objects: CopyOfObjects = None,
) -> int:
    """Restore topics from the objects of a tier.

    With --into, a new cluster serves the objects from their present location, under the old topic ids. The
    first node of the cluster gets an empty log for each partition, the metadata of the segments, and the
    topics with their settings. Format the node (kafka-storage format), do not start it, and run this command
    as the user of its broker; --config states the number of metadata partitions. If something is wrong,
    brokers delete every object within seconds: configure the store to deny deletes, or copy the objects
    first. The restored topics have one replica, and copying is disabled. If the run is killed, run it again:
    the topics are written last. The cluster starts with one controller and one broker.

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
    if check:
        return after.show_check(ctx, None if metadata == DERIVED else metadata)
    chosen = [way for way in _OPTIONS_OF if options.typed_option(ctx, (_NAME_OF[way],))]
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
    if into is not None:
        request = request_of(commands.RestoreRequest, ctx, metadata=None, bootstrap_server=None)
        return show_mutation(ctx, lambda: commands.restore(request, console_of(ctx)))
    if new_ids:
        if options.typed_option(ctx, ("topic_id",)):
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
        typed = options.typed_option(ctx, (name,))
        if typed:
            ways = [way for way, names in _OPTIONS_OF.items() if name in names]
            raise UsageError(f"{typed} can only be used with {' or '.join(ways)}", hint=f"leave {typed} out")
