"""`tierctl delete`: KIP-405's RemotePartitionRemover."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import (
    Display,
    Printer,
    Rows,
    confirmation,
    console_of,
    display_of,
    print_mutation,
    show_mutation,
    view_of,
)
from tierctl.cli.options import (
    CHANGING,
    ENGINE,
    SELECTION,
    STATE,
    WHERE,
    Yes,
    with_options,
)
from tierctl.commands.delete import LEAKED_TOPICS, REMOVER_INTERVAL_MS
from tierctl.model.times import duration_text
from tierctl.report.plans import PLAN_ROWS, check_view


class _Delete(Command):
    """A command whose option --interval may be given without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_default_interval(args))


def with_default_interval(args: Sequence[str]) -> list[str]:
    """Return the arguments, with Kafka's default added to an --interval that has no value."""
    completed = []
    for at, arg in enumerate(args):
        has_value = at + 1 < len(args) and args[at + 1].lstrip("-P")[:1].isdigit()
        is_bare = arg == "--interval" and not has_value
        completed.append(f"{arg}={duration_text(REMOVER_INTERVAL_MS)}" if is_bare else arg)
    return completed


app = new_app()


@app.command("delete", cls=_Delete)
@with_options(
    commands.DeleteRequest,
    WHERE,
    STATE,
    SELECTION,
    ...,
    Rows,
    CHANGING,
    Display,
    ENGINE,
    rows=(*PLAN_ROWS, LEAKED_TOPICS),
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
        printer = Printer.of(ctx, LEAKED_TOPICS)
        leaked = commands.find_leaked_topics(request, console_of(ctx))
        printer.show(leaked.topics)
        printer.finish(following="tierctl delete --find --mark" if leaked.topics else None)
        return leaked.exit_code
    if request.interval is None:
        following = "tierctl delete --find" if request.has_cluster and not request.mark else None
        return show_mutation(ctx, commands.delete, request, if_empty=following)
    check_view(display_of(ctx).output, view_of(ctx))
    runs = commands.delete_repeatedly(request, console_of(ctx))
    for result in runs:
        print_mutation(ctx, result)
    return runs.exit_code
