"""`tierctl delete`: KIP-405's RemotePartitionRemover."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from tierctl.apply.defaults import REMOVER_INTERVAL_MS
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.mutation import Mutation, mutation
from tierctl.cli.plans import report_quarantined, say
from tierctl.cli.taking import takes
from tierctl.errors import ExitCode, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.model import RemotePartitionDeleteState, Uuid, is_legal_topic_name
from tierctl.plan.plan import Plan

if TYPE_CHECKING:
    from tierctl.apply.stop import Stop
    from tierctl.state.tier import TierState

FOUND_COLUMNS = ("topic", "topic_id", "partitions", "segments", "log_bytes", "delete_state")

_TRY_AGAIN = frozenset({ExitCode.RETRYABLE, ExitCode.LOCKED})


class _Delete(TyperCommand):
    """--interval may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_default_interval(args))


def with_default_interval(args: Sequence[str]) -> list[str]:
    """The arguments with Kafka's default after an --interval that has no number after it."""
    completed = []
    for at, arg in enumerate(args):
        has_value = at + 1 < len(args) and args[at + 1].lstrip("-").isdigit()
        completed.append(f"{arg}={REMOVER_INTERVAL_MS}" if arg == "--interval" and not has_value else arg)
    return completed


def register(app: typer.Typer) -> None:
    """Adds `delete`."""
    app.command("delete", cls=_Delete)(delete)


@takes(options.where, options.state, options.selection, ..., own.changing, options.engine)
def delete(
    ctx: typer.Context,
    find: own.Find = False,
    mark: own.Mark = False,
    force: own.Force = False,
    interval: own.Interval = None,
) -> int:
    """Delete from the tier everything of topics that were deleted.

    --mark says which: it publishes DELETE_PARTITION_MARKED for a topic id. Without it the partitions
    marked so far are deleted, segment by segment. A topic recreated under the same name is another topic
    and stays as it is. --find lists what brokers left behind: topic ids that the cluster's controller does
    not know. Nobody else deletes those, so it is safe beside running brokers.
    """
    apply = ctx.params["apply"]
    if find:
        _require_cluster(ctx)
    if find and not mark:
        if apply:
            raise UsageError("--find only lists", hint="add --mark, or leave --apply out")
        return _find(ctx)
    if mark and interval is not None:
        raise UsageError("--mark is done once", hint="leave --interval out")
    if interval is not None and not apply:
        raise UsageError("--interval repeats a run that changes things", hint="add --apply")
    if interval is None:
        return _once(ctx, mark=mark)
    return _repeat(ctx, interval)


def _require_cluster(ctx: typer.Context) -> None:
    """UsageError when there is no controller to ask which topics there are."""
    if ctx.params["interval"] is not None:
        raise UsageError("--find looks once", hint="leave --interval out")
    if ctx.params["bootstrap_server"] is None and not (ctx.params["metadata"] or "").startswith("kafka:"):
        raise _no_controller()


def _no_controller() -> UsageError:
    return UsageError(
        "--find needs the cluster's controller",
        hint="name the cluster with --bootstrap-server, or --metadata kafka://...",
    )


def _once(ctx: typer.Context, *, mark: bool, stop: "Stop | None" = None) -> int:
    # Nobody else deletes these partitions, so a running broker is no rival here.
    with mutation(ctx, fence_logs=False) as run:
        state = run.refresh()
        plan = run.narrowed(_plan_mark(run, state) if mark else _plan_removal(state))
        partitions = {step.topic_id_partition for step in plan.steps}
        return run.conclude(
            plan,
            run.removal_options,
            check=lambda: run.check_fence(partitions, unknown_is_safe=True),
            stop=stop,
        )


def _find(ctx: typer.Context) -> int:
    """List the topic ids that the cluster does not know, with what the tier still has of them."""
    from tierctl.report import render

    with mutation(ctx, fence_logs=False) as run:
        state = run.refresh()
        leaked = _leaked(run, state)
        rows = (_leaked_row(state, topic_id) for topic_id in leaked)
        render(rows, run.params["output"], FOUND_COLUMNS)
        return ExitCode.CORRUPT if report_quarantined(state) else ExitCode.OK


