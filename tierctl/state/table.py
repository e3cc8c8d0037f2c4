"""The table of segments of one metadata partition: its arrays, and its rows as the model's objects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.model import RemoteLogSegmentMetadata, RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.state.table_arrays import (
    BLOB,
    COUNTS,
    DANGLING,
    DEAD,
    DELETE_FINISHED,
    EPOCHS,
    FREE,
    KIP405,
    LENGTH_BYTES,
    LINKS,
    NAMES,
    PARTITIONS,
    ROW_TYPES,
    SEGMENTS,
    STATES,
    TEXT,
    TXN_INDEX_EMPTY,
    Array,
    Arrays,
    copied,
    custom_length,
    find_epoch,
    find_segment,
    hashes,
    new_seeds,
    room_for,
)
from tierctl.wire.arrays import Int64s, copied_slices, distinct, runs, take_rows

Pairs = tuple[tuple[int, int], ...]

_PARTITION_STATES: Final = tuple(RemotePartitionDeleteState)
_DEAD_ROWS_MAX: Final = 1024
_GROWING: Final = {SEGMENTS, LINKS, BLOB}
"""The arrays that grow with the number of events."""
_EXPECTED_MAX: Final = 1 << 20
"""No room is made for more events ahead: offsets may have large gaps."""
_LEAST_SLOTS: Final = 16
_KEYS: Final[dict[int, tuple[str, tuple[str | None, ...]]]] = {
    SEGMENTS: ("segment_slots", ("id_high", "id_low", "owner")),
    EPOCHS: ("epoch_slots", ("epoch", None, "owner")),
    PARTITIONS: ("partition_slots", ("id_high", "id_low", "partition")),
    NAMES: ("name_slots", ("hash", "length", None)),
}
"""The hash table of each array that has one, and the fields by which its rows are found; None is 0."""
_ENDS: Final = ("first_readable", "last_readable", "first_waiting", "last_waiting")
"""The fields of a leader epoch that lead to the ends of its lists."""


class SegmentTable:
    """The segments of the user partitions of one metadata partition: about 150 bytes per segment.

    Rows of deleted segments stay until `compact` renumbers the rows, with `keep_deleted` always. Unknown
    tagged fields of events are not kept.
    """

    def __init__(self, *, keep_deleted: bool = False) -> None:
        self.keep_deleted = keep_deleted
        self.groups: Any = None
        self.sums: Int64s | None = None
        self.facts: Int64s | None = None
        self.expected = 0
        """The number of events that are still to come, as far as that is known."""
        contents = [np.zeros(0, kind) for kind in ROW_TYPES.values()]
        self.arrays = self._with_slots(contents, np.zeros(COUNTS, np.int64))

    def _with_slots(self, contents: list[Array], counts: Int64s) -> Arrays:
        self._forget()
        slots = [np.full(_LEAST_SLOTS, -1, np.int32) for _ in range(4)]
        longest = int(contents[SEGMENTS]["link_count"].max(initial=0))
        scratch = np.empty((2, longest), np.int64)
        return Arrays(*contents, *slots, new_seeds(), scratch, counts)  # type: ignore[call-arg]

    def _forget(self) -> None:
        """Clear what was derived from the rows."""
        self.changed()
        self.__dict__.pop("_topics", None)

    def __getstate__(self) -> dict[str, Any]:
        contents = {name: rows.tobytes() for name, rows in self.contents().items()}
        sums, facts = (None if rows is None else rows.tobytes() for rows in (self.sums, self.facts))
        return {
            "keep_deleted": self.keep_deleted,
            "contents": contents,
            "sums": sums,
            "facts": facts,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.keep_deleted = state["keep_deleted"]
        self.groups, self.sums, self.facts, self.expected = None, None, None, 0
        self.load(state["contents"])
        if state["sums"] is not None:
            self.sums = np.frombuffer(state["sums"], np.int64).reshape(-1, 2, len(STATES))
        if state["facts"] is not None:
            facts, count = np.frombuffer(state["facts"], np.int64), len(self.partitions)
            self.facts = facts.reshape(count, len(facts) // max(count, 1))

    def contents(self) -> dict[str, Array]:
        """Return the arrays with the content of the table, without the rows of deleted segments."""
        self.compact()
        return {name: self._used(i) for i, name in enumerate(ROW_TYPES)}

    def load(self, contents: Mapping[str, bytes | memoryview]) -> None:
        """Replace the content; raise CorruptInputError if a row points to one that does not exist."""
        arrays = [copied(np.frombuffer(contents[name], kind)) for name, kind in ROW_TYPES.items()]
        counts = np.zeros(COUNTS, np.int64)
        counts[: len(arrays)] = [len(each) for each in arrays]
        self.arrays = self._with_slots(arrays, counts)
        _check(self.arrays)
        counts[DEAD] = int((self.arrays.segments["state"] == DELETE_FINISHED).sum())
        for array in _KEYS:
            self._make_slots(array)

    # The arrays in use, as views: they are no longer those of the table after the next fold.

    def _used(self, array: int) -> Array:
        used: Array = self.arrays[array][: int(self.arrays.counts[array])]
        return used

    @property
    def segments(self) -> Array:
        """Return the rows of segments, deleted ones included; AttributeError if they were dropped."""
        self._require_segments()
        return self._used(SEGMENTS)

    def _require_segments(self) -> None:
        if self.sums is not None:
            raise AttributeError("the segments were summed up")

    @property
    def links(self) -> Array:
        """Return the links of segments to leader epochs."""
        return self._used(LINKS)

    @property
    def epochs(self) -> Array:
        """Return the leader epochs of user partitions."""
        return self._used(EPOCHS)

    @property
    def partitions(self) -> Array:
        """Return the user partitions, by number."""
        return self._used(PARTITIONS)

    @property
    def _dead(self) -> int:
        return int(self.arrays.counts[DEAD])

    def __len__(self) -> int:
        """Return the number of segments that are not deleted."""
        return len(self.segments) - self._dead

    @cached_property
    def derived(self) -> dict[int, Any]:
        """What queries derive from leader epochs, by their rows, until the table changes."""
        return {}

    def changed(self) -> None:
        """Forget what was derived from the rows: a fold changed them."""
        for name in ("_rows_by_partition", "derived"):
            self.__dict__.pop(name, None)

    def reserve_for(self, events: Int64s) -> None:
        """Make room for events, rows of `wire.metadata.decode`.

        Arrays that must grow get room for the `expected` events as well, taken to be like these: memory that
        is not used costs nothing.
        """
        self.expected = max(self.expected - len(events), 0)
        likes = 1 + min(self.expected, _EXPECTED_MAX) // max(len(events), 1)
        adds, named, epochs, longest, text, blob = room_for(events)
        if longest > self.arrays.scratch.shape[1]:
            self.arrays = self.arrays._replace(scratch=np.empty((2, longest), np.int64))
        # A reshaped segment may take its links twice.
        wanted = (adds, 2 * epochs, epochs, named, named, text, blob)
        arrays, counts = list(self.arrays), self.arrays.counts
        for i, more in enumerate(wanted):
            needed = int(counts[i]) + more
            if needed > len(arrays[i]):
                hoped = int(counts[i]) + more * likes if i in _GROWING else 0
                grown = np.zeros(max(needed, hoped, 3 * len(arrays[i]) // 2), arrays[i].dtype)
                grown[: counts[i]].view(np.uint8)[:] = arrays[i][: counts[i]].view(np.uint8)
                arrays[i] = grown
        self.arrays = Arrays(*arrays)
        for array in _KEYS:
            self._make_slots(array, wanted[array], is_new=False)

    def _make_slots(self, array: int, more: int = 0, *, is_new: bool = True) -> None:
        """Make the hash table of an array with room for `more` rows, if it lacks room or `is_new`."""
        table, fields = _KEYS[array]
        used, size = int(self.arrays.counts[array]), len(getattr(self.arrays, table))
        if 2 * (used + more) > size:
            size, is_new = 1 << (3 * (used + more)).bit_length(), True
        if is_new:
            rows, zero = self._used(array), np.zeros(used, np.int64)
            high, low, number = (zero if name is None else rows[name].astype(np.int64) for name in fields)
            slots = _linked(hashes(high, low, number, self.arrays.seeds), size)
            self.arrays = self.arrays._replace(**{table: slots})

    # Questions about single rows.

    @cached_property
    def _topics(self) -> dict[int, str]:
        return {}

    def topic(self, number: int) -> str:
        """Return the topic name with that number."""
        found = self._topics.get(number)
        if found is None:
            name = self.arrays.names[number]
            at = int(name["at"])
            found = self.arrays.text[at : at + int(name["length"])].tobytes().decode("utf-8")
            self._topics[number] = found
        return found

    @property
    def topics(self) -> pa.BinaryArray:
        """Return the topic names, by number, in UTF-8."""
        names = self._used(NAMES)
        return copied_slices(self._used(TEXT), names["at"], names["length"].astype(np.int64))

    def topic_id_partition(self, number: int, topic: int | None = None) -> TopicIdPartition:
        """Return the user partition with that number, with the name of its first event or another one."""
        row = self.arrays.partitions[number]
        name = self.topic(int(row["topic"]) if topic is None else topic)
        return TopicIdPartition(_uuid(row["id_high"], row["id_low"]), name, int(row["partition"]))

    def topic_id_partitions(self, numbers: Int64s | None = None) -> Iterator[TopicIdPartition]:
        """Yield the user partitions with these numbers, or all, with the names of their first events."""
        rows = self.partitions if numbers is None else self.partitions[numbers]
        ids = np.stack([rows["id_high"], rows["id_low"]], axis=1).astype(">i8").tobytes()
        for at, (topic, partition) in enumerate(
            zip(rows["topic"].tolist(), rows["partition"].tolist(), strict=True)
        ):
            topic_id = Uuid.from_bytes(ids[16 * at : 16 * at + 16])
            yield TopicIdPartition(topic_id, self.topic(topic), partition)

    def find(self, number: int, segment_id: Uuid) -> int:
        """Return the row of a segment of a user partition; -1 if it is unknown or deleted."""
        self._require_segments()
        row = int(find_segment(self.arrays, number, *_words(segment_id))[1])
        return -1 if row < 0 or self.arrays.segments[row]["state"] == DELETE_FINISHED else row

    def epoch(self, number: int, epoch: int) -> int:
        """Return the row of a leader epoch of a user partition; -1 if no segment ever named it."""
        self._require_segments()
        return int(find_epoch(self.arrays, number, epoch)[1])

    def delete_state(self, number: int) -> RemotePartitionDeleteState | None:
        """Return the state of a user partition's deletion."""
        code = int(self.arrays.partitions[number]["delete_state"])
        return None if code < 0 else _PARTITION_STATES[code]

    def id_of(self, row: int) -> bytes:
        """Return the id of a segment."""
        segment = self.arrays.segments[row]
        return _bytes(segment["id_high"], segment["id_low"])

    def leader_epochs(self, row: int) -> Pairs:
        """Return the segment's (epoch, start offset) pairs in the order of its event."""
        segment = self.arrays.segments[row]
        first = int(segment["links"])
        links = self.arrays.links[first : first + int(segment["link_count"])]
        return tuple(zip(links["epoch"].tolist(), links["start"].tolist(), strict=True))

    def custom(self, row: int) -> bytes | None:
        """Return the segment's custom metadata; None is null."""
        at = int(self.arrays.segments[row]["custom"])
        return None if at < 0 else self._counted(at)[LENGTH_BYTES:]

    def _counted(self, at: int) -> bytes:
        """Return the custom metadata at a position of the blob, with the length before them."""
        end = at + LENGTH_BYTES + custom_length(self.arrays.blob, at)
        return self.arrays.blob[at:end].tobytes()

    def metadata(self, row: int) -> RemoteLogSegmentMetadata:
        """Return the segment in `row` as the model's object."""
        high, low, start, end, max_timestamp, event_timestamp, *rest = self.arrays.segments[row].item()
        _offset, _custom, size, owner, writer, topic, _links, _link_count, state, flags = rest
        partition = self.topic_id_partition(owner, topic)
        is_kip405 = bool(flags & KIP405)
        return RemoteLogSegmentMetadata(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=_uuid(high, low),
            start_offset=start,
            end_offset=end,
            broker_id=None if is_kip405 else writer,
            leader_epoch=writer if is_kip405 else None,
            max_timestamp_ms=max_timestamp,
            event_timestamp_ms=event_timestamp,
            segment_leader_epochs=self.leader_epochs(row),
            segment_size_in_bytes=size,
            custom_metadata=self.custom(row),
            state=STATES[state],
            txn_index_empty=bool(flags & TXN_INDEX_EMPTY),
        )

    def epoch_rows(self, number: int) -> Iterator[int]:
        """Yield the rows of the leader epochs of a user partition."""
        self._require_segments()
        at = int(self.partitions["first_epoch"][number]) if len(self.partitions) else -1
        while at >= 0:
            yield at
            at = int(self.arrays.epochs[at]["next"])

    # Rows of user partitions.

    def live_rows(self) -> Int64s:
        """Return the rows of segments that are not deleted, in order of arrival."""
        return np.flatnonzero(self.segments["state"] != DELETE_FINISHED)

    @cached_property
    def _rows_by_partition(self) -> tuple[Int64s, Int64s, int]:
        """All rows, ordered by user partition, where those of each begin, and how many rows there were."""
        owners = self.segments["owner"]
        bounds = np.zeros(len(self.partitions) + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=len(self.partitions)), out=bounds[1:])
        narrow = owners.astype(np.uint16) if len(self.partitions) <= 1 << 16 else owners
        return np.argsort(narrow, kind="stable"), bounds, len(owners)

    def rows_of(self, number: int, *, deleted: bool = False) -> Int64s:
        """Return the rows of a user partition's segments, or of its deleted ones, in order of arrival."""
        if self._rows_by_partition[2] != len(self.segments) or number + 1 >= len(self._rows_by_partition[1]):
            self.__dict__.pop("_rows_by_partition")
        order, bounds, _count = self._rows_by_partition
        rows = order[bounds[number] : bounds[number + 1]]
        chosen: Int64s = rows[(self.segments["state"][rows] == DELETE_FINISHED) == deleted]
        return chosen

    def drop_segments(self, sums: Int64s, facts: Int64s | None = None) -> None:
        """Keep only the user partitions, `sums` and `facts` of their segments; fold nothing afterwards.

        Both have one row per user partition: counts and sizes by state, and `SegmentGroups.facts`.
        """
        counts = self.arrays.counts.copy()
        counts[[SEGMENTS, LINKS, EPOCHS, BLOB, DEAD]] = 0
        partitions = copied(self.partitions)
        partitions["first_epoch"] = -1
        self.arrays = self.arrays._replace(
            **{name: np.zeros(0, ROW_TYPES[name]) for name in ("segments", "links", "epochs", "blob")},
            partitions=partitions,
            counts=counts,
        )
        self.changed()
        for array in _KEYS:
            self._make_slots(array)
        self.sums, self.facts = sums, facts

    def compact_when_due(self) -> None:
        """Drop the rows of deleted segments if they are more than an eighth of all."""
        if self._dead > _DEAD_ROWS_MAX and 8 * self._dead > len(self.segments):
            self.compact()

    def compact(self) -> None:
        """Drop the rows of deleted segments, but for those that former leader epochs still list."""
        if self.keep_deleted or not self._dead:
            return
        segments = self._used(SEGMENTS)
        is_kept = (segments["state"] != DELETE_FINISHED) | (segments["flags"] & DANGLING != 0)
        if is_kept.all():
            return
        rows = np.flatnonzero(is_kept)
        numbers = _numbering(is_kept)
        is_linked = (self.links["status"] != FREE) & is_kept[np.maximum(self.links["segment"], 0)]
        links, new = copied(self.links, is_linked), _numbering(is_linked)
        links["segment"] = numbers[links["segment"]]
        for name in ("previous", "next", "stale"):
            links[name] = new[links[name]]
        kept, epochs = copied(segments, rows), copied(self.epochs)
        kept["links"] = new[kept["links"]]
        for name in _ENDS:
            epochs[name] = new[epochs[name]]
        blob = self._compact_blob(kept)
        counts = self.arrays.counts.copy()
        counts[SEGMENTS], counts[LINKS], counts[BLOB] = len(kept), len(links), len(blob)
        counts[DEAD] = int((kept["state"] == DELETE_FINISHED).sum())
        self._forget()
        self.arrays = self.arrays._replace(
            segments=kept, links=links, epochs=epochs, blob=blob, counts=counts
        )
        for array in _KEYS:
            self._make_slots(array)

    def _compact_blob(self, kept: Array) -> Array:
        """Return the custom metadata of the rows `kept`, whose positions are changed to it."""
        blob = bytearray()
        chosen = np.flatnonzero(kept["custom"] >= 0)
        places = []
        for at in kept["custom"][chosen].tolist():
            places.append(len(blob))
            blob += self._counted(at)
        kept["custom"][chosen] = places
        return np.frombuffer(bytes(blob), np.uint8).copy()


