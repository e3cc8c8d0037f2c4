"""The simulated world: clock, logs, cluster, tier, metadata topic, and events outside tierctl."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierctl.model import MetadataEvent, RemoteLogSegmentState, TopicConfig, TopicIdPartition, Uuid
from tierctl.wire.metadata.values import decode, encode, metadata_partition

from tests.simulation.broker import ModelBroker
from tests.simulation.cluster import BROKERS, TASK_INTERVAL_MS, ModelCluster
from tests.simulation.invariants import Truth
from tests.simulation.log import ModelLog
from tests.simulation.scheduler import Crash, InvariantViolation, Process, Scheduler
from tests.simulation.store import ModelStore
from tests.simulation.topic import ModelTopic

START_MS = 1_700_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
FENCE_MS = 10 * TASK_INTERVAL_MS
TRACE_MAX = 400
OWN_BROKER_ID = -1


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities of faults and events per side effect; drawn once per seed."""

    switch: float
    event: float
    crash: float
    fault: float
    overlap: float
    """How often another thread of the process runs first."""
    takes_over: bool
    """Whether brokers tier for some time between runs of tierctl."""

    @classmethod
    def draw(cls, rng: random.Random) -> "Odds":
        return cls(
            switch=rng.choice([0.0, 0.02, 0.2]),
            event=rng.choice([0.0, 0.01, 0.05]),
            crash=rng.choice([0.0, 0.002, 0.01]),
            fault=rng.choice([0.0, 0.01, 0.05]),
            overlap=rng.choice([0.0, 0.1, 0.5]),
            takes_over=rng.random() < 0.3,
        )


