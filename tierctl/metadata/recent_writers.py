"""Who wrote to a metadata partition lately."""

from collections.abc import Collection

from tierctl.metadata.topic.base import MetadataTopic
from tierctl.wire.metadata import decode_column

_WINDOW_RECORDS = 256


def recent_writers(
    topic: MetadataTopic, partition: int, begin: int, end_offset: int, since_ms: int
) -> dict[int, int]:
    """Broker ids of events later than `since_ms`, by event or by record time, with the time of the last.

    Reads back from `end_offset`, ever further, up to the first record that is older, or `begin`, where the
    partition does. Records that can't be read say nothing here.
    """
    length = _WINDOW_RECORDS
    while True:
        start = max(begin, end_offset - length)
        found, oldest_ms = _writers(topic, partition, start, end_offset)
        if start == begin or (oldest_ms is not None and oldest_ms < since_ms):
            return {broker: at_ms for broker, at_ms in found.items() if at_ms > since_ms}
        length *= 8


def _writers(
    topic: MetadataTopic, partition: int, start_offset: int, end_offset: int
) -> tuple[dict[int, int], int | None]:
    """The last time of each broker id in a range, and when its first record was written."""
    latest: dict[int, int] = {}
    oldest_ms: int | None = None
    for chunk in topic.read(partition, start_offset, end_offset):
        times = chunk.timestamps_ms.tolist()
        if times and oldest_ms is None:
            oldest_ms = times[0]
        table = decode_column(chunk.values)
        columns = (table.column(name).to_pylist() for name in ("broker_id", "event_timestamp_ms"))
        for written_ms, broker_id, event_ms in zip(times, *columns, strict=True):
            if broker_id is not None:
                at_ms = max(written_ms, event_ms or 0)
                latest[broker_id] = max(at_ms, latest.get(broker_id, at_ms))
    return latest, oldest_ms


def others(writers: dict[int, int], own: Collection[int]) -> dict[int, int]:
    """Without those that are tierctl itself."""
    return {broker: at_ms for broker, at_ms in writers.items() if broker not in own}
