"""How far a stream has read the metadata topic, and which unread offsets can no longer be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

EARLIEST, LATEST = -2, -1


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset to read of each metadata partition, and the id of their topic."""

    topic_id: str | None
    next_offsets: Mapping[int, int]

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Return the offsets from Spark's checkpoint."""
        return cls(offset["topic_id"], {int(number): at for number, at in offset["next_offsets"].items()})

    def to_json(self) -> dict[str, Any]:
        """Return {"topic_id": id or null, "next_offsets": {"0": offset, ...}}."""
        ordered = sorted(self.next_offsets.items())
        return {"topic_id": self.topic_id, "next_offsets": {str(number): at for number, at in ordered}}

    def is_of(self, topic: TopicNow) -> bool:
        """Return True if the offsets belong to `topic`; offsets of a recreated topic begin at 0 again."""
        return None in {self.topic_id, topic.topic_id} or self.topic_id == topic.topic_id


@dataclass(frozen=True, slots=True)
class TopicNow:
    """The current topic: per metadata partition the first offset, and the offset after the last."""

    topic_id: str | None
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    def beginning(self, requested: Mapping[int, int], otherwise: int) -> StreamOffsets:
        """Return where a stream begins.

        `requested` has an offset, EARLIEST or LATEST for each partition; `otherwise` is for the others.
        """
        begins = {}
        for number, end in self.ends.items():
            at = requested.get(number, otherwise)
            begins[number] = {EARLIEST: self.begins[number], LATEST: end}.get(at, at)
        return StreamOffsets(self.topic_id, begins)

    def end(
        self, start: StreamOffsets, *, most: int | None = None, up_to: StreamOffsets | None = None
    ) -> StreamOffsets:
        """Return the end of a batch that begins at `start`: at most `most` offsets, none beyond `up_to`.

        A partition that no longer exists keeps its offset.
        """
        if not start.is_of(self):
            start = StreamOffsets(self.topic_id, {})
        ends = dict(self.ends)
        if up_to is not None and up_to.is_of(self):
            ends = {n: min(end, up_to.next_offsets.get(n, 0)) for n, end in ends.items()}
        if most is not None:
            ends = _limited(start.next_offsets, ends, most)
        return StreamOffsets(self.topic_id, {**start.next_offsets, **ends})

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> dict[int, tuple[int, int]]:
        """Return the readable offsets [start, end) of each partition, without empty ranges."""
        if not end.is_of(self):
            return {}
        begun = start.next_offsets if start.is_of(self) else {}
        cut = {
            n: (max(begun.get(n, 0), self.begins[n]), min(at, self.ends[n]))
            for n, at in end.next_offsets.items()
            if n in self.ends
        }
        return {n: (low, high) for n, (low, high) in cut.items() if low < high}

    def lost(self, start: StreamOffsets, end: StreamOffsets) -> Iterator[str]:
        """Yield a text for each partition of which offsets between `start` and `end` are lost."""
        for offsets in (start, end):
            if not offsets.is_of(self):
                yield f"the topic has id {self.topic_id}, offsets are of {offsets.topic_id}"
                return
        for number, high in sorted(end.next_offsets.items()):
            low = start.next_offsets.get(number, 0)
            if low == high:
                continue
            if number not in self.ends:
                yield f"partition {number} is not there"
            elif low < self.begins[number]:
                yield f"partition {number} begins at {self.begins[number]}, {low} comes next"
            elif max(low, high) > self.ends[number]:
                yield f"partition {number} ends at {self.ends[number]}, {max(low, high)} was there"


def _limited(starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
    """Return ends that cover at most `most` offsets, shared equally among the partitions.

    A partition with fewer unread offsets leaves its share to the others.
    """
    waiting = sorted((max(0, end - starts.get(number, 0)), number) for number, end in ends.items())
    limited = dict(ends)
    for place, (count, number) in enumerate(waiting):
        share = min(count, most // (len(waiting) - place))
        if share < count:
            limited[number] = starts.get(number, 0) + share
        most -= share
    return limited
