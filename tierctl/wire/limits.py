"""Bounds on what a few bytes of input may cost in memory and time.

What exceeds a bound is reported where it is, and reading goes on after it. All bounds are far above what
Kafka and its plugins write with settings that work. An operator whose data exceed one multiplies all of them
by --limit-factor; the bounds in force are those of the process.
"""

from dataclasses import dataclass

PIECE_BYTES = 1 << 20
"""A decompressor is read in pieces of this size, so that its output is counted before it is kept."""

RECORD_HEADERS_COMMON = 64
"""Headers that every record of a batch may have."""

METADATA_RECORD_BYTES = 256
"""The memory that a record of the metadata topic takes besides its bytes."""

LIMIT_FACTOR_MAX = 31
"""The highest factor: with 32, one batch could have 2 GiB, more than Kafka's and Arrow's 32-bit sizes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds, multiplied by `factor`."""

    factor: int = 1

    @property
    def batch_bytes(self) -> int:
        """The decompressed records of one batch; Kafka's message.max.bytes is 1 MiB by default."""
        return self.factor * (64 << 20)

    @property
    def text_bytes(self) -> int:
        """Key, value and headers of one record that is printed; each byte may become six characters."""
        return self.factor * (8 << 20)

    @property
    def gzip_members(self) -> int:
        """Gzip members of one batch; producers write one."""
        return self.factor * 10_000

    @property
    def record_headers(self) -> int:
        """Headers of one record."""
        return self.factor << 16

    @property
    def batch_headers(self) -> int:
        """Headers of one batch, in addition to RECORD_HEADERS_COMMON for each of its records."""
        return self.factor << 20

    @property
    def wrapped_messages(self) -> int:
        """Messages in one compressed message of the formats 0 and 1; producers wrote up to some thousands."""
        return self.factor << 18

    @property
    def metadata_batch_bytes(self) -> int:
        """The decompressed records of one batch of the metadata topic, which has one event."""
        return self.factor * (16 << 20)

    @property
    def metadata_window_bytes(self) -> int:
        """The decompressed records of the batches in one window of 2 MiB of the metadata topic."""
        return self.factor * (64 << 20)

    @property
    def chunks(self) -> int:
        """Chunks of one log in a manifest of Aiven's plugin, whose chunks have 4 MiB by default."""
        return self.factor << 17

    @property
    def chunk_bytes(self) -> int:
        """One chunk that must be decompressed or decrypted as a whole."""
        return self.factor * (64 << 20)


_in_force = Limits()


def limits() -> Limits:
    """Return the limits of this process."""
    return _in_force


def use_limit_factor(factor: int) -> None:
    """Multiply the limits of this process by `factor`, in place of an earlier factor."""
    global _in_force  # noqa: PLW0603
    _in_force = Limits(factor)


def at_most(count: int, of: str) -> str:
    """Return the text of a limit for errors; `of` is the noun that is counted."""
    return f"at most {count} {of} (--limit-factor raises this limit)"
