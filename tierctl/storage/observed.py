"""Report reads of segments in a tier, and the transfers of one process to another process."""

import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, Protocol, Self

from tierctl.storage.throttle import Direction, Waits


class FetchObserver(Protocol):
    """Receives reports of reads of segments, from several threads."""

    def begun(self, topic: str) -> None:
        """A read of a segment of `topic` begins."""

    def read(self, topic: str, size_bytes: int) -> None:
        """Receive the number of bytes of a segment of `topic` that arrived."""

    def failed(self, topic: str) -> None:
        """A read of a segment of `topic` failed."""


class Fetches(NamedTuple):
    """The reads of a topic's segments: how many began, the bytes that arrived, and how many failed."""

    requests: int = 0
    size_bytes: int = 0
    errors: int = 0

    def __add__(self, other: object) -> Self:
        """Return the sums of both."""
        if not isinstance(other, Fetches):
            return NotImplemented
        return type(self)(*(own + more for own, more in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The reads by topic and the waits by direction of one process; picklable.

    `process` names the process: its waits never overlap, while those of two processes may.
    """

    process: str
    fetches: Mapping[str, Fetches]
    waits: Mapping[Direction, Waits]


@dataclass(slots=True)
class FetchCounts:
    """Implement FetchObserver: count the reads of this process until they are taken."""

    _counts: dict[str, Fetches] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begun(self, topic: str) -> None:
        """Implement `FetchObserver.begun`."""
        self._add(topic, Fetches(requests=1))

    def read(self, topic: str, size_bytes: int) -> None:
        """Implement `FetchObserver.read`."""
        self._add(topic, Fetches(size_bytes=size_bytes))

    def failed(self, topic: str) -> None:
        """Implement `FetchObserver.failed`."""
        self._add(topic, Fetches(errors=1))

    def take(self) -> dict[str, Fetches]:
        """Return the counts by topic since the last call."""
        with self._lock:
            found, self._counts = self._counts, {}
            return found

    def _add(self, topic: str, more: Fetches) -> None:
        with self._lock:
            self._counts[topic] = self._counts.get(topic, Fetches()) + more


class ObservedStream(io.RawIOBase):
    """A stream of a segment whose bytes are reported to `observer`; closing it closes `inner`."""

    def __init__(self, inner: BinaryIO, topic: str, observer: FetchObserver) -> None:
        self._inner = inner
        self._topic = topic
        self._observer = observer

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read into `buffer`; raise the errors of `inner`, which are reported, too."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        try:
            found = self._inner.read(len(view))
        except Exception:
            self._observer.failed(self._topic)
            raise
        view[: len(found)] = found
        self._observer.read(self._topic, len(found))
        return len(found)

    def close(self) -> None:
        """Close both streams."""
        if not self.closed:
            self._inner.close()
        super().close()
