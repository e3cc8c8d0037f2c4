"""Cutting work into waves: what is published, done and confirmed together."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive pieces of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
