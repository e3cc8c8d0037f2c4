"""`tierctl delete`: KIP-405's RemotePartitionRemover."""

from collections.abc import Sequence
from typing import Any

import click

from tierctl import commands
from tierctl.apply.defaults import REMOVER_INTERVAL_MS
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.confirm import confirmation
from tierctl.cli.declare import add
from tierctl.cli.display import Printer, console_of, display_of, print_mutation, show_mutation, view_of
from tierctl.cli.options import with_options
from tierctl.cli.output_options import rows
from tierctl.cli.request import request_of
from tierctl.report import tables
from tierctl.report.plans import check_view


class _Delete(click.Command):
    """--interval may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_default_interval(args))


def with_default_interval(args: Sequence[str]) -> list[str]:
    """The arguments with Kafka's default after an --interval that has no number after it."""
    completed = []
    for at, arg in enumerate(args):
        has_value = at + 1 < len(args) and args[at + 1].lstrip("-")[:1].isdigit()
        completed.append(f"{arg}={REMOVER_INTERVAL_MS}" if arg == "--interval" and not has_value else arg)
    return completed


def register(app: click.Group) -> None:
    """Add `delete`."""
    add(app, "delete", delete, _Delete)


@with_options(options.where, options.state, options.selection, ..., rows, own.changing, options.engine)
def delete(
    ctx: click.Context,
    find: own.Find = False,
    mark: own.Mark = False,
    all_log_dirs: own.AllLogDirs = False,
    i_know_it_is_deleted: own.IKnowItIsDeleted = None,
    interval: own.Interval = None,
    yes: own.Yes = False,
) -> int:
    """Delete from the tier everything of topics that were deleted.

    --mark says which: it publishes DELETE_PARTITION_MARKED for a topic id, and refuses (exit 4) without
    evidence that the topic is deleted. The evidence is the answer of the topics' cluster, or the log
    directories of all replicas (--all-log-dirs). Without --mark the partitions marked so far are deleted,
    segment by segment; if the cluster still has one of their topics, delete refuses (exit 4). A topic
    recreated under the same name is another topic and stays as it is.

    --find lists what brokers left behind: topic ids that the cluster's controller does not know. Nobody
    else deletes those, so it is safe beside running brokers.
    """
    request = request_of(commands.DeleteRequest, ctx, confirm=confirmation(is_given=yes))
    if find and not mark:
        printer = Printer.of(ctx, tables.LEAKED_TOPICS)
        leaked = commands.find_leaked_topics(request, console_of(ctx))
        printer.show(leaked.topics)
        printer.finish(following="tierctl delete --find --mark" if leaked.topics else None)
        return leaked.exit_code
    if interval is None:
        return show_mutation(ctx, lambda: commands.delete(request, console_of(ctx)))
    check_view(display_of(ctx).output, view_of(ctx))
    runs = commands.delete_repeatedly(request, console_of(ctx))
    for result in runs:
        print_mutation(ctx, result)
    return runs.exit_code
