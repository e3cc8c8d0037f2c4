"""Rows of the metadata topic, task by task, without Spark: captures, vectors and damaged logs."""

import json
import pickle
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import NotFoundError, UsageError
from tierctl.metadata.topic import open_topic
from tierctl.metadata.topic.open_topic import cut
from tierctl.model import Uuid
from tierctl.model.location import TopicLocation
from tierctl.spark.frames import options_of
from tierctl.spark.sources import metadata_splits
from tierctl.spark.sources.metadata_splits import (
    Predicate,
    Window,
    event_tasks,
    plan_tasks,
    read_task,
    wanted_partitions,
)
from tierctl.spark.sources.remote_log_metadata import MetadataOptions
from tierctl.storage import open_store
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.cli.shell import tierctl
from tests.conftest import vectors
from tests.metadata.events import started, update
from tests.spark.metadata_logs import NOW_MS, Row, as_json, batches, topic_folders, write_log
from tests.spark.worlds import Capture
from tests.support.amounts import examples
from tests.support.servers import S3Server

CAPTURES = ("tiered-cluster", "untiered-broker", "unclean-leader", "aiven-plain", "aiven-encrypted")


def rows(folder: Path | str, *predicates: Predicate, records_per_task: int = 500_000) -> list[Row]:
    """Return the rows of the tasks, by partition and offset; each task is pickled as Spark does."""
    uri = folder if isinstance(folder, str) else f"file://{folder}"
    tasks = plan_tasks(
        TopicLocation(uri=uri), records_per_task=records_per_task, predicates=tuple(predicates)
    )
    sent = pickle.loads(pickle.dumps(tasks))
    return [row for task in sent for batch in read_task(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", CAPTURES)
def test_rows_of_a_capture_are_what_format_prints(name: str, capture: Capture) -> None:
    folders = topic_folders(capture(name))
    assert folders
    for folder in folders:
        ran = tierctl("format", "--metadata", f"file://{folder}", "--style", "json")
        assert ran.code == 0, ran.err
        expected = [json.loads(line) for line in ran.lines]
        assert expected
        assert [as_json(row) for row in rows(folder, records_per_task=7)] == expected


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
def test_rows_of_the_vectors_are_their_fields(dialect: str, tmp_path: Path) -> None:
    known = list(vectors(f"serde-{dialect}.jsonl"))
    write_log(tmp_path, 3, batches(bytes.fromhex(vector["hex"]) for vector in known))
    found = rows(tmp_path)
    assert [row["metadata_offset"] for row in found] == list(range(len(known)))
    assert {row["dialect"] for row in found} == {dialect}
    for row, vector in zip(found, known, strict=True):
        printed = as_json(row)
        assert {name: printed[name] for name in vector["fields"]} == vector["fields"]


def test_executors_open_the_topic_that_the_driver_opened(tmp_path: Path) -> None:
    """A broker may have its metadata partitions in several log directories."""
    location = TopicLocation(
        uri=tmp_path.as_uri(), command_config="/c", broker_config="/b", log_dirs=("/disk1", "/disk2")
    )
    given = MetadataOptions.of({"metadata": location.uri, **options_of(location)})
    assert replace(given.location, option=location.option) == location


GOOD = [encode(started(number)) for number in range(6)]
# What the cleaner leaves of a batch with the offsets 1 to 11.
SPARSE = encode_batch(
    [Record(4, NOW_MS + 4, None, GOOD[1]), Record(9, NOW_MS + 9, None, GOOD[2])],
    base_offset=1,
    last_offset=11,
)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """0 good, 1 no event, 2 tombstone, 3 damaged, 4 good, (5 to 8 compacted), 9 good, 10 damaged, 11 good."""
    made = batches([GOOD[0], b"\x01\x63\x00", None, GOOD[1], GOOD[2]])
    late = batches([GOOD[3], GOOD[4], GOOD[5]], base_offset=9)
    made[3] = made[3][:-1] + bytes([made[3][-1] ^ 1])
    late[1] = late[1][:-1] + bytes([late[1][-1] ^ 1])
    write_log(tmp_path, 0, [*made, *late])
    return tmp_path


def kind(row: Row) -> str:
    if row["is_gap"]:
        return "gap"
    if row["next_offset"] is not None:
        return "damage"
    if row["error"] is not None:
        return "quarantined"
    return "tombstone" if row["type"] is None else "event"


def offsets_of(found: list[Row]) -> Counter[tuple[int, str]]:
    """Return every offset of a row, with the row's error."""
    return Counter(
        (offset, kind(row))
        for row in found
        for offset in range(row["metadata_offset"], row["next_offset"] or row["metadata_offset"] + 1)
    )


DAMAGED = Counter(
    {
        **{(offset, "event"): 1 for offset in (0, 4, 9, 11)},
        **{(offset, "gap"): 1 for offset in (5, 6, 7, 8)},
        (1, "quarantined"): 1,
        (2, "tombstone"): 1,
        (3, "damage"): 1,
        (10, "damage"): 1,
    }
)


@pytest.mark.parametrize("conditions", [(), (Predicate("state", "is null", is_negated=True),)])
@pytest.mark.parametrize("has_damage", [False, True])
def test_only_the_columns_of_the_query_are_decoded(
    tmp_path: Path, has_damage: bool, conditions: tuple[Predicate, ...]
) -> None:
    made = batches([GOOD[0], b"\x01\x63\x00", None, GOOD[1], GOOD[2]])
    write_log(tmp_path, 0, [made[0], *made[3:]] if has_damage else made)
    location = TopicLocation(uri=f"file://{tmp_path}")
    whole = rows(tmp_path, *conditions)
    assert len(whole) >= 3
    for names in (("metadata_offset",), ("value", "topic_id"), ("error", "type", "segment_leader_epochs")):
        (task,) = plan_tasks(location, columns=names, predicates=conditions)
        found = [row for batch in read_task(task) for row in batch.to_pylist()]
        assert found == [{name: row[name] for name in names} for row in whole]


def test_nothing_that_can_not_be_read_is_lost(damaged: Path) -> None:
    found = rows(damaged)
    assert offsets_of(found) == DAMAGED
    assert [row["metadata_offset"] for row in found] == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    quarantined, broken = found[1], found[3]
    assert quarantined["value"] == b"\x01\x63\x00"
    assert "apiKey" in quarantined["error"]
    assert broken["error"].startswith("offsets 3 to 3: ")
    assert "CRC" in broken["error"]
    assert all(row["value"] is None for row in found if row is not quarantined)
    assert [row["timestamp_ms"] for row in found[:3]] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
    assert found[0]["timestamp"].timestamp() * 1000 == NOW_MS


@pytest.mark.parametrize("records_per_task", range(1, 14))
def test_each_offset_is_one_tasks_however_they_are_cut(damaged: Path, records_per_task: int) -> None:
    assert offsets_of(rows(damaged, records_per_task=records_per_task)) == DAMAGED


@pytest.mark.parametrize("records_per_task", range(1, 14))
def test_a_gap_within_a_batch_is_one_row_however_tasks_are_cut(mixed: Path, records_per_task: int) -> None:
    """Each task reported its part of the gap."""
    asked = Predicate("metadata_partition", "=", 2)
    found = rows(mixed, asked, records_per_task=records_per_task)
    assert [(row["metadata_offset"], row["next_offset"]) for row in found] == [
        *[(0, None), (1, 4), (4, None), (5, 9), (9, None), (10, 12), (12, None)]
    ]
    assert [row["is_gap"] for row in found] == [row["next_offset"] is not None for row in found]


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("records_per_task", [1, 2, 3, 10])
def test_bytes_between_records_are_told_of_once(
    tmp_path: Path, records_per_task: int, is_indexed: bool
) -> None:
    made = batches(GOOD)
    path = write_log(tmp_path, 0, [*made[:2], b"\0" * 5 + b"\xff" * 70, *made[2:4], b"\x07" * 30, *made[4:]])
    if is_indexed:
        after = len(made[0]) + len(made[1]) + 75
        path.with_suffix(".index").write_bytes(OffsetIndex.encode(0, [OffsetPosition(2, after)]).data)
    found = rows(tmp_path, records_per_task=records_per_task)
    assert [(row["metadata_offset"], row["next_offset"]) for row in found] == [
        *[(0, None), (1, None), (2, 2), (2, None), (3, None), (4, 4), (4, None), (5, None)]
    ]


PREDICATES = st.one_of(
    st.builds(
        Predicate,
        st.sampled_from(["metadata_offset", "partition", "event_timestamp_ms", "timestamp_ms"]),
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.sampled_from([0, 3, 4, 8, 9, 10, NOW_MS + 4]),
        st.booleans(),
    ),
    st.builds(Predicate, st.just("metadata_offset"), st.just("in"), st.just((1, 3, 9)), st.booleans()),
    st.builds(Predicate, st.just("metadata_partition"), st.just("="), st.sampled_from([0, 1]), st.booleans()),
    st.builds(Predicate, st.just("topic"), st.just("="), st.sampled_from(["orders", "x"]), st.booleans()),
    st.builds(
        Predicate,
        st.sampled_from(["type", "error", "value", "next_offset", "segment_leader_epochs"]),
        st.just("is null"),
        st.none(),
        st.booleans(),
    ),
)


def is_true(predicate: Predicate, row: Row) -> bool:
    """Return whether SQL would keep the row, computed independently in Python."""
    value = row[predicate.column]
    if predicate.operator == "is null":
        return (value is None) != predicate.is_negated
    if value is None:
        return False
    compared = {
        "=": lambda: value == predicate.value,
        "<": lambda: value < predicate.value,
        "<=": lambda: value <= predicate.value,
        ">": lambda: value > predicate.value,
        ">=": lambda: value >= predicate.value,
        "in": lambda: value in predicate.value,
    }
    return compared[predicate.operator]() != predicate.is_negated


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    made = batches([GOOD[0], b"\xff", None, GOOD[1], encode(update(1)), GOOD[2], GOOD[3]])
    made[5] = made[5][:-1] + bytes([made[5][-1] ^ 1])
    write_log(folder, 0, [*made, *batches([GOOD[4]], base_offset=9)])
    write_log(folder, 1, batches([GOOD[5], encode(update(5)), b""]))
    write_log(folder, 2, [*batches([GOOD[5]]), SPARSE, *batches([GOOD[4]], base_offset=12)])
    return folder


@examples(60)
@given(st.lists(PREDICATES, min_size=1, max_size=3), st.sampled_from([2, 3, 100]))
def test_predicates_leave_the_rows_they_are_true_of(
    mixed: Path, predicates: list[Predicate], records_per_task: int
) -> None:
    every = rows(mixed, records_per_task=records_per_task)
    expected = [row for row in every if all(is_true(predicate, row) for predicate in predicates)]
    found = rows(mixed, *predicates, records_per_task=records_per_task)
    assert found == expected


EVERYTHING = [(0, 0, 2), (0, 2, 4), (0, 4, 6), (1, 0, 1)]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        # A range of offsets of the second partition would run backwards.
        (Predicate("metadata_offset", "=", 4), [(0, 4, 5)]),
        (Predicate("metadata_offset", "<", 2), [(0, 0, 2), (1, 0, 1)]),
        (Predicate("metadata_offset", "<=", 3), [(0, 0, 2), (0, 2, 4), (1, 0, 1)]),
        (Predicate("metadata_offset", ">", 3), [(0, 4, 6)]),
        (Predicate("metadata_offset", ">=", 3), [(0, 3, 5), (0, 5, 6)]),
        (Predicate("metadata_offset", "in", (4, 1)), [(0, 1, 3), (0, 3, 5)]),
        (Predicate("metadata_offset", "<", 2, is_negated=True), EVERYTHING),
        (Predicate("metadata_offset", ">", 100), []),
        (Predicate("metadata_partition", "=", 1), [(1, 0, 1)]),
        (Predicate("metadata_partition", "in", (2, 3)), []),
        (Predicate("metadata_partition", "=", 0, is_negated=True), [(1, 0, 1)]),
    ],
)
def test_only_offsets_that_may_be_asked_for_are_read(
    tmp_path: Path, predicate: Predicate, expected: list[tuple[int, int, int]]
) -> None:
    for number, values in enumerate((GOOD, GOOD[:1])):
        write_log(tmp_path, number, batches(values))
    tasks = plan_tasks(TopicLocation(uri=f"file://{tmp_path}"), records_per_task=2, predicates=(predicate,))
    found = [(split.metadata_partition, split.start_offset, split.end_offset) for t in tasks for split in t]
    assert found == expected


