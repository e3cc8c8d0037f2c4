"""One seed: several processes of tierctl with brokers and faults, then runs without faults, and checks."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tierctl.commands import (
    CopyRequest,
    DeleteRequest,
    MutationResult,
    SweepRequest,
    copy,
    delete,
    sweep,
)
from tierctl.errors import ExitCode, LimitExceeded, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.plan.preconditions import FRACTION_EXEMPT_BELOW
from tierctl.storage import lease
from tierctl.storage.layouts.kafka import SUFFIXES, key_stem

from tests.simulation.cluster import BROKERS
from tests.simulation.installed import installed
from tests.simulation.scheduler import Crash, InvariantViolation, Process
from tests.simulation.world import World

_S = RemoteLogSegmentState
ROUNDS_MAX = 8
EXPECTED = frozenset(
    {
        ExitCode.OK,
        ExitCode.PARTIAL,
        ExitCode.REFUSED,
        ExitCode.RETRYABLE,
        ExitCode.LOCKED,
        ExitCode.LIMIT,
        ExitCode.NOT_FOUND,
        ExitCode.AUTHENTICATION,
    }
)
"""Exit codes that are allowed with faults; others mean that tierctl or its input is wrong."""


class SimulationError(AssertionError):
    """A seed broke a rule."""


@dataclass(slots=True)
class _Run:
    world: World

    def command(
        self, name: str, *, state_dir: Path | None, max_fraction: float | None = None
    ) -> MutationResult:
        """Run one command of tierctl in this world."""
        rng, world = self.world.rng, self.world
        common = {
            "metadata": "kafka://sim:9092",
            "remote": "s3://sim/",
            "layout": "kafka",
            "apply": True,
            "threads": 1,
            "attempts": 1 if world.is_calm else rng.choice([1, 2]),
            "wave_size": rng.choice([1, 2, 100]),
            "state_dir": state_dir,
        }
        logs = (world.folder / "log",)
        match name:
            case "copy":
                return copy(CopyRequest(log_dir=logs, **common))
            case "clean":
                return copy(CopyRequest(log_dir=logs, clean_dangling=True, **common))
            case "sweep":
                return sweep(SweepRequest(max_fraction=max_fraction, **common))
            case "mark":
                # At the end, no topic of the metadata may be on the cluster, so the operator allows the
                # deletion.
                known = world.unmarked_topic_ids() if world.is_calm else []
                return delete(DeleteRequest(find=True, mark=True, i_know_it_is_deleted=known, **common))
            case _:
                return delete(DeleteRequest(**common))

    def life(self, process: Process) -> None:
        """Run commands one after the other; after a crash, the next one runs as a new process."""
        world, rng = self.world, self.world.rng
        state_dir = world.folder / process.name if rng.random() < 0.2 else None
        for _ in range(rng.randint(1, 4)):
            world.between_commands()
            name = rng.choices(("copy", "clean", "sweep", "mark", "delete"), (4, 1, 4, 1, 1))[0]
            world.note(f"begins {name}")
            world.busy += 1
            try:
                result = self.command(name, state_dir=state_dir)
                code = result.exit_code
            except Crash:
                self._killed(process)
                code = ExitCode.OK
            except TierctlError as e:
                code = e.exit_code
                world.note(f"{name}: {type(e).__name__}")
            finally:
                world.busy -= 1
            world.note(f"{name} ends with {code}")
            process.renew_lease = None
            if code not in EXPECTED:
                raise InvariantViolation(f"{name} ends with exit code {code}")

    def _killed(self, process: Process) -> None:
        """Mark the process as dead; other runs on its machine see that."""
        process.background.clear()
        if self.world.scheduler.violation is not None:
            return
        if process.lease is not None and self.world.rng.random() < 0.5:
            lease._held.discard(process.lease.holder["run"])
        process.is_dead = False

    def converge(self) -> None:
        """Run every command without faults until no command finds work."""
        done: list[str] = []

        def life(_process: Process) -> None:
            for _ in range(ROUNDS_MAX):
                if not self._round():
                    done.append("done")
                    return

        self.world.scheduler.run([Process("calm", life)])
        if not done:
            raise InvariantViolation(f"still something to do after {ROUNDS_MAX} rounds without faults")

    def _round(self) -> bool:
        """Run each command once; return whether one of them changed anything."""
        has_worked = False
        removals = ("mark", "delete") if self.world.deleted else ()
        for name in ("clean", "sweep", *removals):
            try:
                result = self._allowed(name)
            except TierctlError as e:
                raise InvariantViolation(f"{name}, without faults: {e.message} ({e.hint})") from e
            self.world.note(f"{name}: {len(result.plan.steps)} steps, exit {result.exit_code}")
            if result.exit_code != ExitCode.OK:
                problems = [o for o in result.outcomes or () if o.error or o.reason]
                raise InvariantViolation(f"{name}, without faults, ends with {result.exit_code}: {problems}")
            has_worked = has_worked or bool(result.plan.steps)
        return has_worked

    def _allowed(self, name: str) -> MutationResult:
        """Run a command; if it exceeds the deletion limits, run it again with higher limits."""
        segments = self.world.truth.segments.values()
        sizes = Counter(known.metadata.topic_id_partition.key for known in segments)
        try:
            return self.command(name, state_dir=None)
        except LimitExceeded:
            if max(sizes.values(), default=0) < FRACTION_EXEMPT_BELOW:
                raise
            self.world.note(f"{name} needs a higher limit")
            return self.command(name, state_dir=None, max_fraction=1.0)

    def check_end(self) -> None:
        """Check the tier after the commands have converged."""
        world = self.world
        wanted: set[str] = set()
        for known in world.truth.segments.values():
            # A live broker may still finish its copy, so only an operator may delete it.
            is_kept = known.state is _S.COPY_SEGMENT_STARTED and (
                known.metadata.broker_id in BROKERS or self._may_be_the_only_copy(known.metadata)
            )
            if is_kept or known.state is _S.COPY_SEGMENT_FINISHED:
                wanted |= {key_stem(known.metadata) + suffix for suffix in SUFFIXES}
            elif known.state is not _S.DELETE_SEGMENT_FINISHED:
                raise InvariantViolation(f"left in {known.state}: {known.metadata}")
        leaked = [k for k in world.store.stored if k.endswith(SUFFIXES) and k not in wanted]
        if leaked:
            raise InvariantViolation(f"leaked objects: {leaked}")
        for key, log in world.logs.items():
            highest = world.truth.highest_copied.get(key, -1)
            behind = [
                s.base_offset for s in log.rolled_committed() if (s.next_base_offset or 0) - 1 > highest
            ]
            behind = [b for b in behind if log.history[b].next_base_offset > log.log_start_offset]
            if behind:
                raise InvariantViolation(f"{log.partition}: not copied: {behind}")
            world.truth.check_coverage(key)
        for key in world.deleted:
            left = [k for k in world.truth.segments_of(key) if k.state is not _S.DELETE_SEGMENT_FINISHED]
            if left or world.truth.marked.get(key, _FINISHED) is not _FINISHED:
                raise InvariantViolation(f"deleted topic {key} is {world.truth.marked.get(key)}, has {left}")

    def _may_be_the_only_copy(self, begun: RemoteLogSegmentMetadata) -> bool:
        """Return whether a copy that was begun is below a log start that no checkpoint states.

        Nothing shows then that its records were deleted, unless finished segments have its offsets.
        """
        log = self.world.logs.get(begun.topic_id_partition.key)
        if log is None or begun.end_offset >= log.local_start_offset:
            return False
        held = {
            offset
            for known in self.world.truth.segments_of(begun.topic_id_partition.key)
            if known.state is _S.COPY_SEGMENT_FINISHED
            for offset in range(known.metadata.start_offset, known.metadata.end_offset + 1)
        }
        is_stated = log.log_start_offset > log.local_start_offset
        return not is_stated and not held.issuperset(range(begun.start_offset, begun.end_offset + 1))


_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


def simulate(
    seed: int, folder: Path, report: Callable[[str], None] | None = None, *, always: bool = False
) -> None:
    """Run one seed below `folder`; raise SimulationError if a rule is violated.

    `report` receives the events before a failure; with `always`, also without a failure.
    """
    rng = random.Random(seed)
    world = World(rng, folder / f"seed-{seed}")
    run = _Run(world)
    processes = [Process(f"p{n}", run.life) for n in range(rng.randint(1, 3))]
    try:
        with installed(world):
            try:
                world.scheduler.run(processes)
                world.calm()
                run.converge()
                run.check_end()
            except BaseException as e:
                if isinstance(e, KeyboardInterrupt):
                    raise
                if report is not None:
                    report("\n".join(world.trace))
                raise SimulationError(f"seed {seed}: {type(e).__name__}: {e}") from e
        if report is not None and always:
            report("\n".join(world.trace))
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)
