"""Rows of the metadata topic, task by task, without Spark: of captures, of vectors and of damaged logs."""

import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tierctl.spark.metadata_predicates import Predicate
from tierctl.spark.metadata_rows import read_split
from tierctl.spark.metadata_split import TopicLocation, plan_splits
from tierctl.wire.metadata import encode

from tests.cli.shell import tierctl
from tests.conftest import vectors
from tests.metadata.events import started, update
from tests.spark.metadata_logs import NOW_MS, Row, as_json, batches, topic_folders, write_log

Capture = Callable[[str], Path]
CAPTURES = ("tiered-cluster", "untiered-broker", "unclean-leader", "aiven-plain", "aiven-encrypted")


def rows(folder: Path | str, *predicates: Predicate, records_per_split: int = 500_000) -> list[Row]:
    """What the tasks make, in order of partition and offset; every task is sent as Spark would."""
    uri = folder if isinstance(folder, str) else f"file://{folder}"
    splits = plan_splits(
        TopicLocation(uri=uri), records_per_split=records_per_split, predicates=tuple(predicates)
    )
    sent = pickle.loads(pickle.dumps(splits))
    return [row for split in sent for batch in read_split(split) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", CAPTURES)
def test_rows_of_a_capture_are_what_format_prints(name: str, capture: Capture) -> None:
    folders = topic_folders(capture(name))
    assert folders
    for folder in folders:
        ran = tierctl("format", "--metadata", f"file://{folder}", "--style", "json")
        assert ran.code == 0, ran.err
        expected = [json.loads(line) for line in ran.lines]
        assert expected
        assert [as_json(row) for row in rows(folder, records_per_split=7)] == expected


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


GOOD = [encode(started(number)) for number in range(6)]


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
    """Every offset that a row speaks of, and what it says."""
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


@pytest.mark.parametrize("records_per_split", range(1, 14))
def test_each_offset_is_one_tasks_however_they_are_cut(damaged: Path, records_per_split: int) -> None:
    assert offsets_of(rows(damaged, records_per_split=records_per_split)) == DAMAGED


@pytest.mark.parametrize("records_per_split", [1, 2, 3, 10])
def test_bytes_between_records_are_told_of_once(tmp_path: Path, records_per_split: int) -> None:
    made = batches(GOOD)
    write_log(tmp_path, 0, [*made[:2], b"\0" * 5 + b"\xff" * 70, *made[2:4], b"\x07" * 30, *made[4:]])
    found = rows(tmp_path, records_per_split=records_per_split)
    assert [(row["metadata_offset"], row["next_offset"]) for row in found if row["error"]] == [(2, 2), (4, 4)]
    assert [row["metadata_offset"] for row in found if not row["error"]] == list(range(6))


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
    """Whether SQL would keep the row, said anew in Python."""
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
    return folder


@settings(max_examples=60, deadline=None)
@given(st.lists(PREDICATES, min_size=1, max_size=3), st.sampled_from([2, 3, 100]))
def test_predicates_leave_the_rows_they_are_true_of(
    mixed: Path, predicates: list[Predicate], records_per_split: int
) -> None:
    every = rows(mixed, records_per_split=records_per_split)
    expected = [row for row in every if all(is_true(predicate, row) for predicate in predicates)]
    found = rows(mixed, *predicates, records_per_split=records_per_split)
    assert found == expected
