"""Records of the metadata topic, or of one of its segment files, for a formatter."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tierctl.errors import NotFoundError, UsageError
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.model.selection import ranges_text
from tierctl.report.formatters.chunk_records import from_chunk
from tierctl.report.formatters.records import EncodedRecords
from tierctl.state.tier import MissingEvents

RecordRound = Sequence[Iterator[EncodedRecords]]
"""One stream of the records available now for each partition, file or pipe."""

_OFFSET_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecords:
    """The records of some partitions of the metadata topic (`partitions` empty: of all).

    `start_offset` and `end_offset` (exclusive, None: no bound) bound the metadata offsets.
    """

    topic: MetadataTopic
    partitions: Collection[int] = ()
    start_offset: int = 0
    end_offset: int | None = None

    def bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first offset, and the offset after the last, of each partition of the topic."""
        return self.topic.beginning_offsets(), self.topic.end_offsets()

    def round(self, positions: dict[int, int]) -> list[Iterator[EncodedRecords]]:
        """Return a stream for each partition; it starts at `positions` and advances them as it is read."""
        return self.streams(self.spans(positions), positions)

    def streams(
        self, spans: Mapping[int, tuple[int, int]], positions: dict[int, int]
    ) -> list[Iterator[EncodedRecords]]:
        """Return the streams of `round` over the ranges `spans`."""
        return [self._stream(n, *span, positions) for n, span in spans.items()]

    def spans(self, positions: Collection[int] = ()) -> dict[int, tuple[int, int]]:
        """Return the range [start, end) of offsets of each partition.

        The first offsets of the topic are not looked up if `positions` has all partitions. Raise
        NotFoundError for a partition that the topic does not have.
        """
        ends = self.topic.end_offsets()
        if unknown := sorted(set(self.partitions) - ends.keys()):
            raise NotFoundError(
                f"the metadata topic has no partition {unknown[0]}",
                hint=f"known partitions: {ranges_text(sorted(ends))}",
            )
        begins = {} if ends.keys() <= set(positions) else self.topic.beginning_offsets()
        return {
            n: (
                max(self.start_offset, begins.get(n, 0)),
                ends[n] if self.end_offset is None else min(ends[n], self.end_offset),
            )
            for n in sorted(ends)
            if not self.partitions or n in self.partitions
        }

    def missing(self) -> list[MissingEvents]:
        """Return the events from `start_offset` on that the topic's retention has deleted."""
        return [
            MissingEvents(number, 0, begin)
            for number, begin in sorted(self.topic.beginning_offsets().items())
            if begin > self.start_offset and (not self.partitions or number in self.partitions)
        ]

    def _stream(
        self, number: int, start: int, end: int, positions: dict[int, int]
    ) -> Iterator[EncodedRecords]:
        for chunk in self.topic.read(number, positions.get(number, start), end):
            positions[number] = chunk.next_offset
            yield from_chunk(chunk)


def from_segment(path: Path, on_torn: Callable[[str], None]) -> Iterator[EncodedRecords]:
    """Yield the records of one segment file; `on_torn` receives a message if its last write is unfinished.

    The name of the file's folder shows the metadata partition; it is 0 in any other folder.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="a folder is read with --metadata")
    with path.open("rb"):
        # A file that cannot be opened raises OSError, as the files of --input do.
        location = TopicLocation(uri=path.absolute().as_uri())
    with closing(open_topic(location, on_torn=on_torn)) as topic:
        for number in topic.end_offsets():
            # All records of a damaged file are printed, whatever offsets they have.
            for chunk in topic.read(number, 0, _OFFSET_END):
                yield from_chunk(chunk)


def follow_rounds(
    topic: TopicRecords, positions: dict[int, int], *, poll_interval_s: float, timeout_s: float | None
) -> Iterator[RecordRound]:
    """Yield the records available now from `positions` on, then round by round those appended later.

    It ends after `timeout_s` without a new record; None waits without end.
    """
    timer = _PollTimer(poll_interval_s=poll_interval_s, timeout_s=timeout_s)
    yield topic.round(positions)
    while timer.wait(positions):
        yield topic.round(positions)


class _PollTimer:
    """Sleeps between rounds until no partition has advanced for `timeout_s`; None: without end."""

    def __init__(self, *, poll_interval_s: float, timeout_s: float | None) -> None:
        self._poll_interval_s = poll_interval_s
        self._timeout_s = timeout_s
        self._last_positions: dict[int, int] | None = None
        self._advanced_at_s = 0.0

    def wait(self, positions: Mapping[int, int]) -> bool:
        """Sleep and return True; return False at once if the time is over.

        `positions` are the next offsets of the partitions that were read.
        """
        now_s = time.monotonic()
        if self._last_positions != positions:
            self._last_positions, self._advanced_at_s = dict(positions), now_s
        left_s = math.inf if self._timeout_s is None else self._advanced_at_s + self._timeout_s - now_s
        if left_s <= 0:
            return False
        time.sleep(min(self._poll_interval_s, left_s))
        return True