def _leaked(run: Mutation, state: "TierState") -> list[Uuid]:
    """Selected topic ids, by name, that the controller does not know and whose deletion isn't finished."""
    from tierctl.plan.fencing import leaked_topic_ids

    if run.live is None:
        raise _no_controller()
    finished = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
    parts = [p for p in state if p.delete_state is not finished and (len(p.cache) or p.delete_state)]
    illegal = {
        p.topic_id_partition.topic for p in parts if not is_legal_topic_name(p.topic_id_partition.topic)
    }
    for name in sorted(illegal):
        say(f"{name!r} is no legal topic name: nothing of it is looked for")
    partitions = [p.topic_id_partition for p in parts if p.topic_id_partition.topic not in illegal]
    # The metadata were read first: a topic made since can't be taken for one that is gone.
    found = leaked_topic_ids(run.live.topics(p.topic for p in partitions), partitions)
    if partitions and len(found) == len({p.topic_id for p in partitions}):
        _know_none(run, len(found))
    selected = {p.topic_id for p in partitions if p in run.context.selection}
    return sorted(selected & found.keys(), key=lambda topic_id: (found[topic_id], topic_id))


def _know_none(run: Mutation, topic_ids: int) -> None:
    """SafetyRefusal to mark them all, unless --force: seen from another cluster every topic looks deleted."""
    said = f"the cluster knows none of the {topic_ids} topics in the metadata"
    is_sure = run.live is not None and run.live.is_of_this_cluster()
    if run.params["mark"] and not is_sure and not run.params["force"]:
        raise SafetyRefusal(
            f"{said}, and nothing else shows that it is the one whose tier this is",
            hint="name the data's cluster with --bootstrap-server; --force marks all of them as deleted",
        )
    if not is_sure:
        say(f"{said}: is it the one whose tier this is?")


def _leaked_row(state: "TierState", topic_id: Uuid) -> dict[str, Any]:
    parts = [part for part in state if part.topic_id_partition.topic_id == topic_id]
    segments = [s for part in parts for s in part.cache.list_remote_log_segments()]
    states = sorted({str(part.delete_state) for part in parts if part.delete_state is not None})
    return {
        "topic": parts[0].topic_id_partition.topic,
        "topic_id": topic_id,
        "partitions": len(parts),
        "segments": len(segments),
        "log_bytes": sum(s.segment_size_in_bytes for s in segments),
        "delete_state": ",".join(states) or None,
    }


def _repeat(ctx: typer.Context, interval_ms: int) -> int:
    """One run after the other, never two at a time; a signal ends it between side effects or in the pause."""
    from tierctl.apply.stop import Stop, stop_on_signals

    code: int = ExitCode.OK
    with stop_on_signals(Stop()) as stop:
        while not stop.asked():
            try:
                code = _once(ctx, mark=False, stop=stop)
            except TierctlError as e:
                if e.exit_code not in _TRY_AGAIN:
                    raise
                say(f"{e.message}; the next run is in {interval_ms} ms")
            stop.wait(interval_ms / 1000)
    return stop.exit_code or code


def _plan_removal(state: "TierState") -> Plan:
    from tierctl.plan.delete import plan_removal

    return plan_removal(state)


def _plan_mark(run: Mutation, state: "TierState") -> Plan:
    from tierctl.plan.delete import plan_mark

    wanted = _leaked(run, state) if run.params["find"] else [_topic_id(run, state)]
    current = {log.topic_id_partition.topic_id for log in run.read_logs()}
    if run.live is not None:
        names = {p.topic_id_partition.topic for p in state if p.topic_id_partition.topic_id in wanted}
        current |= {topic.topic_id for topic in run.live.topics(names).values()}
    return plan_mark(state, wanted, current_topic_ids=current, force=bool(run.params["force"]))


def _topic_id(run: Mutation, state: "TierState") -> Uuid:
    """The one topic id --topic-id or --topic means; SafetyRefusal when the name had several."""
    selection = run.context.selection
    if selection.topic_ids:
        if len(selection.topic_ids) > 1:
            raise UsageError("--mark takes one --topic-id at a time")
        return next(iter(selection.topic_ids))
    if len(selection.topics) != 1:
        raise UsageError("--mark needs --topic-id, or one --topic")
    name = next(iter(selection.topics))
    ids = _live_ids(state, name)
    if not ids:
        raise NotFoundError(f"the metadata know no topic {name!r} that is not deleted already")
    if len(ids) > 1:
        raise SafetyRefusal(
            f"topic {name!r} is the name of {len(ids)} topics: {', '.join(sorted(ids))}",
            hint="say which is meant with --topic-id",
        )
    return next(iter(ids))


def _live_ids(state: "TierState", name: str) -> set[Uuid]:
    """Ids under this name with a partition whose deletion is not finished."""
    finished = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
    return {
        part.topic_id_partition.topic_id
        for part in state
        if part.topic_id_partition.topic == name and part.delete_state is not finished
    }
