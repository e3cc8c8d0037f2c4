"""The records that a formatter receives, as columns, and the protocol of formatters."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.report.terminal import printable
from tierctl.wire.metadata.decode_columns import KnownLayouts, decode_column
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
        *,
        known: KnownLayouts | None = None,
    ) -> Self:
        """Return the records of a column of values.

        `errors` are the messages, by row, of rows without a value that could be decoded. `known` are the
        layouts that `decode_column` learned from earlier records.
        """
        events = decode_column(values, known)
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

    def slice(self, start: int, count: int) -> Self:
        """Return at most `count` records from row `start` on, without a copy."""
        return replace(
            self,
            offsets=self.offsets.slice(start, count),
            timestamps_ms=self.timestamps_ms.slice(start, count),
            values=self.values.slice(start, count),
            events=self.events.slice(start, count),
        )

    def where(self, mask: pa.BooleanArray) -> "Records":
        """Return the records whose `mask` is true."""
        return Records(
            metadata_partition=self.metadata_partition,
            offsets=self.offsets.filter(mask),
            timestamps_ms=self.timestamps_ms.filter(mask),
            values=self.values.filter(mask),
            events=self.events.filter(mask),
        )

    def take(self, rows: pa.Int64Array) -> "Records":
        """Return the records with the indexes `rows`, in this order."""
        return Records(
            metadata_partition=self.metadata_partition,
            offsets=self.offsets.take(rows),
            timestamps_ms=self.timestamps_ms.take(rows),
            values=self.values.take(rows),
            events=self.events.take(rows),
        )

    def rows(self) -> Iterator["Record"]:
        """Yield the records one by one; slow, for formatters that do not work on columns."""
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
        # A page has too few rows for several threads to be faster.
        distinct = columns.group_by(columns.column_names, use_threads=False).aggregate([]).drop_null()
        return frozenset(
            TopicIdPartition(Uuid.from_bytes(row["id"]), row["topic"], row["number"])
            for row in distinct.to_pylist()
        )

    @property
    def bad_count(self) -> int:
        """The number of records that could not be read."""
        return len(self) - int(self.events.column("error").null_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRecords:
    """Consecutive records of one metadata partition whose values are not decoded yet.

    `errors` are the messages, by row, of rows without a value that could be decoded.
    """

    metadata_partition: int
    offsets: pa.Int64Array
    timestamps_ms: pa.Int64Array
    values: pa.BinaryArray
    errors: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, count: int) -> Self:
        """Return at most `count` records from row `start` on, without a copy."""
        return replace(
            self,
            offsets=self.offsets.slice(start, count),
            timestamps_ms=self.timestamps_ms.slice(start, count),
            values=self.values.slice(start, count),
            errors={row - start: error for row, error in self.errors.items() if 0 <= row - start < count},
        )

    def decoded(self, known: KnownLayouts) -> Records:
        """Return the records with their events."""
        columns = (self.offsets, self.timestamps_ms, self.values, self.errors)
        return Records.of(self.metadata_partition, *columns, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record: a tombstone has neither `value` nor `event`; an unreadable one has `error`, no `event`."""

    metadata_partition: int
    metadata_offset: int
    timestamp_ms: int | None
    value: bytes | None
    event: MetadataEvent | None
    error: str | None

    @property
    def printable_error(self) -> str:
        """The error as printable text on one line."""
        return printable(self.error or "")

    @property
    def value_hex(self) -> str:
        """The first bytes of the value as hex, so that a large unreadable record prints one short line."""
        value = self.value or b""
        rest = len(value) - _BAD_VALUE_BYTES_MAX
        return value[:_BAD_VALUE_BYTES_MAX].hex() + (f"...({rest} more bytes)" if rest > 0 else "")


class Formatter(Protocol):
    """Formats records as lines of text."""

    def lines(self, records: Records) -> Iterable[str]:
        """Return one line per record, in their order, without the newline.

        Unreadable records and tombstones have a line, too. Text from a record must be escaped with
        `tierctl.report.printable`, because a terminal executes control characters.
        """
        ...


def json_text(value: Any) -> str:
    """Return `value` as JSON in ASCII."""
    return json.dumps(value)


def as_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return `column` as one array: the chunks of a ChunkedArray are combined."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_true(mask: Any) -> pa.BooleanArray:
    """Return `mask` with false instead of null."""
    return as_array(pc.fill_null(mask, False))
