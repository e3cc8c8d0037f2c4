"""Reading many metadata partitions at once: in pieces that need nothing of each other, put together again.

All events of a user partition are in one metadata partition, so pieces share nothing. Where the number of
metadata partitions was changed they do: then those that share a user partition are one piece.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tierctl.metadata.state_dir.cache_ledger import CacheLedger
from tierctl.metadata.state_dir.directory import StateDirectory
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.topic_fold import TopicFold
from tierctl.state.tier import ANOMALIES_KEPT, TierState

EVENTS_AT_ONCE_MAX = 4_000_000
"""What comes back is held until all of it is there: some 45 bytes an event, 90 where nothing was finished."""
KEPT_EVENTS_AT_ONCE_MAX = 1_000_000
"""With a state directory the events come back as well: some 200 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The offsets [begin, end) that a metadata partition has."""

    metadata_partition: int
    begin: int
    end: int

    def left(self, state: TierState) -> int:
        """How many of them are yet to be read."""
        return max(self.end - max(self.begin, state.read.get(self.metadata_partition, 0)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPiece:
    """Metadata partitions to read, ascending, and what is known of them so far: picklable.

    `state` has nothing of any other metadata partition, and no anomalies. `ledger` is None without a state
    directory.
    """

    spans: tuple[Span, ...]
    partition_count: int
    state: TierState
    ledger: CacheLedger | None = None

    @property
    def left(self) -> int:
        """How many offsets there are to read."""
        return sum(span.left(self.state) for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPiece:
    """A piece read to its end: its state, with what is newly quarantined only, and its ledger."""

    metadata_partitions: tuple[int, ...]
    state: TierState
    ledger: CacheLedger | None


class BulkFold(Protocol):
    """Runs `fold_piece` on a copy of every piece, somewhere."""

    def __call__(self, pieces: Sequence[FoldPiece]) -> Iterator[FoldedPiece]:
        """What became of the pieces, in their order; raises what `fold_piece` raised."""
        ...


def fold_piece(topic: MetadataTopic, piece: FoldPiece) -> FoldedPiece:
    """Read a piece to its end; raises as the topic does."""
    known = len(piece.state.quarantined)
    folding = TopicFold(piece.state, piece.partition_count, piece.ledger)
    for span in piece.spans:
        folding.catch_up(topic, span.metadata_partition, span.begin, span.end)
    del piece.state.quarantined[:known]
    return FoldedPiece(
        metadata_partitions=tuple(span.metadata_partition for span in piece.spans),
        state=piece.state,
        ledger=piece.ledger,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkReading:
    """Reads a topic on into `state` by `bulk`, as reading one partition after the other would.

    What is kept for the next run goes to `keeper`.
    """

    topic: MetadataTopic
    state: TierState
    bulk: BulkFold
    keeper: StateDirectory | None = None

    def catch_up(self, spans: Iterable[Span]) -> None:
        """Read all of them to their ends; raises as the topic does."""
        by_number = {span.metadata_partition: span for span in spans}
        for wave in self._waves(by_number.values()):
            groups = [(span.metadata_partition,) for span in wave]
            folded = self._folded(groups, by_number)
            again = [group for group in united(groups, folded, self.state) if len(group) > 1]
            if again:
                done = {number for group in again for number in group}
                folded = [piece for piece in folded if piece.metadata_partitions[0] not in done]
                folded += self._folded(again, by_number)
            absorb(self.state, folded)
            for piece in folded:
                if self.keeper is not None and piece.ledger is not None:
                    self.keeper.adopt(piece.ledger)

    def _waves(self, spans: Iterable[Span]) -> Iterator[list[Span]]:
        most = EVENTS_AT_ONCE_MAX if self.keeper is None else KEPT_EVENTS_AT_ONCE_MAX
        wave: list[Span] = []
        events = 0
        for span in spans:
            events += span.left(self.state)
            if wave and events > most:
                yield wave
                wave, events = [], span.left(self.state)
            wave.append(span)
        yield wave

    def _folded(self, groups: Sequence[tuple[int, ...]], spans: dict[int, Span]) -> list[FoldedPiece]:
        pieces = [self._piece(group, spans) for group in groups]
        # Where nothing is left to read there may yet be something wrong, which needs no executor to see.
        here = [fold_piece(self.topic, piece) for piece in pieces if not piece.left]
        return [*here, *self.bulk([piece for piece in pieces if piece.left])]

    def _piece(self, group: tuple[int, ...], spans: dict[int, Span]) -> FoldPiece:
        return FoldPiece(
            spans=tuple(spans[number] for number in group),
            partition_count=self.topic.partition_count,
            state=part_of(self.state, group),
            ledger=None if self.keeper is None else self.keeper.ledger_of(group),
        )


def part_of(state: TierState, metadata_partitions: Iterable[int]) -> TierState:
    """What a state knows of some metadata partitions, without anomalies."""
    chosen = frozenset(metadata_partitions)
    return TierState(
        partitions={key: p for key, p in state.partitions.items() if p.metadata_partition in chosen},
        read={p: offset for p, offset in state.read.items() if p in chosen},
        quarantined=[q for q in state.quarantined if q.metadata_partition in chosen],
    )


def united(
    groups: Sequence[tuple[int, ...]], folded: Iterable[FoldedPiece], state: TierState
) -> list[tuple[int, ...]]:
    """`groups`, of which those that share a user partition, with each other or with `state`, became one."""
    leader = {number: group[0] for group in groups for number in group}

    def find(number: int) -> int:
        while leader.setdefault(number, number) != number:
            number = leader[number]
        return number

    owners = {key: part.metadata_partition for key, part in state.partitions.items()}
    for piece in folded:
        for key in piece.state.partitions:
            own = piece.metadata_partitions[0]
            pair = find(own), find(owners.setdefault(key, own))
            leader[max(pair)] = min(pair)
    members: dict[int, list[int]] = {}
    for number in sorted(leader):
        members.setdefault(find(number), []).append(number)
    return [tuple(found) for found in members.values()]


def absorb(state: TierState, folded: Iterable[FoldedPiece]) -> None:
    """Make `state` what reading one metadata partition after the other would have made of it."""
    # A few of very many anomalies are kept: those of the lowest partitions, as if read one by one.
    parts = [piece.state for piece in folded]
    anomalies = sorted((a for part in parts for a in part.anomalies), key=lambda a: a.metadata_partition)
    quarantined = sorted((q for part in parts for q in part.quarantined), key=lambda q: q.metadata_partition)
    state.quarantined += quarantined
    state.anomalies += anomalies[: ANOMALIES_KEPT - len(state.anomalies)]
    state.anomaly_count += sum(part.anomaly_count for part in parts)
    for part in parts:
        state.partitions |= part.partitions
        state.read |= part.read


def spans_of(begins: dict[int, int], ends: dict[int, int]) -> list[Span]:
    """What the metadata partitions have, ascending."""
    return [Span(metadata_partition=p, begin=begins[p], end=ends[p]) for p in sorted(ends)]


__all__ = [
    "BulkFold",
    "BulkReading",
    "FoldPiece",
    "FoldedPiece",
    "Span",
    "fold_piece",
    "spans_of",
]
