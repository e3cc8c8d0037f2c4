"""The lanes of the page: the segments of each partition as columns, joined to bins where there are many."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.choices import RowEnum
from tierctl.model.times import TIME_MS_MAX
from tierctl.report.table import printable
from tierctl.wire.arrays import Bools, Int64s

ITEMS_MAX = 100_000
"""Items of all lanes together, about 30 bytes each in the page."""
_FEWEST_PER_LANE = 4
_NO_TIME = -1

Items: TypeAlias = "array[int]"
_OFFSET_MAX = (1 << 53) - 1
"""The largest number that a script of the page represents exactly."""
_COLUMNS = ("starts", "ends", "sizes", "times_ms", "epochs", "kinds")
_ITEM_COLUMNS = ("gap", "length", "count", "bytes", "time", "epoch", "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSegments:
    """The segments of one partition, in the tier or in the local log, by start offset.

    `ends` are inclusive, `times_ms` the largest timestamps (0 or less: none), `epochs` the highest leader
    epochs (-1: not known), and `kinds` the codes of `SegmentKind`.
    """

    starts: Int64s
    ends: Int64s
    sizes: Int64s
    times_ms: Int64s
    epochs: Int64s
    kinds: Int64s

    @classmethod
    def of(cls, **columns: npt.NDArray[Any]) -> Self:
        """Return the segments in `columns`, in any order; too large offsets and times are cut."""
        table = {name: values.astype(np.int64) for name, values in columns.items()}
        for name, largest in (("starts", _OFFSET_MAX), ("ends", _OFFSET_MAX), ("times_ms", TIME_MS_MAX)):
            table[name] = np.clip(table[name], _NO_TIME, largest)
        order = np.lexsort((table["ends"], table["starts"]))
        return cls(**{name: values[order] for name, values in table.items()})

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int, int, int, int]]) -> Self:
        """Return the segments of `rows`: start, end, size, time, epoch and kind of each."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, len(_COLUMNS)).T
        return cls.of(**dict(zip(_COLUMNS, table, strict=True)))

    def __len__(self) -> int:
        return len(self.starts)


def items_per_lane(counts: Sequence[int], items_max: int = ITEMS_MAX) -> int:
    """Return the largest number of items per lane with which lanes of `counts` segments fit `items_max`.

    No lane has fewer than four, so that the items of more than 25,000 lanes exceed the default.
    """
    ordered = np.sort(np.asarray(counts, dtype=np.int64))
    before = np.concatenate([[0], np.cumsum(ordered)])
    for at, count in enumerate(ordered.tolist()):
        # The `at` shortest lanes are drawn completely; the other lanes share the remaining items equally.
        share = (items_max - int(before[at])) // (len(ordered) - at)
        if count > share:
            return max(share, _FEWEST_PER_LANE)
    return max(int(ordered[-1]) if len(ordered) else 0, _FEWEST_PER_LANE)


@dataclass(frozen=True, slots=True)
class _Bins:
    """The first segment of each item; `is_mixed` of each item: it joins segments that differ."""

    firsts: Int64s
    is_mixed: Bools


