"""The contract of formatters: the records that they receive, as columns, and the lines that they return.

`load` loads a formatter by its name among the entry points of the group `tierctl.formatters`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import TierctlError, UsageError
from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.model.selection import counted
from tierctl.report.table import printable, shortened
from tierctl.wire.metadata.decode import decode_values
from tierctl.wire.metadata.values import decode

_BAD_VALUE_BYTES_MAX = 1024


@dataclass(frozen=True, kw_only=True)
class Records:
    """Consecutive records of one metadata partition as columns of equal length.

    A value is null for a tombstone, and for bytes without a readable record, which have an error.
    `timestamps_ms` is null where it is not known. `errors` are the messages, by row, of rows without a value
    that could be decoded, and `decoded` are the events if another column had them already.
    """

    metadata_partition: int
    offsets: pa.Int64Array
    timestamps_ms: pa.Int64Array
    values: pa.BinaryArray
    errors: Mapping[int, str] = field(default_factory=dict)
    decoded: pa.Table | None = None

    @cached_property
    def events(self) -> pa.Table:
        """The result of `DecodedEvents.table`; its `error` is null if a value is good."""
        if self.decoded is not None:
            return self.decoded
        events = decode_values(self.values).table()
        if self.errors:
            index = events.schema.get_field_index("error")
            texts = events.column(index).to_pylist()
            for row, text in self.errors.items():
                texts[row] = text
            events = events.set_column(index, events.schema.field(index), pa.array(texts, pa.string()))
        return events

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, count: int) -> Self:
        """Return at most `count` records from row `start` on, without a copy."""
        errors = {row - start: error for row, error in self.errors.items() if 0 <= row - start < count}
        return self._with(lambda column: column.slice(start, count), errors)

    def where(self, mask: pa.BooleanArray) -> Self:
        """Return the records whose `mask` is true, with their events."""
        _ = self.events
        return self._with(lambda column: column.filter(mask))

    def take(self, rows: pa.Int64Array) -> Self:
        """Return the records with the indexes `rows`, in this order, with their events."""
        _ = self.events
        return self._with(lambda column: column.take(rows))

    def _with(self, change: Callable[[Any], Any], errors: Mapping[int, str] | None = None) -> Self:
        """Return the records with each column changed; the events too, if they were decoded."""
        events = self.__dict__.get("events")
        return replace(
            self,
            offsets=change(self.offsets),
            timestamps_ms=change(self.timestamps_ms),
            values=change(self.values),
            errors=errors or {},
            decoded=None if events is None else change(events),
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
        for offset, timestamp_ms, value, error in columns:
            yield Record(
                metadata_partition=self.metadata_partition,
                metadata_offset=offset,
                timestamp_ms=timestamp_ms,
                value=value,
                event=None if value is None or error is not None else decode(value),
                error=error,
            )

    def user_partitions(self) -> frozenset[TopicIdPartition]:
        """Return the user partitions that the records name."""
        events = self.events
        ids, topics, numbers = (as_array(events.column(n)) for n in ("topic_id", "topic", "partition"))
        columns = pa.table([ids, topics.cast(pa.string()), numbers], names=["id", "topic", "number"])
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


class TextLines:
    """Lines of text; iterating yields each line without its newline.

    `text` is the UTF-8 of the lines, each with a newline after it. `offsets` holds, as 32-bit numbers, the
    position of each line in `text`, and the position after the last line.
    """

    __slots__ = ("_offsets", "_text")

    def __init__(self, text: bytes | memoryview, offsets: bytes | memoryview) -> None:
        self._text = memoryview(text)
        self._offsets = np.frombuffer(offsets, np.int32)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Self:
        """Return `lines`, which have no newline at their ends."""
        if isinstance(lines, cls):
            return lines
        # UTF-8 can't encode a surrogate, so it is written as a backslash escape.
        encoded = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines)
        return cls.of_array(pa.array(encoded, pa.binary()))

    @classmethod
    def of_array(cls, lines: pa.StringArray | pa.BinaryArray) -> Self:
        """Return the lines of an Arrow array without nulls; each ends with a newline."""
        _, offsets, text = lines.buffers()
        own = memoryview(offsets or bytes(4))[4 * lines.offset :][: 4 * (len(lines) + 1)]
        return cls(memoryview(text or b""), own)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        for start, end in pairwise(self._offsets.tolist()):
            yield str(self._text[start : end - 1], "utf-8")

    def __reduce__(self) -> tuple[type["TextLines"], tuple[bytes, bytes]]:
        return TextLines, (bytes(self.text), (self._offsets - self._offsets[0]).tobytes())

    @property
    def text(self) -> memoryview:
        """Return the UTF-8 of all lines, each with its newline."""
        return self._text[self._offsets[0] : self._offsets[-1]]

    def first(self, count: int) -> Self:
        """Return the first `count` lines."""
        return type(self)(self._text, self._offsets[: count + 1].data.cast("B"))


GROUP = "tierctl.formatters"


def names() -> list[str]:
    """Return the names of all styles: those of tierctl and those of installed plugins."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load(style: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter of the name `style` with these properties.

    Raise UsageError if no package or several packages have a formatter of this name, or if the plugin
    fails; the message names the package.
    """
    found = {(point.value, _package(point)): point for point in entry_points(group=GROUP, name=style)}
    if not found:
        raise UsageError(f"no style {style!r}", hint=f"there are {', '.join(names()) or 'none'}")
    if len(found) > 1:
        owners = ", ".join(sorted(package for _, package in found))
        raise UsageError(f"style {style!r} is claimed by {owners}", hint="uninstall all but one")
    point = next(iter(found.values()))
    try:
        formatter: Formatter = point.load()(properties)
    except TierctlError:
        raise
    # A plugin is foreign code: any exception that it raises means that the plugin is broken.
    except Exception as e:
        raise _broken(style, point, f"can't be loaded: {type(e).__name__}: {e}") from e
    if not callable(getattr(formatter, "lines", None)):
        raise _broken(style, point, "is no formatter: it has no lines(records)")
    return formatter if point.value.startswith("tierctl.") else _OfPackage(formatter, style, point)


@dataclass(frozen=True, slots=True)
class _OfPackage:
    """A formatter of another package, whose lines are checked."""

    formatter: Formatter
    style: str
    point: EntryPoint

    def lines(self, records: Records) -> Iterable[str]:
        """Implement `Formatter.lines`; raise UsageError if the package's code fails or lines are wrong."""
        try:
            lines = list(self.formatter.lines(records))
        except TierctlError:
            raise
        except Exception as e:
            raise _broken(self.style, self.point, f"failed: {type(e).__name__}: {e}") from e
        if len(lines) != len(records):
            found = f"made {counted(len(lines), 'line')} of {counted(len(records), 'record')}"
            raise _broken(self.style, self.point, found)
        for line in lines:
            if not isinstance(line, str) or "\n" in line:
                found = f"made {shortened(repr(line), 80)}: expected text without a line break"
                raise _broken(self.style, self.point, found)
        return lines


def _broken(style: str, point: EntryPoint, what: str) -> UsageError:
    return UsageError(
        f"style {style!r} of {_package(point)} {what}", hint=f"its entry point is {point.value}"
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"
