"""Sum up the copies and deletions of each day on executors: each task reads whole metadata partitions."""

from collections.abc import Mapping
from functools import partial
from uuid import uuid4

from tierctl.metadata.daily_changes import DailyChanges, read_daily_changes
from tierctl.model import Selection
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.fold import LEAST_EVENTS
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.executors.transport import Executors


def daily_changes(
    executors: Executors, location: TopicLocation, end_offsets: Mapping[int, int], selection: Selection
) -> DailyChanges:
    """Return the result of `read_daily_changes`, read with one input per metadata partition."""
    found = DailyChanges()
    inputs = [(number, end) for number, end in sorted(end_offsets.items()) if end]
    function = partial(_changes_in, location, uuid4().hex, selection)
    for part in executors.run(function, inputs, cost=_events, min_task_cost=LEAST_EVENTS):
        found.absorb(part)
    return found


def _changes_in(
    location: TopicLocation, job: str, selection: Selection, span: tuple[int, int]
) -> DailyChanges:
    number, end = span
    found = read_daily_changes(shared_topic(location, job), {number: end}, selection.__contains__)
    # The result is sent to the driver as a plain dictionary, without the class of `found.days`.
    return DailyChanges(days=dict(found.days), unknown_segments=found.unknown_segments)


def _events(span: tuple[int, int]) -> int:
    return span[1]
