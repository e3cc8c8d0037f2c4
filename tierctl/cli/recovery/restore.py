"""`tierctl restore`: topics from the objects of a tier."""

from pathlib import Path
from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.declare import add, option
from tierctl.cli.display import console_of, show_mutation
from tierctl.cli.options import with_options
from tierctl.cli.output_options import rows
from tierctl.cli.recovery import check as after
from tierctl.cli.request import request_of
from tierctl.errors import UsageError
from tierctl.model.location import DERIVED
from tierctl.model.times import parse_time_ms
from tierctl.read.record_rows import KEY_FORMS

Metadata = Annotated[
    str | None,
    option(
        "--metadata",
        metavar="URI",
        help="The metadata topic of the tier, as for fetch. Without it, or with none, the metadata are "
        "derived from the objects of the tier. With --check: that of the brokers that are checked.",
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
Into = Annotated[
    str | None,
    option(
        "--into",
        metavar="DIR",
        help="Give the topics, under their old ids, to a node that was formatted and never started. DIR is "
        "the metadata log directory (metadata.log.dir) of its only controller; --log-dir are the broker's.",
        panel=options.DECIDE,
    ),
]
NewIds = Annotated[
    bool,
    option(
        "--new-ids",
        help="Give topics that were created again, in a cluster whose brokers are stopped, the objects of "
        "the lost topics of the same names: the store copies the objects under the new ids.",
        panel=options.DECIDE,
    ),
]
FromId = Annotated[
    list[str] | None,
    option(
        "--from-id",
        metavar="ID",
        help="With --new-ids: the id of a lost topic, where the tier has objects of several topics of its "
        "name. Repeatable.",
        panel=options.DECIDE,
    ),
]
AssumeEnabled = Annotated[
    bool,
    option(
        "--assume-enabled",
        help="With --new-ids: the new topics have remote.storage.enable=true, as no --topic-configs states.",
        panel=options.DECIDE,
    ),
]
TopicsFile = Annotated[
    str | None,
    option(
        "--topics-file",
        metavar="FILE",
        help="With --into: the YAML file that backup-config wrote, with ids, numbers of partitions and "
        "settings. --topic-configs wins over its settings.",
        panel=options.DECIDE,
    ),
]
DeletesAreDenied = Annotated[
    bool,
    option(
        "--deletes-are-denied",
        help="With --into: believe that nobody, brokers included, can delete objects of the tier now. "
        "Otherwise the bucket must keep versions, or deny the deletion of an object that is written for it.",
        panel=options.APPLY,
    ),
]
PublishLater = Annotated[
    bool,
    option(
        "--publish-later",
        help="With --into, from Kafka 3.9 on: leave the metadata topic to the brokers, and publish the "
        "events with rebuild --metadata kafka://... once they run. Copying stays disabled until then.",
        panel=options.DECIDE,
    ),
]
CopyOfObjects = Annotated[
    str | None,
    option(
        "--copy-of-objects",
        metavar="URI",
        help="With --into: a copy of the tier, which must have every object with its size.",
        panel=options.APPLY,
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


def _absolute(text: str) -> str:
    """Return a path that means the same when a plan is carried out in another folder."""
    return str(Path(text).absolute())


WithoutKeys = Annotated[
    str | None,
    option(
        "--without-keys",
        metavar="FILE",
        parser=_absolute,
        help="With --materialise: write the records of these keys without key, value and headers, at their "
        f"offsets. One key a line: {KEY_FORMS}, as for fetch --erase-report. Needs --left-out and "
        "--sign-with.",
        panel=options.DECIDE,
    ),
]
LeftOut = Annotated[
    str | None,
    option(
        "--left-out",
        metavar="DIR",
        parser=_absolute,
        help="With --without-keys: write here, for each new partition, a list of the records that were left "
        "out, with the SHA-256 of their keys, and its signature.",
        panel=options.DECIDE,
    ),
]
SignWith = Annotated[
    str | None,
    option(
        "--sign-with",
        metavar="FILE",
        parser=_absolute,
        help="With --without-keys: the Ed25519 private key, in PEM without a password, that signs the lists.",
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
    after.checking,
    rows,
    own.publishing,
    options.engine,
    options.reading_throttle,
)
def restore(
    ctx: click.Context,
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

    With --into a new cluster serves the objects where they are, under the old topic ids: its first node gets
    an empty log for each partition, the metadata of the segments, and the topics with their settings. Format
    the node (kafka-storage format), do not start it, and run this as the user of its broker, with --config
    for the number of metadata partitions. After a mistake, brokers delete every object within seconds: make
    the store deny that, or copy the objects. The topics start with copying disabled, with one replica. After
    a kill, run again: the topics are written last. The cluster has one controller and one broker at first.

    With --new-ids an existing cluster serves them, whose tier has the objects: copy them there first, under
    their names. Create each topic again with as many partitions, one replica and remote.storage.enable=true,
    restart its broker until the leader epoch is as high as that of the records (a plan names both), stop it,
    and name its directories with --metadata and --log-dir. The store copies the objects under the new id,
    those of the old one stay; the logs and the metadata are written as with --into. --topic-configs or
    --assume-enabled says that the topics are tiered.

    With --materialise the records are written as the local log of a new topic, of the same partitions, on
    stopped brokers: offsets, timestamps, headers and transactions stay. Create the topic first, with its
    settings, and stop its brokers; partition.metadata in its folders has the new id. Name the log directories
    of all its replicas, so that each gets the same log. Only empty folders are replaced. It is also the way
    back to a point in time (--until), and the way out of tiered storage; a tiered topic is copied again.
    Every batch is checked, and keeps its bytes but for the leader epoch, which becomes 0. --until may cut the
    last batch: its first records are kept, in a batch with a new CRC. A log is written to a folder that
    brokers delete, and renamed when it is whole. After a kill, run again.

    --without-keys is for an erasure request; see ERASURE.

    In all of them a transaction that has no end below the end of the log is aborted there, by a marker that
    takes one more offset: readers would wait for its end. Offsets of consumer groups, ACLs and
    quotas are not in a tier.

    With --check, verify what the brokers serve after a restore or a rebuild, once they have started, against
    the objects of the tier: see CHECKS. With --topic-id of the old topic, and --as and --until as they were
    given, that is a materialised topic. Nothing is changed, but for --produce. Exit 0 if all that was asked
    for is as it must be, 3 if a check failed or could not be made; what was not checked is named.
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
                "--topic-id does not go with --new-ids, which is about two ids of each topic",
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
        *("without_keys", "left_out", "sign_with", "engine"),
    ),
}
"""The ways to restore, with the options that have an effect only with some of them."""
_NAME_OF = {way: way.removeprefix("--").replace("-", "_") for way in _OPTIONS_OF}


def _require_effect(ctx: click.Context, chosen: str) -> None:
    """Raise UsageError for a typed option that has an effect only with other ways to restore."""
    others = [name for names in _OPTIONS_OF.values() for name in names if name not in _OPTIONS_OF[chosen]]
    for name in others:
        typed = options.typed_option(ctx, (name,))
        if typed:
            ways = [way for way, names in _OPTIONS_OF.items() if name in names]
            raise UsageError(f"{typed} goes with {' or '.join(ways)}", hint=f"leave {typed} out")