def _numbering(is_kept: Array) -> Int64s:
    """Return the number of each kept item among these, -1 of others, and -1 for item -1."""
    numbers = np.full(len(is_kept) + 1, -1, np.int64)
    numbers[:-1][is_kept] = np.arange(int(is_kept.sum()))
    return numbers


def _linked(codes: Int64s, size: int) -> Array:
    """Return hash slots that lead to row i for the i-th of `codes`; of equal keys, to the last."""
    slots, mask = np.full(size, -1, np.int32), np.int64(size - 1)
    rows, at = np.arange(len(codes)), codes & mask
    while len(rows):
        free = slots[at] < 0
        slots[at[free]] = rows[free]
        # If several rows wrote to one slot, the last one has it; the others try the next slot.
        is_lost = slots[at] != rows
        rows, at = rows[is_lost], (at[is_lost] + 1) & mask
    return slots


def _words(value: Uuid) -> tuple[int, int]:
    raw = value.bytes
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)


def _bytes(high: int, low: int) -> bytes:
    return int(high).to_bytes(8, "big", signed=True) + int(low).to_bytes(8, "big", signed=True)


def _uuid(high: int, low: int) -> Uuid:
    return Uuid.from_bytes(_bytes(high, low))


def may_share_partitions(tables: Iterable[SegmentTable]) -> bool:
    """Return whether two of these tables may have the same user partition; False is certain."""
    seeds, rows = new_seeds(), [table.partitions for table in tables]
    numbers = (each["partition"].astype(np.int64) for each in rows)
    found = [hashes(r["id_high"], r["id_low"], n, seeds) for r, n in zip(rows, numbers, strict=True)]
    return len(found) > 1 and len(np.unique(np.concatenate(found))) < sum(map(len, found))


