"""`tierctl format --bootstrap-server`: Kafka's console consumer, its flags and what they mean there.

It starts at the end of the topic, or where --from-beginning or --offset say, and waits for more until
--max-messages were printed, nothing came for --timeout-ms, or somebody stops it. --partition is the topic's
own; without it all are consumed. `--topic __remote_log_metadata` may be given, as the stock tool needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tierctl.errors import NotFoundError, UsageError

METADATA_TOPIC = "__remote_log_metadata"
EARLIEST, LATEST = "earliest", "latest"
_ONLY_HERE = {"offset": "--offset", "from_beginning": "--from-beginning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """What is consumed; `start` is an offset, EARLIEST or LATEST, `partitions` may be empty for all."""

    bootstrap_server: str
    partitions: Sequence[int]
    start: int | str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the command's options; UsageError for those that contradict each other."""
        partitions = (*(given["partition"] or ()), *(given["metadata_partition"] or ()))
        offset = given["offset"]
        if offset is not None and not partitions:
            raise UsageError("--offset needs --partition", hint="offsets are counted in each partition")
        if offset is not None and given["from_beginning"]:
            raise UsageError("--from-beginning and --offset are two starts", hint="give one of them")
        start: int | str = EARLIEST if given["from_beginning"] else LATEST
        if offset is not None:
            start = _start(offset)
        return cls(bootstrap_server=given["bootstrap_server"], partitions=partitions, start=start)

    @property
    def uri(self) -> str:
        """The metadata topic as --metadata names it."""
        return f"kafka://{self.bootstrap_server}"

    def positions(self, beginning: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
        """Where each partition is consumed from; NotFoundError for a partition that the topic hasn't."""
        for number in self.partitions:
            if number not in end:
                raise NotFoundError(f"{METADATA_TOPIC} has no partition {number}: it has {len(end)}")
        return {n: self._position(beginning[n], end[n]) for n in self.partitions or sorted(end)}

    def _position(self, beginning: int, end: int) -> int:
        """Never where nothing is: as a consumer whose offset is out of range, but it skips no record."""
        match self.start:
            case int(offset):
                return min(max(offset, beginning), end)
            case _:
                return beginning if self.start == EARLIEST else end


def _start(text: str) -> int | str:
    if text.casefold() in {EARLIEST, LATEST}:
        return text.casefold()
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--offset {text!r}", hint="an offset of 0 or more, earliest or latest")


def without_consumer(given: Mapping[str, Any]) -> None:
    """UsageError for a flag that says nothing when no cluster is consumed."""
    for name, option in _ONLY_HERE.items():
        if given[name]:
            raise UsageError(f"{option} needs --bootstrap-server", hint="others have --from-offset N")