def test_a_wide_gap_of_offsets_makes_no_more_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (metadata_splits, sys.modules[cut.__module__]):
        monkeypatch.setattr(module, "TASKS_MAX", 7)
    location, ranges = TopicLocation(uri="file:///topic"), {0: (3, 1 << 48), 1: (0, 1 << 60), 2: (5, 6)}
    tasks = event_tasks(location, ranges, records_per_task=2)
    assert len(tasks) == 7
    splits = [split for task in tasks for split in task]
    for found in (splits, cut(location, ranges, records_per_split=2)):
        assert len(found) <= 3 * 8
        for number, (start, end) in ranges.items():
            own = [
                (each.start_offset, each.end_offset) for each in found if each.metadata_partition == number
            ]
            assert (own[0][0], own[-1][1]) == (start, end)
            assert all(low < high == following for (low, high), (following, _) in pairwise(own))


def test_a_user_partition_is_looked_for_everywhere(tmp_path: Path) -> None:
    """In a topic that got more partitions, only its newest events need be where brokers look for them."""
    ids = [Uuid.from_bytes(number.to_bytes(16, "big")) for number in range(1, 41)]
    homes: dict[int, list[bytes]] = {}
    for topic_id in ids:
        home = metadata_partition(topic_id, 2, 5)
        homes.setdefault(home, []).append(encode(started(1, partition=2, topic_id=topic_id)))
    assert len(homes) == 5
    asked = (Predicate("topic_id", "in", (str(ids[7]), "no id")), Predicate("partition", "=", 2))
    home = metadata_partition(ids[7], 2, 5)
    other = homes[(home + 1) % 5]
    other += [*other * 100, encode(started(2, partition=2, topic_id=ids[7]))]
    for number, values in homes.items():
        write_log(tmp_path, number, batches(values))
    assert [row["topic_id"] for row in rows(tmp_path, *asked)] == [ids[7]] * 2
    only = Predicate("metadata_partition", "=", home)
    assert [row["start_offset"] for row in rows(tmp_path, *asked, only)] == [100]