def _column(tables: Iterable[SegmentTable], name: str) -> Int64s:
    """Return a field of all user partitions, those of each table after those of the table before it."""
    return np.concatenate([np.zeros(0, np.int64), *(table.partitions[name] for table in tables)])


def topics_of(tables: Sequence[SegmentTable]) -> tuple[Int64s, list[str]]:
    """Return the index of the topic name of each user partition, ordered as by `_column`, and the names."""
    names_of = [table.topics for table in tables]
    firsts = np.cumsum([0, *map(len, names_of)])[:-1]
    rows = _column(tables, "topic") + np.repeat(firsts, [len(table.partitions) for table in tables])
    codes, names = distinct(take_rows(pa.concat_arrays([pa.array([], pa.binary()), *names_of]), rows))
    return codes, [name.decode("utf-8") for name in names.to_pylist()]


class LiveTopic(NamedTuple):
    """A topic with segments: the places of its user partitions among those of all tables, and their numbers.

    The user partitions of each table follow those of the table before it.
    """

    topic: str
    topic_id: Uuid
    places: Int64s
    partitions: Int64s


def live_topics(tables: Sequence[SegmentTable]) -> Iterator[LiveTopic]:
    """Yield the topics that have segments which are not deleted, without an object of each user partition.

    One that has several names in the metadata is several topics here.
    """
    live, partitions = np.flatnonzero(_column(tables, "live")), _column(tables, "partition")
    codes, names = topics_of(tables)
    keys = [key[live] for key in (_column(tables, "id_low"), _column(tables, "id_high"), codes)]
    order = np.lexsort(keys)
    for first, end in runs(*(key[order] for key in keys)):
        low, high, code = (int(key[order[first]]) for key in keys)
        places = live[order[first:end]]
        yield LiveTopic(names[code], _uuid(high, low), places, partitions[places])


