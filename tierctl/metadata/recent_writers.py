"""Finds the brokers that wrote to a metadata partition recently."""

from collections.abc import Collection

from tierctl.metadata.topic.base import MetadataTopic
from tierctl.wire.metadata.decode_columns import decode_column

_WINDOW_RECORDS = 256


def recent_writers(
    topic: MetadataTopic, partition: int, begin: int, end_offset: int, since_ms: int
) -> dict[int, int]:
    """Return the broker ids of events later than `since_ms`, each with the time of its last event.

    The time of an event is the later one of its own and its record's timestamp. The partition is read in
    growing windows back from `end_offset` to the first record that is older, or to `begin`, the partition's
    first offset. Records that cannot be decoded are skipped.
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
    """Return the last time of each broker id in a range of offsets, and the timestamp of its first record."""
    latest: dict[int, int] = {}
    oldest_ms: int | None = None
    for chunk in topic.read(partition, start_offset, end_offset):
        times = chunk.timestamps_ms.tolist()
        if times and oldest_ms is None:
            oldest_ms = times[0]
        table = decode_column(chunk.values, columns=("broker_id", "event_timestamp_ms"))
        columns = (column.to_pylist() for column in table.columns)
        for written_ms, broker_id, event_ms in zip(times, *columns, strict=True):
            if broker_id is not None:
                at_ms = max(written_ms, event_ms or 0)
                latest[broker_id] = max(at_ms, latest.get(broker_id, at_ms))
    return latest, oldest_ms


def others(writers: dict[int, int], own: Collection[int]) -> dict[int, int]:
    """Return `writers` without the broker ids `own`, which tierctl itself uses."""
    return {broker: at_ms for broker, at_ms in writers.items() if broker not in own}