@pytest.mark.parametrize("is_renamed", [False, True])
def test_segments_of_a_user_partition_are_looked_for_where_brokers_put_them(
    is_renamed: bool, tmp_path: Path
) -> None:
    """If partitions are missing, or their number was changed, the partition of a topic is unknown."""
    ids = [Uuid.from_bytes(number.to_bytes(16, "big")) for number in range(1, 41)]
    for home in range(5):
        own = [each for each in ids if metadata_partition(each, 2, 5) == home]
        events = [encode(started(1, partition=2, topic_id=each)) for each in own]
        write_log(tmp_path, 5 if is_renamed and home == 4 else home, batches(events))
    asked = (Predicate("topic_id", "in", (str(ids[7]), "no id")), Predicate("partition", "=", 2))
    with closing(open_topic(TopicLocation(uri=f"file://{tmp_path}"))) as topic:
        begins, ends = topic.beginning_offsets(), topic.end_offsets()
        found = wanted_partitions(topic, begins, ends, asked)
    assert found == (sorted(ends) if is_renamed else [metadata_partition(ids[7], 2, 5)])


def test_what_is_no_metadata_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no metadata topic"):
        rows(tmp_path)
    for uri in ("/tmp", "file://elsewhere/tmp", "kafka://host/path", "s4://bucket/x"):
        with pytest.raises(UsageError):
            rows(uri)