@dataclass(slots=True)
class World:
    """One seed's world; `folder` is on a file system in memory."""

    rng: random.Random
    folder: Path
    odds: Odds = field(init=False)
    clock_ms: int = START_MS
    is_calm: bool = False
    """True once faults, crashes and events have ended."""
    busy: int = 0
    """The number of running commands."""
    trace: deque[str] = field(default_factory=lambda: deque(maxlen=TRACE_MAX))
    logs: dict[tuple[Uuid, int], ModelLog] = field(default_factory=dict)
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    partition_count: int = 1
    scheduler: Scheduler = field(init=False)
    store: ModelStore = field(init=False)
    topic: ModelTopic = field(init=False)
    truth: Truth = field(init=False)
    cluster: ModelCluster = field(init=False)
    broker: ModelBroker = field(init=False)
    deleted: set[tuple[Uuid, int]] = field(default_factory=set)
    _broker_wrote_ms: dict[int, int] = field(default_factory=dict)
    _late: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    _checkpoints: dict[str, str] = field(default_factory=dict)
    _is_stepping: bool = False

    def __post_init__(self) -> None:
        self.odds = Odds.draw(self.rng)
        self.partition_count = self.rng.choice([1, 1, 2])
        self.scheduler = Scheduler(self.rng)
        self.store = ModelStore(self)
        self.topic = ModelTopic(self, self.partition_count, self._appended)
        self.truth = Truth(
            logs=self.logs, configs=self.configs, stored=self._stored, clock_ms=lambda: self.clock_ms
        )
        self.cluster = ModelCluster(self, self.logs, self.configs, self.raise_log_start)
        self.broker = ModelBroker(
            truth=self.truth,
            store=self.store,
            publish=self._publish_as_broker,
            raise_log_start=self.raise_log_start,
            clock_ms=lambda: self.clock_ms,
            new_id=self.new_id,
        )
        for name in ("orders", "clicks")[: self.rng.randint(1, 2)]:
            self._create_topic(name)

    def new_id(self) -> Uuid:
        """Return a random id that does not begin with '-'."""
        return Uuid.from_bytes(bytes([self.rng.randrange(0x80)]) + self.rng.randbytes(15))

    def _create_topic(self, name: str) -> None:
        self.configs[name] = TopicConfig(
            retention_ms=self.rng.choice([-1, HOUR_MS, 3 * DAY_MS, 10 * DAY_MS]),
            retention_bytes=self.rng.choice([-1, -1, 150, 400, 900]),
            remote_storage_enable=True,
        )
        topic_id = self.new_id()
        for number in range(self.rng.randint(1, 2)):
            partition = TopicIdPartition(topic_id, name, number)
            self.logs[partition.key] = ModelLog(partition, self.folder / "log" / f"{name}-{number}")
            for _ in range(self.rng.randint(0, 4)):
                self._produce(self.logs[partition.key])

    # Methods that the store, the topic and the cluster call.

    def step(self, name: str, *, may_wait: bool = True) -> None:
        """Implement `Environment.step`."""
        process = self.scheduler.current
        if process is None or self._is_stepping:
            return
        if process.is_dead:
            raise Crash
        overlaps = may_wait and process.background and not process.is_in_background
        if overlaps and self.rng.random() < self.odds.overlap:
            process.run_background()
        self.clock_ms += self.rng.randint(1, 40)
        if self.is_calm:
            return
        if may_wait:
            self._wait(process)
        if self.rng.random() < self.odds.crash:
            self.note(f"{process.name}: killed at {name}")
            process.is_dead = True
            raise Crash

    def _wait(self, process: Process) -> None:
        """Let the environment and other processes continue while `process` waits."""
        self._is_stepping = True
        try:
            self._checked(self._do_late)
            if self.rng.random() < self.odds.event:
                self._checked(self.happen)
            if process.renew_lease is not None:
                process.renew_lease()
        finally:
            self._is_stepping = False
        if self.rng.random() < self.odds.switch:
            self.scheduler.switch()

    def is_deleted(self, key: str) -> bool:
        """Implement `Environment.is_deleted`."""
        return self.truth.is_deleted(key)

    def has_lost_lease(self) -> bool:
        """Implement `Environment.has_lost_lease`."""
        process = self.scheduler.current
        return process is not None and process.lease is not None and process.lease.is_lost()

    def chosen(self, keys: Sequence[str]) -> Sequence[str]:
        """Implement `Environment.chosen`."""
        return self.rng.sample(keys, self.rng.randint(1, len(keys)))

    def fault(self, *kinds: str, weight: int = 1) -> str | None:
        """Implement `Environment.fault`."""
        if self.is_calm or self.scheduler.current is None:
            return None
        if self.rng.random() >= self.odds.fault * weight:
            return None
        kind = self.rng.choice(kinds)
        self.note(f"fault: {kind}")
        return kind

    def later(self, do: Callable[[], None]) -> None:
        """Implement `Environment.later`: carry it out within five minutes."""
        self._late.append((self.clock_ms + self.rng.randint(1, 5 * MINUTE_MS), do))

    def _do_late(self, *, all_of_them: bool = False) -> None:
        due = [do for at_ms, do in self._late if all_of_them or at_ms <= self.clock_ms]
        self._late = [] if all_of_them else [(at, do) for at, do in self._late if at > self.clock_ms]
        for do in due:
            do()

    def object_put(self, key: str, body: bytes) -> None:
        """Implement `Environment.object_put`."""
        self.note(f"put {key[-60:]}")
        self._checked(lambda: self.truth.object_put(key, body))

    def object_deleted(self, key: str) -> None:
        """Implement `Environment.object_deleted`."""
        self.note(f"delete {key[-60:]}")
        self._checked(lambda: self.truth.object_deleted(key))

    def _stored(self, key: str) -> bytes | None:
        found = self.store.stored.get(key)
        return None if found is None else found.body

    def _appended(self, value: bytes) -> None:
        event = decode(value)
        self.note(f"append {_brief(event)}")
        self._checked(lambda: self._check_event(event))

    def _check_event(self, event: MetadataEvent) -> None:
        number = self._metadata_partition(event)
        if event.broker_id == OWN_BROKER_ID and event.topic_id_partition.key in self.logs:
            if self.cluster.tiers:
                raise InvariantViolation(f"tierctl publishes beside a broker that tiers: {event}")
            since_ms = self.clock_ms - self._broker_wrote_ms.get(number, -FENCE_MS)
            if since_ms < FENCE_MS:
                raise InvariantViolation(f"tierctl publishes {since_ms} ms after a broker: {event}")
        elif event.broker_id != OWN_BROKER_ID:
            self._broker_wrote_ms[number] = self.clock_ms
        self.truth.event(event)

    def _metadata_partition(self, event: MetadataEvent) -> int:
        partition = event.topic_id_partition
        return metadata_partition(partition.topic_id, partition.partition, self.partition_count)

    def _publish_as_broker(self, event: MetadataEvent) -> None:
        self.topic.write(self._metadata_partition(event), encode(event))

    def raise_log_start(self, log: ModelLog, offset: int) -> None:
        """Raise a log start as DeleteRecords does, after checking that every record below may be deleted."""
        self.note(f"log start of {log.partition.topic_partition}: {log.log_start_offset} -> {offset}")
        self._checked(lambda: self.truth.log_start_raised(log.partition.key, offset))
        log.raise_log_start(offset)
        self.write_checkpoints()

    def _checked(self, check: Callable[[], Any]) -> None:
        """Call `check`; a violation ends the simulation and the process that caused it."""
        try:
            check()
        except InvariantViolation as e:
            self.scheduler.violation = self.scheduler.violation or e
            if self.scheduler.current is not None:
                self.scheduler.current.is_dead = True
            raise

    def note(self, text: str) -> None:
        """Record an event, for the report of a failure."""
        process = self.scheduler.current
        self.trace.append(f"{self.clock_ms - START_MS:>10} {process.name if process else '-':8} {text}")

    # Events outside tierctl.

    def happen(self) -> None:
        """Carry out one event of the environment."""
        kind = self.rng.choices(
            ("produce", "elect", "minutes", "hours", "delete records", "broker"), (10, 1, 3, 1, 1, 10)
        )[0]
        log = self.rng.choice(list(self.logs.values())) if self.logs else None
        match kind:
            case "minutes":
                self.clock_ms += self.rng.randint(1, 10) * MINUTE_MS
            case "hours":
                self.clock_ms += self.rng.randint(1, 30) * HOUR_MS
            case "produce" if log is not None:
                self._produce(log)
            case "elect" if log is not None:
                self.note(f"election in {log.partition.topic_partition}")
                log.elect()
                self.cluster.leader = self.rng.choice(BROKERS)
                self.write_checkpoints()
            case "delete records" if log is not None:
                offset = self.rng.randint(log.log_start_offset, log.high_watermark)
                log.requested_start_offset = max(offset, log.requested_start_offset)
                self.raise_log_start(log, offset)
            case "broker" if log is not None and self.cluster.tiers:
                self._broker_task(log)

    def _produce(self, log: ModelLog) -> None:
        for _ in range(self.rng.randint(1, 3)):
            log.append(self.rng.randint(1, 3), self.clock_ms - self.rng.choice([0, 0, MINUTE_MS]))
        if self.rng.random() < 0.8:
            log.high_watermark = log.log_end_offset
        if self.rng.random() < 0.8:
            log.roll()
        self.write_checkpoints()

    def _broker_task(self, log: ModelLog) -> None:
        self.note(f"broker task of {log.partition.topic_partition}")
        is_crash = self.rng.random() < 0.05
        self.broker.copy(log, crash=is_crash)
        if not is_crash:
            self.broker.expire(log, self.configs[log.partition.topic], crash=self.rng.random() < 0.05)
            if self.rng.random() < 0.5:
                self.broker.drop_local(log)

    def between_commands(self) -> None:
        """Let time pass between two commands of a process; brokers change their role while none runs."""
        for _ in range(self.rng.randint(0, 3)):
            self._checked(self.happen)
        if self.busy or self.is_calm:
            return
        if self.odds.takes_over and self.rng.random() < 0.3:
            self.set_tiering(on=not self.cluster.tiers)
        if len(self.logs) > 1 and self.rng.random() < 0.05:
            self._delete_topic(self.rng.choice(sorted({log.partition.topic for log in self.logs.values()})))

    def set_tiering(self, *, on: bool) -> None:
        """Restart the brokers with or without remote.log.storage.system.enable: a new leader epoch."""
        self.note(f"brokers restart with tiering {'on' if on else 'off'}")
        self.cluster.tiers = on
        for log in self.logs.values():
            log.elect()
        self.write_checkpoints()

    def _delete_topic(self, name: str) -> None:
        self.note(f"topic {name} is deleted")
        for key, log in list(self.logs.items()):
            if log.partition.topic == name:
                log.remove()
                del self.logs[key]
                self.deleted.add(key)
        if self.rng.random() < 0.5:
            self._create_topic(name)
        self.write_checkpoints()

    def unmarked_topic_ids(self) -> list[Uuid]:
        """Return the ids of deleted topics that have segments in the tier and are not marked."""
        gone = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        left = {
            key
            for key in self.deleted - self.truth.marked.keys()
            if any(known.state is not gone for known in self.truth.segments_of(key))
        }
        return sorted({topic_id for topic_id, _ in left})

    def calm(self) -> None:
        """End faults, crashes and events; two days later unfinished copies count as dangling."""
        self._checked(lambda: self._do_late(all_of_them=True))
        if self.cluster.tiers:
            self.set_tiering(on=False)
        self.is_calm = True
        self.clock_ms += 2 * DAY_MS

    def write_checkpoints(self) -> None:
        """Write the offset checkpoints of the log directory."""
        # Without tiering a broker writes only log starts inside its first local segment.
        starts = {
            log.partition.topic_partition: log.log_start_offset
            for log in self.logs.values()
            if self.cluster.tiers or log.log_start_offset > log.local_start_offset
        }
        marks = {log.partition.topic_partition: log.high_watermark for log in self.logs.values()}
        ends = {log.partition.topic_partition: log.log_end_offset for log in self.logs.values()}
        for name, offsets in (
            ("log-start-offset-checkpoint", starts),
            ("replication-offset-checkpoint", marks),
            ("recovery-point-offset-checkpoint", ends),
        ):
            lines = [f"{p.topic} {p.partition} {offset}" for p, offset in sorted(offsets.items())]
            text = "\n".join(["0", str(len(lines)), *lines, ""])
            if self._checkpoints.get(name) != text:
                self._checkpoints[name] = text
                (self.folder / "log" / name).write_text(text)


def _brief(event: MetadataEvent) -> str:
    partition = event.topic_id_partition
    where = f"{partition.topic}-{partition.partition}"
    segment_id = getattr(event, "segment_id", "")
    offsets = f" {event.start_offset}-{event.end_offset}" if hasattr(event, "start_offset") else ""
    return f"{event.state.name} {where}{offsets} {segment_id} by {event.broker_id}"
