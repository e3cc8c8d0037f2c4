"""`spark.readStream.format("remote_log_metadata")`: every offset once, also across restarts."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tierctl.spark
from tierctl.errors import UsageError
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.spark.sources.remote_log_metadata import EARLIEST, LATEST, StreamOffsets, TopicNow
from tierctl.wire.metadata.values import encode

from tests.metadata.events import started
from tests.metadata.topics import topic_in
from tests.spark.metadata_logs import batches, write_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[int, int]


class Stream:
    """A query over a folder that records the offsets of each batch; runs continue from its checkpoint."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        tierctl.spark.register(spark)
        self._spark = spark
        self.folder = folder / "log"
        self._checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[Place]] = {}
        self.fail_in: int | None = None

    def append(self, *partitions: int) -> None:
        """Append an event to each of these metadata partitions, of which there are three at first."""
        log = topic_in(self.folder, writable=True, partition_count=3)
        log.append([(partition, encode(started(number))) for number, partition in enumerate(partitions)])
        log.close()

    def run(self, **options: object) -> None:
        """Run the query until all existing records are read."""
        reader = self._spark.readStream.format("remote_log_metadata").options(**options)  # type: ignore[arg-type]
        writer = reader.load(f"file://{self.folder}").writeStream.foreachBatch(self._note)
        query = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def _note(self, batch: "DataFrame", number: int) -> None:
        rows = batch.select("metadata_partition", "metadata_offset").collect()
        places = sorted((row[0], row[1]) for row in rows)
        assert self.batches.setdefault(number, places) == places
        if number == self.fail_in:
            raise ConnectionError("killed after its work was done")

    @property
    def places(self) -> list[Place]:
        """Return the offsets of all batches."""
        return sorted(place for places in self.batches.values() for place in places)


@pytest.fixture
def stream(spark: "SparkSession", tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def places(*counts: int) -> list[Place]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def test_a_checkpoint_loses_and_repeats_nothing(stream: Stream) -> None:
    stream.append(*[0] * 9, *[2] * 4)
    stream.fail_in = 1
    with pytest.raises(Exception, match="killed after its work was done"):
        stream.run(max_offsets_per_trigger=5, records_per_task=2)
    stream.fail_in = None
    # The planned batch is read as planned, although there are new records and a new partition.
    stream.append(0, 1, 1)
    write_log(stream.folder, 3, batches([encode(started(1))] * 2))
    stream.run(max_offsets_per_trigger=5, records_per_task=2)
    assert stream.places == places(10, 2, 4, 2)
    assert [len(found) for _, found in sorted(stream.batches.items())][:3] == [5, 5, 5]


def test_a_stream_begins_where_it_is_told(stream: Stream) -> None:
    stream.append(*[0] * 5, *[1] * 5, *[2] * 5)
    stream.run(starting_offsets='{"0": 3, "1": -1}', metadata_partition="0,1")
    stream.append(1)
    stream.run(metadata_partition="0,1")
    assert stream.places == [(0, 3), (0, 4), (1, 5)]


def test_records_deleted_before_they_were_read_are_an_error(stream: Stream) -> None:
    stream.append(*[0] * 4)
    stream.run()
    stream.append(*[0] * 4)
    checkpoint = f"0\n1\n{METADATA_TOPIC} 0 6\n"
    (stream.folder / "log-start-offset-checkpoint").write_text(checkpoint)
    with pytest.raises(Exception, match="partition 0 begins at 6, 4 comes next"):
        stream.run()
    stream.run(fail_on_data_loss="false")
    assert stream.places == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 6), (0, 7)]


@pytest.mark.matrix
def test_a_log_that_was_cut_is_an_error_before_it_is_as_long_again(stream: Stream) -> None:
    stream.append(*[0] * 4)
    stream.run()
    write_log(stream.folder, 0, batches([encode(started(number)) for number in range(2)]))
    with pytest.raises(Exception, match="partition 0 ends at 2, 4 was there"):
        stream.run()
    stream.run(fail_on_data_loss="false")
    assert stream.places == places(4)


NOW = TopicNow("id", {0: 2, 1: 0, 2: 0}, {0: 12, 1: 3, 2: 0})


def at(**offsets: int) -> StreamOffsets:
    return StreamOffsets("id", {int(name[1:]): offset for name, offset in offsets.items()})


@pytest.mark.parametrize(
    ("most", "ends"),
    [
        (None, [12, 3, 0]),
        (1, [3, 0, 0]),
        (2, [3, 1, 0]),
        (4, [4, 2, 0]),
        (9, [8, 3, 0]),
        (13, [12, 3, 0]),
        (99, [12, 3, 0]),
    ],
)
def test_a_batch_has_at_most_so_many_offsets(most: int | None, ends: list[int]) -> None:
    end = NOW.end(at(p0=2, p1=0, p2=0), most=most)
    assert list(end.next_offsets.values()) == ends


def test_what_came_later_is_for_the_next_run() -> None:
    assert NOW.end(at(p0=2), up_to=at(p0=5, p1=2)) == at(p0=5, p1=2, p2=0)


@pytest.mark.parametrize(
    ("start", "end", "lost", "ranges"),
    [
        (at(p0=2), at(p0=12, p1=3), [], {0: (2, 12), 1: (0, 3)}),
        (at(p0=1), at(p0=12), ["partition 0 begins at 2, 1 comes next"], {0: (2, 12)}),
        (at(p0=5), at(p0=13), ["partition 0 ends at 12, 13 was there"], {0: (5, 12)}),
        (at(p1=5), at(p1=3), ["partition 1 ends at 3, 5 was there"], {}),
        (at(p1=5), at(p1=5), ["partition 1 ends at 3, 5 was there"], {}),
        (at(p7=1), at(p7=3), ["partition 7 is not there"], {}),
        (at(p7=3), at(p7=3), [], {}),
        (StreamOffsets("old", {1: 2}), at(p1=3), ["the topic has id id, offsets are of old"], {1: (0, 3)}),
        (
            StreamOffsets("old", {1: 2}),
            StreamOffsets("old", {1: 9}),
            ["the topic has id id, offsets are of old"],
            {},
        ),
        (StreamOffsets(None, {1: 2}), StreamOffsets(None, {1: 3}), [], {1: (2, 3)}),
    ],
)
def test_what_is_missing_is_told(
    start: StreamOffsets, end: StreamOffsets, lost: list[str], ranges: dict[int, tuple[int, int]]
) -> None:
    assert list(NOW.lost(start, end)) == lost
    assert NOW.ranges(start, end) == ranges
    assert StreamOffsets.from_json(start.to_json()) == start


def test_a_topic_made_anew_is_begun_anew() -> None:
    assert NOW.end(StreamOffsets("old", {0: 99, 5: 1})) == StreamOffsets("id", NOW.ends)


def test_a_partition_that_is_gone_is_not_begun_anew_when_it_is_back() -> None:
    assert NOW.end(at(p0=3, p9=40)).next_offsets[9] == 40


@pytest.mark.parametrize(
    ("asked", "otherwise", "begin"),
    [({}, EARLIEST, [2, 0, 0]), ({}, LATEST, [12, 3, 0]), ({0: 7, 1: LATEST}, EARLIEST, [7, 3, 0])],
)
def test_beginnings(asked: dict[int, int], otherwise: int, begin: list[int]) -> None:
    assert list(NOW.beginning(asked, otherwise).next_offsets.values()) == begin


def test_a_beginning_in_an_unknown_partition_is_refused() -> None:
    with pytest.raises(UsageError, match="the topic has no partition 3"):
        NOW.beginning({1: 2, 3: 4}, EARLIEST)