def _binned(segments: LaneSegments, limit: int) -> _Bins:
    """Return at most `limit` items; segments that differ in kind or epoch, or have a hole between, are apart.

    Where more than half as many runs of equal segments are in a lane, equal numbers of segments are joined.
    """
    count = len(segments)
    places = np.arange(count)
    if count <= limit:
        return _Bins(places, np.zeros(count, np.bool_))
    differs = np.ones(count, np.bool_)
    differs[1:] = np.diff(segments.kinds) != 0
    differs[1:] |= np.diff(segments.epochs) != 0
    differs[1:] |= segments.starts[1:] != segments.ends[:-1] + 1
    runs = np.flatnonzero(differs)
    if len(runs) > limit // 2:
        begins = places % -(-count // limit) == 0
    else:
        run_starts = np.repeat(runs, np.diff(np.append(runs, count)))
        begins = differs | ((places - run_starts) % -(-count // (limit - len(runs))) == 0)
    firsts = np.flatnonzero(begins)
    return _Bins(firsts, np.logical_or.reduceat(differs & ~begins, firsts))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneItems:
    """The items of one lane, which show its segments, and the sums of these.

    `values` has the columns that `Lanes.to_json` describes, one after the other, with one value per item; it
    is no array of NumPy, which the decoder of executors' results does not know. `joined_segments` are the
    segments that an item shows together with others.
    """

    segments: int = 0
    size_bytes: int = 0
    joined_segments: int = 0
    values: Items = field(default_factory=partial(array, "q"))

    @classmethod
    def of(cls, segments: LaneSegments, limit: int) -> Self:
        """Return at most `limit` items that show `segments`."""
        if not len(segments):
            return cls()
        bins = _binned(segments, limit)
        firsts = bins.firsts
        starts, ends = segments.starts[firsts], np.maximum.reduceat(segments.ends, firsts)
        counts = np.diff(np.append(firsts, len(segments)))
        times = np.where(segments.times_ms > 0, segments.times_ms // 1000, _NO_TIME)
        values = {
            "gap": np.diff(starts, prepend=starts[:1]) - np.append(0, (ends - starts)[:-1] + 1),
            "length": ends - starts + 1,
            "count": counts,
            "bytes": np.add.reduceat(segments.sizes, firsts),
            "time": np.diff(np.maximum.reduceat(times, firsts), prepend=0),
            "epoch": np.diff(np.maximum.reduceat(segments.epochs, firsts), prepend=0),
            "kind": 2 * np.maximum.reduceat(segments.kinds, firsts) + bins.is_mixed,
        }
        # Each gap is the distance from the item before; the first item's gap is its start offset.
        values["gap"][0] = starts[0]
        return cls(
            segments=len(segments),
            size_bytes=int(segments.sizes.sum()),
            joined_segments=int(counts[counts > 1].sum()),
            values=array("q", np.concatenate([values[name] for name in _ITEM_COLUMNS]).tobytes()),
        )

    def __len__(self) -> int:
        return len(self.values) // len(_ITEM_COLUMNS)

    def column(self, name: str) -> Items:
        """Return one of the columns."""
        first = _ITEM_COLUMNS.index(name) * len(self)
        return self.values[first : first + len(self)]


@dataclass(slots=True)
class PartitionRow:
    """One partition of the page; `log_end_offset` is exclusive. Unknown values are None."""

    partition: TopicIdPartition
    tier: LaneItems = field(default_factory=LaneItems)
    local: LaneItems = field(default_factory=LaneItems)
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    next_expiry_ms: int | None = None


@dataclass(slots=True)
class Lanes:
    """The columns of the page's JSON block; `limit` is the number of items that a lane may have."""

    limit: int
    numbers: dict[tuple[Uuid, int], int] = field(default_factory=dict)
    """The number of each partition, by topic id and partition."""
    joined_segments: int = 0
    """Segments that an item shows together with others."""
    _topics: dict[tuple[str, Uuid], int] = field(default_factory=dict)
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _items: dict[str, Items] = field(
        default_factory=lambda: {name: array("q") for name in _ITEM_COLUMNS},
    )

    @classmethod
    def of(cls, rows: Iterable[PartitionRow], limit: int) -> Self:
        """Return the lanes of `rows`, by topic and partition."""
        lanes = cls(limit)
        for row in sorted(rows, key=lambda row: (row.partition.topic, *row.partition.key)):
            lanes.add(row)
        return lanes

    def __len__(self) -> int:
        return len(self.numbers)

    def partitions(self) -> Iterator[tuple[TopicIdPartition, int]]:
        """Yield each partition with its number."""
        names = [(topic_id, name) for name, topic_id in self._topics]
        for ((topic_id, number), at), topic in zip(
            self.numbers.items(), self._rows.get("topic", ()), strict=True
        ):
            yield TopicIdPartition(topic_id, names[topic][1], number), at

    def add(self, row: PartitionRow) -> None:
        """Add the lanes of one partition; cut a too large time of its next expiration."""
        self.numbers[row.partition.key] = len(self.numbers)
        topic = self._topics.setdefault((row.partition.topic, row.partition.topic_id), len(self._topics))
        for lane in (row.tier, row.local):
            self.joined_segments += lane.joined_segments
            for name, column in self._items.items():
                column.extend(lane.column(name))
        values = {
            "topic": topic,
            "number": row.partition.partition,
            "tier_items": len(row.tier),
            "local_items": len(row.local),
            "tier_segments": row.tier.segments,
            "tier_bytes": row.tier.size_bytes,
            "local_segments": row.local.segments,
            "local_bytes": row.local.size_bytes,
            "log_start": row.log_start_offset,
            "log_end": row.log_end_offset,
            "expiry": None if row.next_expiry_ms is None else min(row.next_expiry_ms, TIME_MS_MAX) // 1000,
        }
        for name, value in values.items():
            self._rows.setdefault(name, []).append(value)

    def to_json(self) -> dict[str, Any]:
        """Return the columns: one value per partition in `rows`, and one per item in `items`.

        The items of a partition's tier come before those of its local log. `gap` is the distance from the
        item before, for the first item of a lane from offset 0; `time` (seconds) and `epoch` are differences
        to the item before. `kind` is twice the code, plus 1 for an item of several kinds.
        """
        return {
            "topics": [[printable(name), topic_id] for name, topic_id in self._topics],
            "rows": self._rows,
            "items": {name: column.tolist() for name, column in self._items.items()},
        }


@dataclass(frozen=True, slots=True)
class _Row:
    """The class in the style sheet, the letter that lanes show, and the meaning."""

    name: str
    letter: str
    meaning: str
    is_local: bool = False


class SegmentKind(RowEnum):
    """The kinds of segments: a state together with the decision about the segment."""

    row: _Row

    CURRENT = _Row("current", "", "on the lineage of the log")
    UNDECIDED = _Row("undecided", "?", "nothing decides whether it is on the lineage")
    HELD = _Row("held", "H", "retention can't reach it: a timestamp or a hole stops it")
    DUE = _Row("due", "E", "expired: brokers may delete it now")
    OFF_LINEAGE = _Row("diverged", "X", "off the lineage: a former leader copied it, or it was copied again")
    COPYING = _Row("copying", "C", "COPY_SEGMENT_STARTED: its copy is not finished")
    DELETING = _Row("deleting", "D", "DELETE_SEGMENT_STARTED: its deletion is not finished")
    GONE = _Row("gone", "G", "of a partition or topic that was deleted")
    COPIED = _Row("copied", "", "also in the tier", is_local=True)
    LOCAL = _Row("local", "-", "not in the tier, of a topic that is not known to be tiered", is_local=True)
    ACTIVE = _Row("active", "A", "the active segment", is_local=True)
    NEXT = _Row("next", "N", "copied next", is_local=True)
    WAITING = _Row("waiting", "W", "its copy waits for a transaction or a limit", is_local=True)
    LEADER = _Row("leader", "L", "the leader's log, whose segments are not known", is_local=True)

    @property
    def code(self) -> int:
        """The number of the kind in the columns of lanes."""
        return _CODES[self]


_CODES = {kind: code for code, kind in enumerate(SegmentKind)}
