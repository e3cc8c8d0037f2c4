"""Metadata logs at the data shapes of real clusters: Kafka segment files of `__remote_log_metadata-N`.

    log = metadata_log(Shape(segments=2_600_000, user_partitions=10_000))
    run("tierctl", "segments", "--metadata", log.uri, "--sizes")

A log is made once, by its shape and seed, below `cache.folder()`. Every record is a batch of its own, as
brokers write them. The events of a metadata partition are ordered by time, and the segments of its user
partitions roll independently of each other, so that an event and its neighbours belong to different user
partitions.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tierctl.model import Uuid
from tierctl.wire.metadata import encode_column
from tierctl.wire.metadata.partitioner import metadata_partition

from tests.bench import cache
from tests.bench.log_files import SegmentFiles
from tests.bench.metadata_events import RECORDS_OF_A_SEGMENT, Events, Owners, all_epochs, event_table
from tests.bench.shape import Shape

__all__ = ["MetadataLog", "NewestSegment", "Shape", "metadata_log"]

PARTITIONS_OF_A_TOPIC = 50
CHUNK_EVENTS = 200_000
BROKERS = 9
FIRST_EVENT_MS, LIFETIME_MS = 1_760_000_000_000, 30 * 86_400_000
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
"""Indices of `RemoteLogSegmentState`."""

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSegment:
    """The finished segment of a user partition with the highest offsets, and all leader epochs up to it."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    epochs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """A log in the cache: the folder with `__remote_log_metadata-N/`, and the state after all its events.

    `states` counts the segments by their last state; DELETE_SEGMENT_FINISHED counts deleted segments.
    """

    folder: Path
    events: int
    size_bytes: int
    states: dict[str, int]

    @property
    def uri(self) -> str:
        """Return the value for `--metadata`."""
        return self.folder.as_uri()

    def newest(self) -> Iterator[NewestSegment]:
        """Yield the newest finished segment of each user partition that has one."""
        with (self.folder.parent / "newest.jsonl").open() as lines:
            yield from (NewestSegment(**json.loads(line)) for line in lines)


def metadata_log(shape: Shape) -> MetadataLog:
    """Return the log of that shape; make it first unless the cache holds it."""
    made = cache.make_once(f"metadata/{shape.name}", lambda folder: _make(shape, folder), source=_sources())
    return MetadataLog(made / "log", **json.loads((made / "facts.json").read_text()))


def _sources() -> list[Path]:
    here = Path(__file__).parent
    return [here / name for name in ("metadata_log.py", "metadata_events.py", "log_files.py")]


def _make(shape: Shape, folder: Path) -> None:
    counts, events, size_bytes = Counter[str](), 0, 0
    for number, owners in enumerate(_owners(shape)):
        rng = np.random.default_rng((shape.seed, number))
        history = _History.of(shape, owners, rng)
        with SegmentFiles(folder / "log" / f"__remote_log_metadata-{number}") as files:
            for part in history.chunks():
                files.append(encode_column(event_table(owners, part)), part.timestamp_ms, part.broker)
            size_bytes += files.size_bytes
        with (folder / "newest.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(each)) + "\n" for each in history.newest(owners))
        events += len(history.order)
        counts.update(history.last_states())
    facts = {"events": events, "size_bytes": size_bytes, "states": dict(counts)}
    (folder / "facts.json").write_text(json.dumps(facts))


def _owners(shape: Shape) -> list[Owners]:
    """Return the user partitions of each metadata partition, with the number of segments of each."""
    rng = np.random.default_rng((shape.seed, shape.user_partitions))
    weights = np.exp(shape.spread * rng.standard_normal(shape.user_partitions))
    counts = 1 + np.floor(weights / weights.sum() * (shape.segments - shape.user_partitions)).astype(np.int64)
    counts[: shape.segments - int(counts.sum())] += 1
    found = [Owners() for _ in range(shape.metadata_partitions)]
    for first in range(0, shape.user_partitions, PARTITIONS_OF_A_TOPIC):
        number = first // PARTITIONS_OF_A_TOPIC
        topic, topic_id = (
            f"{'topic.of.a.team'[: 5 + number % 11]}-{number:05d}",
            Uuid.from_bytes(rng.bytes(16)),
        )
        for partition in range(min(PARTITIONS_OF_A_TOPIC, shape.user_partitions - first)):
            home = metadata_partition(topic_id, partition, shape.metadata_partitions)
            found[home].add(topic, topic_id, partition, int(counts[first + partition]))
    return found


@dataclass(frozen=True, slots=True)
class _History:
    """All events of a metadata partition. The arrays of segments have a row for each attempt to copy one."""

    owner: Int64s
    number: Int64s
    """The number of the segment in its user partition; a failed attempt has that of its repetition."""
    custom: npt.NDArray[np.bool_]
    ids: npt.NDArray[np.uint8]
    attempt: Int64s
    """The row of the segment of each event, unordered."""
    state: Int64s
    at: Floats
    order: Int64s

    @classmethod
    def of(cls, shape: Shape, owners: Owners, rng: np.random.Generator) -> "_History":
        counts = np.array(owners.segments, np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        first = np.cumsum(counts) - counts
        index = np.arange(len(owner)) - first[owner]
        # The last attempt of a user partition never fails, so that its segment exists.
        failed = (rng.random(len(owner)) < shape.failed) & (index < counts[owner] - 1)
        done = np.cumsum(~failed) - ~failed
        number = done - done[first[owner]]
        interval = 1 / counts[owner]
        started = (index + 0.5 * rng.random(len(owner))) * interval
        taken = np.minimum(
            rng.exponential(shape.between / 2 / max(len(owner), 1), len(owner)), 0.3 * interval
        )
        attempts, states, times = [], [], []

        def add(rows: Int64s, state: int, at: Floats) -> None:
            attempts.append(rows)
            states.append(np.full(len(rows), state))
            times.append(at)

        good, bad = np.flatnonzero(~failed), np.flatnonzero(failed)
        add(np.arange(len(owner)), STARTED, started)
        add(good, FINISHED, (started + taken)[good])
        add(bad, DELETE_STARTED, (started + taken)[bad])
        add(bad, DELETE_FINISHED, (started + 1.2 * taken)[bad])
        rows, since = _deleted(good, number, owner, shape.deleted)
        add(rows, DELETE_STARTED, (started + 1.1 * taken)[since])
        add(rows, DELETE_FINISHED, (started + 1.1 * taken)[since] + 0.9 * taken[rows])
        at = np.concatenate(times)
        ids = np.frombuffer(rng.bytes(16 * len(owner)), np.uint8).reshape(-1, 16)
        custom = rng.random(len(owner)) < shape.custom
        # The log ends with the last STARTED event, so the last copies are unfinished.
        order = np.argsort(at, kind="stable")[: np.count_nonzero(at <= started.max(initial=0))]
        return cls(owner, number, custom, ids, np.concatenate(attempts), np.concatenate(states), at, order)

    def chunks(self) -> Iterator[Events]:
        """Yield the events in the order of their offsets."""
        for first in range(0, len(self.order), CHUNK_EVENTS):
            rows = self.order[first : first + CHUNK_EVENTS]
            attempt, state = self.attempt[rows], self.state[rows]
            yield Events(
                owner=self.owner[attempt],
                number=self.number[attempt],
                segment_ids=self.ids[attempt],
                state=state,
                has_custom=self.custom[attempt] & (state == FINISHED),
                broker=(self.owner[attempt] % BROKERS).astype(np.int32),
                timestamp_ms=FIRST_EVENT_MS + (self.at[rows] * LIFETIME_MS).astype(np.int64),
            )

    def last_states(self) -> Counter[str]:
        """Count the segments by the state that their last event left them in."""
        last = self._last()
        names = (
            "COPY_SEGMENT_STARTED",
            "COPY_SEGMENT_FINISHED",
            "DELETE_SEGMENT_STARTED",
            "DELETE_SEGMENT_FINISHED",
        )
        return Counter(dict(zip(names, np.bincount(last, minlength=4).tolist(), strict=True)))

    def newest(self, owners: Owners) -> Iterator[NewestSegment]:
        """Yield the newest finished segment of each user partition that has one."""
        rows = np.flatnonzero(self._last() == FINISHED)
        # Rows are ordered by owner and number: the last of each owner is its newest.
        rows = rows[np.diff(self.owner[rows], append=-1) != 0]
        for row in rows.tolist():
            owner, number = int(self.owner[row]), int(self.number[row])
            yield NewestSegment(
                topic=owners.topics[owner],
                topic_id=str(Uuid.from_bytes(owners.topic_ids[owner])),
                partition=owners.partitions[owner],
                segment_id=str(Uuid.from_bytes(self.ids[row].tobytes())),
                start_offset=number * RECORDS_OF_A_SEGMENT,
                epochs=all_epochs(number),
            )

    def _last(self) -> Int64s:
        """Return the state that each segment's last event left it in."""
        last = np.zeros(len(self.owner), np.int64)
        np.maximum.at(last, self.attempt[self.order], self.state[self.order])
        return last


def _deleted(good: Int64s, number: Int64s, owner: Int64s, share: float) -> tuple[Int64s, Int64s]:
    """Return the rows that retention deletes, and for each the row of the copy after which it is deleted.

    A user partition of n segments loses the first `share * n` segments. The first one is deleted once as many
    segments are copied as remain at the end; each further copy deletes one more.
    """
    counts = np.bincount(owner[good], minlength=int(owner.max(initial=-1)) + 1)
    gone = np.floor(share * counts).astype(np.int64)
    kept = counts - gone
    whose = owner[good]
    is_gone = number[good] < gone[whose]
    position = np.flatnonzero(is_gone)
    return good[position], good[position + kept[whose[position]]]
