"""How far a stream has read the metadata topic, and what can be missing between there and here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

EARLIEST, LATEST = -2, -1


@dataclass(frozen=True, slots=True)
class Progress:
    """The next offset to read of each metadata partition, and whose they are."""

    topic_id: str | None
    next_offsets: Mapping[int, int]

    @classmethod
    def of_json(cls, offset: Mapping[str, Any]) -> Self:
        """From what Spark keeps in its checkpoint."""
        return cls(offset["topic_id"], {int(number): at for number, at in offset["next_offsets"].items()})

    def to_json(self) -> dict[str, Any]:
        """{"topic_id": id or null, "next_offsets": {"0": offset, ...}}."""
        ordered = sorted(self.next_offsets.items())
        return {"topic_id": self.topic_id, "next_offsets": {str(number): at for number, at in ordered}}

    def is_of(self, topic: "TopicNow") -> bool:
        """Whether its offsets are this topic's: one made anew counts from 0."""
        return None in {self.topic_id, topic.topic_id} or self.topic_id == topic.topic_id


@dataclass(frozen=True, slots=True)
class TopicNow:
    """The topic as it is: first offsets and the ones after the last."""

    topic_id: str | None
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    def beginning(self, asked: Mapping[int, int], otherwise: int) -> Progress:
        """Where a stream begins that is asked to: an offset, EARLIEST or LATEST for each partition."""
        begins = {}
        for number, end in self.ends.items():
            at = asked.get(number, otherwise)
            begins[number] = {EARLIEST: self.begins[number], LATEST: end}.get(at, at)
        return Progress(self.topic_id, begins)

    def end(self, start: Progress, *, most: int | None = None, up_to: Progress | None = None) -> Progress:
        """Where a batch from `start` on ends: at most so many offsets, and none after `up_to`.

        A partition that is not there now stays where it was.
        """
        if not start.is_of(self):
            start = Progress(self.topic_id, {})
        ends = dict(self.ends)
        if up_to is not None and up_to.is_of(self):
            ends = {n: min(end, up_to.next_offsets.get(n, 0)) for n, end in ends.items()}
        if most is not None:
            ends = _limited(start.next_offsets, ends, most)
        return Progress(self.topic_id, {**start.next_offsets, **ends})

    def ranges(self, start: Progress, end: Progress) -> dict[int, tuple[int, int]]:
        """[start, end) of what can be read between, for each partition that has something."""
        if not end.is_of(self):
            return {}
        begun = start.next_offsets if start.is_of(self) else {}
        cut = {
            n: (max(begun.get(n, 0), self.begins[n]), min(at, self.ends[n]))
            for n, at in end.next_offsets.items()
            if n in self.ends
        }
        return {n: (low, high) for n, (low, high) in cut.items() if low < high}

    def lost(self, start: Progress, end: Progress) -> Iterator[str]:
        """What of the offsets between can't be read any more, in words."""
        for progress in (start, end):
            if not progress.is_of(self):
                yield f"the topic has id {self.topic_id}, offsets are of {progress.topic_id}"
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
    """Ends that cover at most so many offsets: alike in each partition, those with little to read first."""
    waiting = sorted((max(0, end - starts.get(number, 0)), number) for number, end in ends.items())
    limited = dict(ends)
    for place, (count, number) in enumerate(waiting):
        taken = min(count, most // (len(waiting) - place))
        if taken < count:
            limited[number] = starts.get(number, 0) + taken
        most -= taken
    return limited