def test_a_copy_in_a_store_reads_as_the_folder(capture: Capture, s3_server: S3Server) -> None:
    folder, elsewhere = capture("tiered-cluster") / "after", f"s3://{s3_server.bucket()}/backup/kafka-1"
    store = open_store(elsewhere)
    files = {path.relative_to(folder).as_posix(): hashed_file(path) for path in folder.rglob("*.*")}
    store.put_all({name: file for name, file in files.items() if name.endswith(".log")})
    assert rows(elsewhere, records_per_task=5) == rows(folder, records_per_task=5)
    store.put_all({name: file for name, file in files.items() if name.endswith(".index")})
    asked = Predicate("metadata_offset", ">=", 9)
    assert rows(elsewhere, asked, records_per_task=5) == rows(folder, asked)


@given(
    st.dictionaries(
        st.integers(0, 60), st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda r: (r[0], sum(r)))
    ),
    st.integers(1, 70),
)
def test_tasks_read_each_offset_once_and_equally_many(
    ranges: dict[int, tuple[int, int]], records_per_task: int
) -> None:
    tasks = event_tasks(TopicLocation(uri="file:///t"), ranges, records_per_task=records_per_task)
    read = [
        (split.metadata_partition, offset)
        for task in tasks
        for split in task
        for offset in range(split.start_offset, split.end_offset)
    ]
    assert read == [(number, offset) for number, span in sorted(ranges.items()) for offset in range(*span)]
    sizes = [sum(split.end_offset - split.start_offset for split in task) for task in tasks]
    assert all(size <= records_per_task for size in sizes)
    assert len(set(sizes[:-1])) <= 1
    assert not sizes or sizes[-1] <= sizes[0]
    assert len(tasks) == -(-len(read) // records_per_task)


def test_many_small_metadata_partitions_are_few_tasks() -> None:
    location = TopicLocation(uri="file:///t")
    counts = [
        len(event_tasks(location, dict.fromkeys(range(50), (0, each))))
        for each in (0, 10, 20_000, 100_000, 1_000_000)
    ]
    assert counts == [0, 1, 2, 10, 100]


def test_a_time_that_no_record_can_have_is_asked_for_as_a_time_of_kafka() -> None:
    """A broker's request has 64 bits for it."""
    last = (1 << 63) - 1
    assert Window.of([Predicate("timestamp_ms", ">", last)], "metadata_offset").first_ms == last
