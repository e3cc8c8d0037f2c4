"""Find the brokers that wrote events after a time, on executors: one input per metadata partition."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from tierctl.metadata.recent_writers import recent_writers
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.executors.transport import Executors


class _Span(NamedTuple):
    number: int
    begin: int
    end: int


def newest_events(
    executors: Executors,
    location: TopicLocation,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    since_ms: int,
) -> Iterator[dict[int, int]]:
    """Yield the result of `recent_writers` for each metadata partition; raises as `Executors.run`."""
    spans = [_Span(number, begins[number], end) for number, end in sorted(ends.items())]
    yield from executors.run(partial(_writers, location, uuid4().hex, since_ms), spans)


def _writers(location: TopicLocation, job: str, since_ms: int, span: _Span) -> dict[int, int]:
    return recent_writers(shared_topic(location, job), span.number, span.begin, span.end, since_ms)
