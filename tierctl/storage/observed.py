"""Report what is read of the segments in a tier."""

import io
from typing import BinaryIO, Protocol


class FetchObserver(Protocol):
    """Receives what is read of segments, from several threads."""

    def begun(self, topic: str) -> None:
        """A read of a segment of `topic` begins."""

    def read(self, topic: str, size_bytes: int) -> None:
        """So many bytes of a segment of `topic` arrived."""

    def failed(self, topic: str) -> None:
        """A read of a segment of `topic` failed."""


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
