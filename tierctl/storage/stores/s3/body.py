"""Stream ranges of files as request bodies, and check the bodies of responses."""

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tierctl.errors import RemoteStorageError, TierctlError, TransferStopped
from tierctl.model import HashedFile
from tierctl.storage.stores.base import CompleteRange, changed, unreadable
from tierctl.storage.stores.s3.errors import translated
from tierctl.storage.throttle import UNLIMITED, Direction, Throttle

_BLOCK_BYTES = 1 << 20
THROUGHPUT_MIN_BYTES_PER_S = 16 << 10
GRACE_S = 60.0
"""Time after which a read below the minimum throughput fails; a slow stream has no timeout of its own."""


class SendingStopped(BaseException):
    """Stop an upload because the run was told to stop; no Exception, since boto3 would repeat the request."""


class FileRange(io.RawIOBase):
    """The bytes of a file from `start` on, at most `size_bytes`; one block is in memory at a time.

    While `is_sending`, no block is returned before `throttle` allows its transfer; when the client reads the
    range only to sign it, nothing is throttled. `seek` ends the sending. `read` returns a whole block
    whatever size is requested: http.client requests 16 KiB, and a thread that sends such small blocks waits
    longer for the interpreter lock than for the network.
    """

    def __init__(self, file: HashedFile, start: int, size_bytes: int, throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self.is_sending = False
        self._file = file
        self._start = start
        self._size_bytes = min(size_bytes, file.size_bytes - start)
        self._position = 0
        self._block = memoryview(bytearray(min(_BLOCK_BYTES, self._size_bytes)))
        self._fd = -1
        try:
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise unreadable(file.path, e) from e
        self.failure: RemoteStorageError | None = None

    def __len__(self) -> int:
        return self._size_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Implement `io.IOBase.seek`: the client seeks to the beginning to send a failed request again."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = begin + offset
        self.is_sending = False
        return self._position

    def tell(self) -> int:
        """Return the position in the range."""
        return self._position

    def read(self, _size_bytes: int = -1) -> memoryview:
        """Return the next block, empty at the end; the next call overwrites it.

        Raise StoreWriteFailed if the file can't be read or ends early, and keep the error in `failure`,
        because the client of S3 raises errors of its own.
        """
        block = self._block[: self._size_bytes - self._position]
        if self.is_sending and block:
            block = block[: self._throttle.part_bytes(Direction.COPY, len(block))]
            try:
                self._throttle.wait(Direction.COPY, len(block))
            except TransferStopped as e:
                self.failure = e
                raise SendingStopped from e
        try:
            count = os.preadv(self._fd, [block], self._start + self._position) if block else 0
        except OSError as e:
            self.failure = unreadable(self._file.path, e)
            raise self.failure from e
        if block and not count:
            self.failure = changed(self._file.path)
            raise self.failure
        self._position += count
        return block[:count]

    def close(self) -> None:
        """Close the file."""
        if not self.closed and self._fd >= 0:
            os.close(self._fd)
        super().close()


@contextmanager
def file_range(
    file: HashedFile, start: int, size_bytes: int, throttle: Throttle = UNLIMITED
) -> Iterator[FileRange]:
    """Open a range of a file as a request body; at the end of the context, raise its `failure`, if any."""
    with FileRange(file, start, size_bytes, throttle) as body:
        try:
            yield body
        except (TierctlError, SendingStopped) as e:
            if body.failure is None:
                raise
            raise body.failure from e


class ResponseBody(CompleteRange):
    """Check that a response body is complete and not slower than the minimum throughput."""

    def __init__(
        self,
        body: Any,
        name: str,
        size_bytes: int,
        throttle: Throttle = UNLIMITED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, size_bytes, throttle)
        self._body = body
        self._clock = clock
        self._begun_s = clock()

    def after_wait(self, waited_s: float) -> None:
        """Implement `CompleteRange.after_wait`: exclude the wait from the throughput measurement."""
        self._begun_s += waited_s

    def take(self, size_bytes: int) -> bytes:
        """Implement `CompleteRange.take`."""
        with translated(f"reading {self._name}"):
            data: bytes = self._body.read(size_bytes)
        self._require_throughput(len(data))
        return data

    def _require_throughput(self, new_bytes: int) -> None:
        elapsed_s = self._clock() - self._begun_s
        done_bytes = self._size_bytes - self._left_bytes + new_bytes
        if elapsed_s > GRACE_S and done_bytes < elapsed_s * THROUGHPUT_MIN_BYTES_PER_S:
            raise RemoteStorageError(
                f"{self._name}: {done_bytes} bytes in {elapsed_s:.0f} s is too slow",
                hint=f"at least {THROUGHPUT_MIN_BYTES_PER_S} bytes a second are expected",
            )

    def close(self) -> None:
        """Release the connection."""
        if not self.closed:
            self._body.close()
        super().close()
