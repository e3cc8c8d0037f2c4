"""`tierctl delete`: KIP-405's RemotePartitionRemover."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from tierctl.apply.defaults import ATTEMPTS, NOT_A_BROKER_ID, REMOVER_INTERVAL_MS, THREADS, WAVE_SIZE
from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.mutation import Mutation, mutation
from tierctl.cli.plans import say
from tierctl.errors import ExitCode, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.model import RemotePartitionDeleteState, Uuid
from tierctl.plan.model import Plan

if TYPE_CHECKING:
    from tierctl.apply.stop import Stop
    from tierctl.state.tier import TierState


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


def delete(
    ctx: typer.Context,
    metadata: options.Metadata = None,
    bootstrap_server: options.BootstrapServer = None,
    command_config: options.CommandConfig = None,
    config: options.ServerProperties = None,
    remote: options.Remote = None,
    layout: options.RemoteLayout = None,
    log_dir: options.LogDirs = None,
    state_dir: options.StateDir = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    topic_id: options.TopicIds = None,
    mark: own.Mark = False,
    force: own.Force = False,
    output: options.Output = options.OutputFormat.TABLE,
    plan_out: options.PlanOut = None,
    detailed_exitcode: options.DetailedExitcode = False,
    apply: options.Apply = False,
    interval: own.Interval = None,
    broker_id: own.BrokerId = NOT_A_BROKER_ID,
    wave_size: own.WaveSize = WAVE_SIZE,
    threads: own.Threads = THREADS,
    attempts: own.Attempts = ATTEMPTS,
    set_: own.Set = None,
) -> int:
    """Delete from the tier everything of topics that were deleted.

    --mark says which: it publishes DELETE_PARTITION_MARKED for a topic id. Without it the partitions
    marked so far are deleted, segment by segment. A topic recreated under the same name is another topic
    and stays as it is.
    """
    if mark and interval is not None:
        raise UsageError("--mark is done once", hint="leave --interval out")
    if interval is not None and not apply:
        raise UsageError("--interval repeats a run that changes things", hint="add --apply")
    if interval is None:
        return _once(ctx, mark=mark)
    return _repeat(ctx, interval)


def _once(ctx: typer.Context, *, mark: bool, stop: "Stop | None" = None) -> int:
    # Nobody else deletes these partitions, so a running broker is no rival here.
    with mutation(ctx, fence_logs=False) as run:
        state = run.refresh()
        plan = _plan_mark(run, state) if mark else _plan_removal(state)
        return run.conclude(run.narrowed(plan), run.removal_options, stop=stop)


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
    from tierctl.plan.removal import plan_removal

    return plan_removal(state)


def _plan_mark(run: Mutation, state: "TierState") -> Plan:
    from tierctl.plan.removal import plan_mark

    current = {log.topic_id_partition.topic_id for log in run.read_logs()}
    return plan_mark(
        state, [_topic_id(run, state)], current_topic_ids=current, force=bool(run.params["force"])
    )


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