def _check(t: Arrays) -> None:
    """Raise CorruptInputError if a row points to one that does not exist, or lists are not consistent."""

    def require(holds: Any, what: str) -> None:
        if not bool(np.all(holds)):
            raise CorruptInputError("table of segments", expected=what, found="another number")

    counts = [len(t.segments), len(t.links), len(t.epochs), len(t.partitions), len(t.names)]
    for array, name, count in (
        (t.segments, "owner", counts[3]), (t.segments, "topic", counts[4]),
        (t.epochs, "owner", counts[3]), (t.partitions, "topic", counts[4]),
    ):  # fmt: skip
        require((array[name] >= 0) & (array[name] < count), f"a {name} below {count}")
    for array, name, count in (
        *((t.links, name, counts[1]) for name in ("previous", "next", "stale")),
        (t.links, "segment", counts[0]),
        *((t.epochs, name, counts[1]) for name in _ENDS),
        (t.epochs, "next", counts[2]), (t.partitions, "first_epoch", counts[2]),
    ):  # fmt: skip
        require((array[name] >= -1) & (array[name] < count), f"a {name} from -1 to {count - 1}")
    require((t.segments["links"] >= 0) & (t.segments["link_count"] > 0), "leader epochs of each segment")
    require(
        t.segments["links"].astype(np.int64) + t.segments["link_count"] <= counts[1],
        f"links below {counts[1]}",
    )
    require(t.segments["state"] < len(STATES), "a known state")
    require(t.segments["custom"] < len(t.blob), "custom metadata in the blob")
    require((t.names["at"] >= 0) & (t.names["length"] >= 0), "a place of each name")
    require(t.names["at"] + t.names["length"] <= len(t.text), "names in the text")
    # Every link has one predecessor at most, and the first of a list has none: no list is a circle.
    following = np.flatnonzero(t.links["next"] >= 0)
    require(t.links["previous"][t.links["next"][following]] == following, "lists in order")
    for kind in ("readable", "waiting"):
        first = t.epochs[f"first_{kind}"]
        require(t.links["previous"][first[first >= 0]] == -1, "lists that begin with their first link")
    require(t.epochs["next"] < np.arange(counts[2]), "a leader epoch before")
    stale = t.links["stale"][t.links["stale"] >= 0]
    require(np.bincount(stale, minlength=1) <= 1, "one way to a former leader epoch")
    require(~np.isin(t.segments["links"], stale), "chains that begin with a segment's first link")
