"""Check that consumers keep their positions over a leader election (KIP-320)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.expected import ExpectedLog
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import MetadataError, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.record_consumer import HeldPositions, NotServedError, RecordConsumer, ServedRecord
from tierctl.model import IsolationLevel, TopicPartition
from tierctl.model.progress import Progress
from tierctl.model.times import duration_text

_CONSUMERS_MAX = 4
"""Maximum number of consumers; each one holds one position per partition, each in another epoch."""
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class _Position:
    """The offset where a consumer begins, and the offsets of the two records that it must receive."""

    offset: int
    first: int
    following: int


def check_election(
    results: Results, logs: Sequence[ExpectedLog], cluster: Cluster, progress: Progress, *, timeout_ms: int
) -> None:
    """Hold positions in several epochs of each partition until its leader epoch rises; then read on.

    A message asks the operator to trigger the election. Partitions whose epoch does not rise within
    `timeout_ms` are not checked.
    """
    positions = {log.name: list(_positions(log)) for log in logs}
    for log in logs:
        if not positions[log.name]:
            reason = "it has no epoch with two records in the tier, so no position can be held"
            results.not_checked(RestoreCheck.ELECTION, log.name, reason)
    held = {name: each for name, each in positions.items() if each}
    if not held:
        return
    try:
        with ExitStack() as opened:
            _Holding(results, cluster, progress, held).run(opened, timeout_ms)
    except TierctlError as e:
        for name in held:
            results.prevented(RestoreCheck.ELECTION, name, e)


def _positions(log: ExpectedLog) -> Iterator[_Position]:
    """Yield a position in each of up to `_CONSUMERS_MAX` epochs, the oldest and the newest among them."""
    starts = log.epoch_starts
    count = min(len(starts), _CONSUMERS_MAX)
    chosen = {round(number * (len(starts) - 1) / max(count - 1, 1)) for number in range(count)}
    for index in sorted(chosen):
        following = list(islice(log.reader().read(starts[index], log.end_offset), 2))
        if len(following) == 2:
            yield _Position(starts[index], following[0].offset, following[1].offset)


class _Holding:
    """The consumers, and the positions that each of them holds."""

    def __init__(
        self,
        results: Results,
        cluster: Cluster,
        progress: Progress,
        positions: Mapping[TopicPartition, Sequence[_Position]],
    ) -> None:
        self._results = results
        self._cluster = cluster
        self._progress = progress
        self._positions = positions
        self._topics = {name.topic for name in positions}
        self._faults: dict[TopicPartition, list[str]] = {name: [] for name in positions}

    def run(self, opened: ExitStack, timeout_ms: int) -> None:
        before = self._cluster.current_epochs(self._topics)
        consumers = []
        for number in range(max(map(len, self._positions.values()))):
            mine = {name: each[number] for name, each in self._positions.items() if number < len(each)}
            consumer = self._cluster.consumer(IsolationLevel.READ_UNCOMMITTED)
            opened.callback(consumer.close)
            consumers.append((consumer, mine))
            self._note(consumer.hold({name: each.offset for name, each in mine.items()}), mine, "first")
        self._progress.say(
            f"consumers hold {sum(len(mine) for _, mine in consumers)} positions: now elect new leaders of "
            f"{', '.join(sorted(self._topics))}: restart their brokers one by "
            f"one, or move leaders with kafka-leader-election. Waiting up to {duration_text(timeout_ms)}"
        )
        after = self._await_election(before, [consumer for consumer, _ in consumers], timeout_ms)
        for consumer, mine in consumers:
            elected = {name: each for name, each in mine.items() if name in after and not self._faults[name]}
            if elected:
                self._note(consumer.resume(elected.keys()), elected, "following")
        self._conclude(before, after)

    def _await_election(
        self, before: Mapping[TopicPartition, int], consumers: Sequence[RecordConsumer], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the new epochs of the partitions that elected a leader; poll the consumers meanwhile."""
        deadline = time.monotonic() + timeout_ms / 1000
        after: dict[TopicPartition, int] = {}
        while self._positions.keys() - after.keys() and time.monotonic() < deadline:
            for consumer in consumers:
                consumer.poll()
            try:
                now = self._cluster.current_epochs(self._topics)
            except TierctlError as e:
                # Brokers that restart do not answer.
                self._progress.detail(f"asking for leader epochs: {e.message}")
                continue
            # If there was no leader before, the epoch of the first elected one proves no election.
            after |= {
                name: now[name] for name in self._positions if now.get(name, -1) > before.get(name, 1 << 31)
            }
            time.sleep(_PAUSE_S)
        return after

    def _note(self, found: HeldPositions, wanted: Mapping[TopicPartition, _Position], which: str) -> None:
        """Record a fault for each partition whose record is missing or is not the expected one."""
        for name, position in wanted.items():
            record = found.get(name)
            expected = position.first if which == "first" else position.following
            fault = _fault(record, expected)
            if fault is not None:
                held = (
                    "" if which == "first" else f", after the election, from position {position.first + 1} on"
                )
                self._faults[name].append(f"{fault}{held}")

    def _conclude(self, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> None:
        for name, faults in self._faults.items():
            if name not in after and not faults:
                epoch = before.get(name, "unknown")
                error = MetadataError(
                    "no new leader was elected while the consumers waited: the leader epoch is still "
                    f"{epoch}",
                    hint="restart the brokers, or move the leaders, within --election-timeout",
                )
                self._results.prevented(RestoreCheck.ELECTION, name, error)
                continue
            count = len(self._positions[name])
            self._results.decided(
                RestoreCheck.ELECTION,
                name,
                faults,
                f"{count} consumers read on from their positions after leader epoch {before.get(name)} "
                f"became {after.get(name)}",
            )


def _fault(record: ServedRecord | NotServedError | None, expected: int) -> str | None:
    if isinstance(record, NotServedError):
        return record.message
    found = None if record is None else record.offset
    return None if found == expected else f"offset {found} came, expected {expected}"
