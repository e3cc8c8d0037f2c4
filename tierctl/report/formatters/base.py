"""What a formatter is given, and what it must be."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.report.terminal import printable
from tierctl.wire.metadata import decode_column
from tierctl.wire.metadata.encode_columns import event_at

_BAD_VALUE_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Consecutive records of one metadata partition as columns of equal length.

    `events` is the result of `tierctl.wire.metadata.decode_column(values)`; its `error` is null if the value
    is good. A value is null for a tombstone, and for bytes without a readable record, which have an `error`.
    `timestamps_ms` is null where it is not known.
    """

    metadata_partition: int
    offsets: pa.Int64Array
    timestamps_ms: pa.Int64Array
    values: pa.BinaryArray
    events: pa.Table

    @classmethod
    def of(
        cls,
        metadata_partition: int,
        offsets: pa.Int64Array,
        timestamps_ms: pa.Int64Array,
        values: pa.BinaryArray,
        errors: Mapping[int, str] | None = None,
    ) -> Self:
        """The records of a column of values; `errors`, by row, are of rows that hold no value to decode."""
        events = decode_column(values)
        if errors:
            index = events.schema.get_field_index("error")
            texts = events.column(index).to_pylist()
            for row, text in errors.items():
                texts[row] = text
            events = events.set_column(index, events.schema.field(index), pa.array(texts, pa.string()))
        return cls(
            metadata_partition=metadata_partition,
            offsets=offsets,
            timestamps_ms=timestamps_ms,
            values=values,
            events=events,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def where(self, mask: pa.BooleanArray) -> "Records":
        """The records whose mask is true."""
        return Records(
            metadata_partition=self.metadata_partition,
            offsets=self.offsets.filter(mask),
            timestamps_ms=self.timestamps_ms.filter(mask),
            values=self.values.filter(mask),
            events=self.events.filter(mask),
        )

    def take(self, rows: pa.Int64Array) -> "Records":
        """The records at these positions, in this order."""
        return Records(
            metadata_partition=self.metadata_partition,
            offsets=self.offsets.take(rows),
            timestamps_ms=self.timestamps_ms.take(rows),
            values=self.values.take(rows),
            events=self.events.take(rows),
        )

    def rows(self) -> Iterator["Record"]:
        """One by one, for a formatter that is in no hurry."""
        columns = zip(
            self.offsets.to_pylist(),
            self.timestamps_ms.to_pylist(),
            self.values.to_pylist(),
            self.events.column("error").to_pylist(),
            strict=True,
        )
        for row, (offset, timestamp_ms, value, error) in enumerate(columns):
            yield Record(
                metadata_partition=self.metadata_partition,
                metadata_offset=offset,
                timestamp_ms=timestamp_ms,
                value=value,
                event=event_at(self.events, row),
                error=error,
            )

    def user_partitions(self) -> frozenset[TopicIdPartition]:
        """Return the user partitions that the records name."""
        events = self.events
        ids, topics, numbers = (as_array(events.column(n)) for n in ("topic_id", "topic", "partition"))
        columns = pa.table([ids.storage, topics.cast(pa.string()), numbers], names=["id", "topic", "number"])
        distinct = columns.group_by(columns.column_names).aggregate([]).drop_null()
        return frozenset(
            TopicIdPartition(Uuid.from_bytes(row["id"]), row["topic"], row["number"])
            for row in distinct.to_pylist()
        )

    @property
    def bad_count(self) -> int:
        """How many of them could not be read."""
        return len(self) - int(self.events.column("error").null_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; `value` and `event` are None for a tombstone, `error` says why a bad one has no event."""

    metadata_partition: int
    metadata_offset: int
    timestamp_ms: int | None
    value: bytes | None
    event: MetadataEvent | None
    error: str | None

    @property
    def printable_error(self) -> str:
        """The error on one line."""
        return printable(self.error or "")

    @property
    def value_hex(self) -> str:
        """The value's bytes, cut when they are many: a bad record prints one line, not a megabyte."""
        value = self.value or b""
        rest = len(value) - _BAD_VALUE_BYTES_MAX
        return value[:_BAD_VALUE_BYTES_MAX].hex() + (f"...({rest} more bytes)" if rest > 0 else "")


class Formatter(Protocol):
    """Turns records into lines of text."""

    def lines(self, records: Records) -> Iterable[str]:
        """One line a record, in their order, without the line's end.

        Bad records and tombstones get a line too. Text that came from a record goes through
        `tierctl.report.printable`: topic names are data, and a terminal obeys what it is sent.
        """
        ...


class FormatterFactory(Protocol):
    """What an entry point of the group `tierctl.formatters` names."""

    def __call__(self, properties: Mapping[str, str]) -> Formatter:
        """A formatter with these settings; UsageError for one it doesn't know."""
        ...


def json_text(value: Any) -> str:
    """A value as ASCII JSON."""
    return json.dumps(value)


def as_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_true(mask: Any) -> pa.BooleanArray:
    """A mask whose unknowns are false."""
    return as_array(pc.fill_null(mask, False))
