"""Run plans over a world in this process, with some components replaced."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tierctl.apply.run import Acts, DeleteSegments, Fence, run
from tierctl.apply.run_context import (
    Engine,
    LocalEngine,
    Outcome,
    RunContext,
    SideEffect,
    SideEffectContext,
    SideEffectResult,
    Status,
    Stop,
)
from tierctl.commands.copy.act import CLEANUP_LABELS, CopySegments
from tierctl.commands.copy.source import LogSources
from tierctl.commands.delete import remove_partitions
from tierctl.commands.sweep import SweepSegments
from tierctl.files import PLAIN, FileSystem
from tierctl.locallog import read_log_dirs
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.state_dir import Journal
from tierctl.model import TopicConfig, Uuid
from tierctl.model.choices import NOT_A_BROKER_ID
from tierctl.plan.copy import plan_copy
from tierctl.plan.expiry import plan_retention
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.steps import Action, Plan
from tierctl.storage.remote_storage_manager import RemoteStorageManager

from tests.apply.worlds import World
from tests.metadata.topics import topic_in
from tests.storage.tiers import local_tier
from tests.support.topic_settings import enabled_configs

P = TypeVar("P")

NOW_MS = 1_795_300_000_000
"""A time after the captures and before the present."""
CONFIGS = {"bills": TopicConfig(retention_bytes=1_500_000)}
_SEGMENTS = itertools.count(1)

Wrap = Callable[[RemoteStorageManager], RemoteStorageManager]


class Backwards:
    """An engine that completes the last item first, as threads may do."""

    verify_on_driver = False
    wave_size = delete_wave_size = 3

    def ready(self) -> None:
        """Return True."""

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Do nothing until the results are read."""
        return lambda: [side_effect(context, each) for each in reversed(inputs)][::-1]


def new_segment_id() -> Uuid:
    """Return ids that count up, so that every run has the same ids."""
    return Uuid.from_bytes(next(_SEGMENTS).to_bytes(16, "big"))


@contextmanager
def opened(world: World, fs: FileSystem = PLAIN) -> Iterator[TopicBasedRemoteLogMetadataManager]:
    """Open the world's metadata for writing."""
    topic = topic_in(world.metadata, writable=True, fs=fs)
    manager = TopicBasedRemoteLogMetadataManager(topic)
    try:
        yield manager
    finally:
        manager.close()


def plan_of(command: str, world: World, manager: TopicBasedRemoteLogMetadataManager) -> Plan:
    """Return the plan that the command decides over this world."""
    state = manager.refresh()
    match command:
        case "copy":
            logs = read_log_dirs([world.logs])
            return plan_copy(state, logs, enabled_configs(logs), ended_writer=NOT_A_BROKER_ID)
        case "sweep":
            return plan_retention(state, read_log_dirs([world.logs]), CONFIGS, now_ms=NOW_MS)
        case _:
            return plan_removal(state)


def acts_of(command: str, world: World) -> Acts:
    """Return the acts of the command over this world."""
    world.state_dir.mkdir(exist_ok=True)
    match command:
        case "copy":
            sources = LogSources([world.logs])
            clean = DeleteSegments(labels=CLEANUP_LABELS)
            return {Action.DELETE_SEGMENT: clean, Action.COPY_SEGMENT: CopySegments(sources=sources)}
        case "sweep":
            keep = Journal(world.state_dir).raise_log_starts
            return {Action.DELETE_SEGMENT: SweepSegments(log_starts={}, raise_log_starts=keep)}
        case _:
            rest = DeleteSegments()
            return {Action.DELETE_PARTITION: remove_partitions, Action.DELETE_SEGMENT: rest}


def context_of(
    world: World,
    manager: TopicBasedRemoteLogMetadataManager,
    wrap: Wrap = lambda remote: remote,
    *,
    fs: FileSystem = PLAIN,
    stop: Stop | None = None,
    wave_size: int = 2,
    engine: Engine | None = None,
) -> RunContext:
    """Return a context with one thread, a fixed clock and ids that count up."""
    return RunContext(
        remote=wrap(local_tier(world.remote, fs=fs)),
        metadata=manager,
        clock_ms=lambda: NOW_MS,
        new_segment_id=new_segment_id,
        engine=engine or LocalEngine(1),
        wave_size=wave_size,
        delete_wave_size=wave_size,
        stop=Stop() if stop is None else stop,
    )


def run_on(
    command: str, world: World, wrap: Wrap = lambda remote: remote, *, fs: FileSystem = PLAIN, **more: Any
) -> list[Outcome]:
    """Plan and carry out `command`; return the outcomes. `more` are arguments of `run_with`."""
    with opened(world, fs) as manager:
        return run_with(command, world, manager, wrap, **more)


def run_with(
    command: str,
    world: World,
    manager: TopicBasedRemoteLogMetadataManager,
    wrap: Wrap = lambda remote: remote,
    *,
    fence: Fence | None = None,
    **context: Any,
) -> list[Outcome]:
    """Do as `run_on`, over metadata that are open; `context` are arguments of `context_of`."""
    plan = plan_of(command, world, manager)
    return run(plan, context_of(world, manager, wrap, **context), acts_of(command, world), fence=fence)


def statuses(outcomes: Sequence[Outcome]) -> list[Status]:
    """Return the status of each step."""
    return [outcome.status for outcome in outcomes]


def put(path: Path, data: bytes | bytearray) -> None:
    """Write a file of this world only; worlds share large files by hard links."""
    path.unlink()
    path.write_bytes(data)
