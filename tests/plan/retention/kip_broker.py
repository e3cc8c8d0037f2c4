"""A broker that tiers one partition, written from KIP-405's text and Kafka's documented behaviour alone.

Nothing here uses tierctl's decisions: each offset is compared with the epoch in which it was written.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.invariants import epochs_of

DAY_MS = 24 * 60 * 60 * 1000
Epochs = list[tuple[int, int]]
"""(epoch, start offset), ascending: a leader-epoch checkpoint."""


class State(Enum):
    """The state of a remote segment."""

    STARTED = "COPY_SEGMENT_STARTED"
    FINISHED = "COPY_SEGMENT_FINISHED"
    DELETING = "DELETE_SEGMENT_STARTED"
    DELETED = "DELETE_SEGMENT_FINISHED"


@dataclass(slots=True)
class Segment:
    """A segment of the local log; `end` is its last offset."""

    start: int
    end: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(slots=True)
class Remote:
    """A copied segment; `epochs` begin at its start. `begun_ms` is when its copy began."""

    number: int
    start: int
    end: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: Epochs
    state: State
    begun_ms: int


@dataclass(slots=True)
class KipBroker:
    """The log and the tier of a partition: `rolled` and `active` are local.

    `checkpoint` begins at the log start, `lineage` has all leader epochs from offset 0 on. `found` has the
    number of the segment that brokers find for an epoch that starts at an offset; `unlisted` has the numbers
    and epochs of segments that they no longer list.
    """

    retention_ms: int = -1
    retention_bytes: int = -1
    checkpoint: Epochs = field(default_factory=lambda: [(0, 0)])
    lineage: Epochs = field(default_factory=lambda: [(0, 0)])
    rolled: list[Segment] = field(default_factory=list)
    active: Segment = field(default_factory=lambda: Segment(0, -1, 0, -1))
    remote: list[Remote] = field(default_factory=list)
    events: list[tuple[int, State]] = field(default_factory=list)
    log_start: int = 0
    found: dict[tuple[int, int], int] = field(default_factory=dict)
    unlisted: set[tuple[int, int]] = field(default_factory=set)

    @property
    def log_end(self) -> int:
        return self.active.end + 1

    # Changes of the log.

    def produce(self, count: int, timestamp_ms: int, record_bytes: int) -> None:
        """Append records to the active segment."""
        self.active.end += count
        self.active.size_bytes += count * record_bytes
        self.active.max_timestamp_ms = max(self.active.max_timestamp_ms, timestamp_ms)

    def roll(self) -> None:
        """Close the active segment if it has records."""
        if self.active.end >= self.active.start:
            self.rolled.append(self.active)
            self.active = Segment(self.log_end, self.active.end, 0, -1)

    def copy(self, *, fails: bool = False, begun_ms: int = 1) -> None:
        """RLMCopyTask: copy the first segment above the highest copied offset; `fails` leaves it STARTED."""
        copied = self.highest_copied()
        from_offset = max(copied + 1, self.log_start)
        for segment in self.rolled:
            if segment.end >= from_offset:
                epochs = epochs_of(self.lineage, segment.start, segment.end)
                number = len(self.remote)
                remote = Remote(
                    number,
                    segment.start,
                    segment.end,
                    segment.size_bytes,
                    segment.max_timestamp_ms,
                    epochs,
                    State.STARTED,
                    begun_ms,
                )
                self.remote.append(remote)
                self.events.append((number, State.STARTED))
                if not fails:
                    self._find_from_now_on(remote)
                    self._move(remote, State.FINISHED)
                return

    def _find_from_now_on(self, remote: Remote) -> None:
        """Let brokers find a copied segment in place of those that it replaces (RemoteLogLeaderEpochState).

        A segment that begins an epoch at the same offset or later is replaced but listed if nothing copied in
        the epoch ends higher. Otherwise one that begins it at the same offset is not listed any more.
        """
        for epoch, start in remote.epochs:
            end = epoch_end(remote, epoch)
            assert end is not None
            if self._highest_of(epoch) <= end:
                later = [place for place in self.found if place[0] == epoch and place[1] >= start]
                for place in later:
                    del self.found[place]
            elif (epoch, start) in self.found:
                self.unlisted.add((self.found[epoch, start], epoch))
            self.found[epoch, start] = remote.number

    def _is_listed(self, remote: Remote) -> bool:
        known = {epoch for epoch, _ in self.checkpoint}
        return any(
            epoch in known and (remote.number, epoch) not in self.unlisted for epoch, _ in remote.epochs
        )

    def _move(self, remote: Remote, state: State) -> None:
        if state is State.DELETING:
            self.found = {place: number for place, number in self.found.items() if number != remote.number}
        remote.state = state
        self.events.append((remote.number, state))

    def drop_local(self) -> None:
        """Local retention: remove the local segments that are in the tier."""
        copied = self.highest_copied()
        self.rolled = [segment for segment in self.rolled if segment.end > copied]

    def delete_records(self, offset: int) -> None:
        """Raise the log start (DeleteRecords), and cut the checkpoint from the start."""
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.checkpoint = epochs_of(self.checkpoint, offset, self.log_end)
        self.rolled = [segment for segment in self.rolled if segment.end >= offset]

    def elect(self) -> None:
        """A clean election, or a restart: the next epoch begins at the log end."""
        for entries in (self.checkpoint, self.lineage):
            epoch = entries[-1][0] + 1
            entries[:] = [(e, start) for e, start in entries if start < self.log_end]
            entries.append((epoch, self.log_end))

    def elect_uncleanly(self, offset: int) -> None:
        """Elect a leader whose log ends at `offset`: later offsets, even copied ones, leave its lineage."""
        if offset < max(self.log_start, self._local_start) or offset > self.log_end:
            return
        kept = [s for s in self.rolled if s.start < offset] + (
            [self.active] if self.active.start < offset <= self.active.end + 1 else []
        )
        if kept:
            last = kept.pop()
            count = last.end - last.start + 1
            size = last.size_bytes * (offset - last.start) // count
            self.rolled = kept
            self.active = Segment(last.start, offset - 1, size, last.max_timestamp_ms)
        else:
            self.rolled, self.active = [], Segment(offset, offset - 1, 0, -1)
        self.elect()

    @property
    def _local_start(self) -> int:
        return self.rolled[0].start if self.rolled else self.active.start

    def begin_expiring(self, count: int, now_ms: int) -> None:
        """Begin an expiration task that ends after DELETE_SEGMENT_STARTED of `count` segments."""
        expired = [r for r in self.remote if r.number in self.expired(now_ms) and r.state is State.FINISHED]
        expired = [r for r in sorted(expired, key=lambda r: r.start) if self.is_of_lineage(r)][:count]
        if expired:
            self.delete_records(max(r.end for r in expired) + 1)
        for remote in expired:
            self._move(remote, State.DELETING)

    # Decisions about the tier according to the KIP's text.

    def highest_copied(self) -> int:
        return highest_copied(self.checkpoint, self.log_end, self._highest_of)

    def _highest_of(self, epoch: int) -> int:
        """Return the highest offset ever copied in an epoch; -1 if there is none."""
        highs = [epoch_end(r, epoch) for r in self.remote if r.state is not State.STARTED]
        return max((high for high in highs if high is not None), default=-1)

    def is_of_lineage(self, remote: Remote) -> bool:
        """Return whether each offset was written in the epoch that this log states for it."""
        if remote.end >= self.log_end:
            return False
        first_epoch, first_start = self.checkpoint[0]
        if remote.end < first_start:
            return remote.epochs[-1][0] == first_epoch
        return all(
            epoch_at(remote.epochs, offset) == epoch_at(self.checkpoint, offset)
            for offset in range(max(remote.start, first_start), remote.end + 1)
        )

    def expired(self, now_ms: int) -> set[int]:
        """Return the numbers of the segments that RLMExpirationTask deletes as of `now_ms`.

        It repeats deletions that were begun. In the lineage, it deletes from the oldest segment on: segments
        below the log start, older than retention.ms, or wholly inside the bytes above retention.bytes; the
        first other segment ends this. Then it deletes segments below the log start whose epochs are all older
        than the checkpoint's first. Unlike in Kafka, bytes below the log start do not count toward
        retention.bytes. If two segments have the same offsets, only one counts, and the shorter one is
        deleted with the longer one. Segments that brokers do not list neither count nor expire; they are
        deleted below the log start. Unfinished copies are deleted below the log start, unless they may still
        run: see `has_ended`.
        """
        gone = {r.number for r in self.remote if r.state is State.DELETING}
        finished = [r for r in self.remote if r.state is State.FINISHED]
        own = sorted((r for r in finished if self.is_of_lineage(r)), key=lambda r: (r.start, -r.end))
        live = without_repeated(r for r in own if r.end >= self.log_start and self._is_listed(r))
        excess = self._excess_bytes(live)
        log_start = self.log_start
        for remote in live:
            cutoff_ms = now_ms - self.retention_ms
            too_old = self.retention_ms >= 0 and 0 < remote.max_timestamp_ms < cutoff_ms
            if not too_old and not 0 < excess >= remote.size_bytes:
                break
            excess = max(0, excess - remote.size_bytes)
            log_start = remote.end + 1
        gone |= {r.number for r in own if r.end < log_start}
        first = self.checkpoint[0][0]
        unreferenced = (r for r in finished if all(epoch < first for epoch, _ in r.epochs))
        gone |= {r.number for r in unreferenced if r.end < log_start}
        first = epochs_of(self.checkpoint, log_start, self.log_end)[0][0]
        begun = (r for r in self.remote if r.state is State.STARTED and r.end < log_start)
        cut_off = (r for r in begun if all(epoch <= first for epoch, _ in r.epochs))
        return gone | {r.number for r in cut_off if self.has_ended(r, now_ms)}

    def has_ended(self, begun: Remote, now_ms: int) -> bool:
        """Return whether an unfinished copy certainly ended: a day has passed, or its leader continued.

        The leader, or the next one, has continued if it copied the offset at which the segment ends, or a
        later one, in the segment's last epoch or in a later epoch of the log.
        """
        last = begun.epochs[-1][0]
        known = {last} | {epoch for epoch, _ in self.checkpoint if epoch > last}
        since = [r for r in self.remote[begun.number + 1 :] if r.state is not State.STARTED]
        ends = [epoch_end(r, epoch) for r in since for epoch in known]
        return now_ms - begun.begun_ms > DAY_MS or any(end is not None and end >= begun.end for end in ends)

    def _excess_bytes(self, live: Iterable[Remote]) -> int:
        copied = self.highest_copied()
        if self.retention_bytes < 0 or copied < 0:
            return 0
        local = [*self.rolled, *([self.active] if self.active.size_bytes else [])]
        local_only = sum(s.size_bytes for s in local if s.start > copied)
        return max(0, sum(r.size_bytes for r in live) + local_only - self.retention_bytes)


def without_repeated(ordered: Iterable[Remote]) -> list[Remote]:
    """Return the segments, by start and longest first, without those whose offsets an earlier one has.

    A leader copies a segment again if it was shorter in a former leader's log.
    """
    kept: list[Remote] = []
    for remote in ordered:
        if not kept or remote.end > kept[-1].end:
            kept.append(remote)
    return kept


def highest_copied(
    checkpoint: Sequence[tuple[int, int]], log_end: int, highest_of: Callable[[int], int]
) -> int:
    """Return the highest copied offset: walk the leader epochs back from the latest; -1 if unknown.

    `highest_of` returns the highest offset that was copied in an epoch; -1 if there is none.
    """
    end = log_end
    for epoch, start in reversed(checkpoint):
        highest = highest_of(epoch)
        if highest >= 0:
            return min(highest, end - 1)
        end = start
    return -1


def epoch_at(epochs: Epochs, offset: int) -> int | None:
    """Return the epoch in which an offset was written; None if it is before the first epoch."""
    before = [epoch for epoch, start in epochs if start <= offset]
    return before[-1] if before else None


def epoch_end(remote: Remote, epoch: int) -> int | None:
    """Return the last offset of `epoch` in a segment; None if the segment has none."""
    numbers = [number for number, _ in remote.epochs]
    if epoch not in numbers:
        return None
    at = numbers.index(epoch)
    return remote.epochs[at + 1][1] - 1 if at + 1 < len(numbers) else remote.end
