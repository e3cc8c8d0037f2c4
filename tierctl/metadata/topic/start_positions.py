"""The offsets at which a console consumer of the metadata topic starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.errors import NotFoundError, UsageError
from tierctl.metadata.topic.base import METADATA_TOPIC

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    """The consumed partitions (empty: all) and their start: an offset, EARLIEST or LATEST."""

    partitions: Sequence[int] = ()
    start: int | str = LATEST

    @classmethod
    def of(cls, partitions: Sequence[int], *, offset: str | None, from_beginning: bool) -> Self:
        """Return the positions that Kafka's console consumer takes for these flags.

        Raises UsageError for flags that contradict each other and for an `offset` that is none.
        """
        if offset is not None and not partitions:
            raise UsageError(
                "--offset needs --partition", hint="name the partition to which the offset belongs"
            )
        if offset is not None and from_beginning:
            raise UsageError("--from-beginning and --offset exclude each other", hint="give one of them")
        if offset is None:
            return cls(partitions=partitions, start=EARLIEST if from_beginning else LATEST)
        return cls(partitions=partitions, start=_parse_start(offset))

    def resolve(self, beginning: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset to consume of each partition; `beginning` and `end` are the topic's.

        An offset outside the log is moved to its nearest end, so that no record is skipped. Raises
        NotFoundError for a partition that the topic does not have.
        """
        for number in self.partitions:
            if number not in end:
                raise NotFoundError(f"{METADATA_TOPIC} has no partition {number}: it has {len(end)}")
        return {n: self._position(beginning[n], end[n]) for n in self.partitions or sorted(end)}

    def _position(self, beginning: int, end: int) -> int:
        if isinstance(self.start, int):
            return min(max(self.start, beginning), end)
        return beginning if self.start == EARLIEST else end


def _parse_start(text: str) -> int | str:
    if text.casefold() in {EARLIEST, LATEST}:
        return text.casefold()
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--offset {text!r}", hint="an offset of 0 or more, earliest or latest")
