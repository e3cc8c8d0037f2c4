"""The filter of `tierctl format`, applied to columns of records."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.model import Uuid
from tierctl.model.selection import admits_topic, is_glob
from tierctl.report.formatters.records import Records, as_array, is_true


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The accepted values of each field; an empty collection and None accept all. Bounds are inclusive.

    `topics` has names and globs. Times are event times. A tombstone has no event, so it passes only if no
    field of events is restricted. An unreadable record passes if its metadata partition and offset do,
    because its event is unknown.
    """

    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    topic_ids: Collection[Uuid] = ()
    segment_ids: Collection[Uuid] = ()
    states: Collection[str] = ()
    types: Collection[str] = ()
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    metadata_partitions: Collection[int] = ()
    from_offset: int | None = None
    until: int | None = None

    @property
    def restricts_partitions(self) -> bool:
        """Whether only records of some user partitions are shown."""
        return bool(self.topics or self.partitions or self.topic_ids)

    @property
    def restricts_events(self) -> bool:
        """Whether only some events of the offsets that are read are shown."""
        bounds = (self.from_time_ms, self.to_time_ms)
        is_bounded = any(bound is not None for bound in bounds)
        return self.restricts_partitions or is_bounded or bool(self.segment_ids or self.states or self.types)

    def of(self, records: Records) -> Records:
        """Return the records that the filter accepts."""
        if self.metadata_partitions and records.metadata_partition not in self.metadata_partitions:
            return records.where(pa.array([False] * len(records)))
        if self.from_offset is not None:
            records = records.where(pc.greater_equal(records.offsets, self.from_offset))
        if self.until is not None:
            records = records.where(pc.less(records.offsets, self.until))
        masks = list(self._masks(records))
        if not masks:
            return records
        is_bad = pc.is_valid(as_array(records.events.column("error")))
        wanted = reduce(pc.and_, map(is_true, masks))
        return records.where(is_true(pc.or_(wanted, is_bad)))

    def _masks(self, records: Records) -> Iterator[pa.Array]:
        events = records.events
        topics = self.topics
        if any(map(is_glob, topics)):
            present = as_array(events.column("topic")).unique().to_pylist()
            topics = [topic for topic in present if topic is not None and admits_topic(self.topics, topic)]
            if not topics:
                yield pa.array([False] * len(records))
        for name, texts in (("topic", topics), ("state", self.states), ("type", self.types)):
            if texts:
                column = as_array(events.column(name)).cast(pa.string())
                yield pc.is_in(column, pa.array(sorted(texts), pa.string()))
        if self.partitions:
            column = as_array(events.column("partition"))
            yield pc.is_in(column, pa.array(sorted(self.partitions), column.type))
        for name, ids in (("topic_id", self.topic_ids), ("segment_id", self.segment_ids)):
            if ids:
                column = as_array(events.column(name)).storage
                yield pc.is_in(column, pa.array([each.bytes for each in ids], column.type))
        time_ms = as_array(events.column("event_timestamp_ms"))
        if self.from_time_ms is not None:
            yield pc.greater_equal(time_ms, self.from_time_ms)
        if self.to_time_ms is not None:
            yield pc.less_equal(time_ms, self.to_time_ms)
