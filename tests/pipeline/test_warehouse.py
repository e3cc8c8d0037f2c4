"""The warehouse after many runs and kills equals that of one undisturbed run."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tierctl.errors import MetadataError, SafetyRefusal
from tierctl.files import PLAIN
from tierctl.model import MetadataEvent
from tierctl.pipeline import bucket_task
from tierctl.pipeline import update as run_of_pipeline
from tierctl.pipeline.bucket_task import BucketJob, BucketResult
from tierctl.wire.metadata.values import metadata_partition

from tests.cli.shell import tierctl
from tests.metadata.events import started, update
from tests.pipeline.tables import (
    COUNT,
    Rows,
    delta,
    lives,
    moved,
    pipeline,
    read,
    rows_of,
    run,
    run_once,
    step,
    write,
    write_all_kinds,
)
from tests.state.folding import encodable
from tests.state.histories import S, histories
from tests.support.amounts import examples

HOUR_MS, DAY_MS = 3_600_000, 86_400_000

pytestmark = pytest.mark.usefixtures("no_power_cuts")


class Killed(BaseException):
    """Raised in place of ending the process."""


_TOLD = ("severity", "check", "topic_id", "partition", "segment_id", "start_offset", "end_offset", "found")


def found_in(tables: Rows) -> list[list[Any]]:
    """Return the anomalies with the segment and reason of each."""
    return sorted(([row[column] for column in _TOLD] for row in tables["anomalies"]), key=repr)


def verified(topic: Path) -> list[list[Any]]:
    """Return the findings of verify about the metadata alone, from one read of the whole topic."""
    ran = tierctl("verify", "--metadata", topic, "--output", "json", "--now", 10**13)
    found = [each for each in json.loads(ran.out) if each["check"] != "stalled_retention"]
    return sorted(([finding[column] for column in _TOLD] for finding in found), key=repr)


SMALL = {"FILE_ROWS": [1, 3], "MERGED_FILES": [2, 3]}
"""File sizes so small that a few segments fill several files."""


def test_an_empty_topic_decides_nothing_for_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, [None])
    assert run(topic, warehouse) == 1
    write_all_kinds(topic)
    monkeypatch.setattr(run_of_pipeline, "BUCKET_OFFSETS", 2)
    run(topic, warehouse)
    once = tmp_path / "once"
    run(topic, once)
    first, second = (read(at, "commits").column("buckets").to_pylist() for at in (warehouse, once))
    assert first == second
    assert first[0] > 8
    assert rows_of(warehouse) == rows_of(once)


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 5), histories(8)), min_size=1, max_size=4), st.data())
def test_many_steps_make_what_one_makes(parts: list[tuple[int, list[MetadataEvent]]], data: Any) -> None:
    """Runs may end at any offset, in any metadata partition, and with files of any size.

    Events of a user partition may be in two metadata partitions, and have the same offsets there.
    """
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        for size, values in SMALL.items():
            patched.setattr(bucket_task, size, data.draw(st.sampled_from(values)))
        folder = Path(name)
        events = [moved(e, partition) for partition, life in parts for e in life if encodable(e)]
        # The topic may have had one partition, whose events were all read before it got more.
        old = data.draw(st.integers(0, len(events)))
        for among, written in ((1, events[:old]), (COUNT, events[old:])):
            write(folder / "topic", written or [None], among=among)
            with pipeline(folder / "topic", folder / "steps").opened() as steps:
                for _ in range(data.draw(st.integers(0, 3))):
                    step(steps, {n: data.draw(st.integers(0, 40)) for n in range(COUNT)})
            run(folder / "topic", folder / "steps")
        rows = rows_of(folder / "steps")
        assert rows == run_once(folder / "topic")
        assert found_in(rows) == verified(folder / "topic")


_COPIED: list[list[MetadataEvent]] = [[started(number), update(number)] for number in range(7)]
_GONE: list[MetadataEvent] = [update(1, S.DELETE_SEGMENT_STARTED), update(1, S.DELETE_SEGMENT_FINISHED)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([*_COPIED[1:3]], [_COPIED[3] + _COPIED[4], _GONE, _COPIED[5]]),
        ([[started(2), started(1)]], [[update(9), update(1)]]),
        ([*_COPIED[1:5]], [[started(6)], [update(6)]]),
    ],
    ids=["a deletion", "a change at the same offset", "changes at lower offsets"],
)
def test_events_in_two_metadata_partitions_of_a_topic_that_got_more(
    old: list[list[MetadataEvent]], new: list[list[MetadataEvent]], tmp_path: Path
) -> None:
    """Each commit makes the rows that one run over all events makes."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    assert metadata_partition(started(1).topic_id, 0, COUNT) > 0
    write(topic, [None])
    for among, commits in ((1, old), (COUNT, new)):
        for events in commits:
            write(topic, events, among=among)
            run(topic, warehouse)
            assert rows_of(warehouse) == run_once(topic)


def test_records_without_a_value_are_counted_over_all_commits(tmp_path: Path) -> None:
    """Brokers end at the first one: a table without them would say that nothing is wrong."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    told = []
    for records in ([started(1)], [b"", b""], [b"\x63what"], [started(2), b""]):
        write(topic, records)
        run(topic, warehouse)
        found = found_in(rows_of(warehouse))
        assert found == verified(topic)
        told.append([row[-1] for row in found if row[1] == "empty_record"])
    texts = [f"{count} without a value, the first at offset 0" for count in (2, 2, 3)]
    assert told == [[], *([text] for text in texts)]


def test_what_was_deleted_commits_ago_is_remembered(tmp_path: Path) -> None:
    """A dropped event needs the deleted segment's state, whether it was deleted before or in this run."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    gone = [started(1), update(1), update(1, S.DELETE_SEGMENT_STARTED), update(1, S.DELETE_SEGMENT_FINISHED)]
    again, unknown = update(1, S.DELETE_SEGMENT_STARTED), update(2, S.DELETE_SEGMENT_STARTED)
    known = []
    for events in ([started(9), *gone], [again], [unknown], [update(2, S.DELETE_SEGMENT_FINISHED)]):
        write(topic, events)
        run(topic, warehouse)
        found = found_in(rows_of(warehouse))
        assert found == verified(topic)
        known.append([row[0] for row in found if row[1] == "dropped_event"])
    assert known == [[], ["info"], ["info", "warning"], ["info", "info", "info"]]


def test_what_deleted_rows_of_events_would_tell_is_unknown(tmp_path: Path) -> None:
    """That an event is dropped because its segment was deleted; a later event may tell it again."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    begun, gone = update(1, S.DELETE_SEGMENT_STARTED), update(1, S.DELETE_SEGMENT_FINISHED)
    write(topic, [started(1), update(1), begun, gone, started(9), update(9, S.DELETE_SEGMENT_STARTED)])
    run(topic, warehouse)
    delta(warehouse, "events").delete("metadata_offset < 1000")
    known = []
    for event in (begun, started(8), update(9), gone):
        write(topic, [event])
        run(topic, warehouse)
        dropped = [row for row in rows_of(warehouse)["anomalies"] if row["check"] == "dropped_event"]
        known.append([(row["was_deleted"], "another program deleted" in row["found"]) for row in dropped])
    unknown, not_deleted, deleted = (None, True), (False, False), (True, False)
    assert known == [[unknown], [unknown], [unknown, not_deleted], [deleted, deleted, not_deleted]]


def test_nothing_new_changes_nothing(topic: Path, warehouse: Path) -> None:
    assert run(topic, warehouse) == 1
    files = {path: path.stat().st_mtime_ns for path in warehouse.rglob("*") if path.is_file()}
    assert run(topic, warehouse) == 1
    assert {path: path.stat().st_mtime_ns for path in warehouse.rglob("*") if path.is_file()} == files
    ends = dict(read(warehouse, "commits")["ends"][0].as_py())
    assert sum(ends.values()) == read(warehouse, "events").num_rows
    write(topic, lives(range(50, 51), partitions=1))
    assert run(topic, warehouse) == 2
    newer = delta(warehouse, "events").to_pyarrow_table(filters=[("batch", "=", 2)])
    # Only one metadata partition had new events: the files of the others are unchanged.
    assert len(newer) == 3
    assert len(set(newer["metadata_partition"].to_pylist())) == 1


def test_a_copy_becomes_dangling_although_nothing_is_written(tmp_path: Path, warehouse: Path) -> None:
    event = started(1)
    begun_ms = event.event_timestamp_ms
    write(tmp_path / "topic", [event])
    severities = []
    for after_ms in (0, HOUR_MS, HOUR_MS + 1, DAY_MS, DAY_MS + 1, 9 * DAY_MS):
        number = run(tmp_path / "topic", warehouse, now_ms=begun_ms + after_ms)
        rows = rows_of(warehouse)
        severities.append(
            (number, rows["anomalies"][0]["severity"], rows["partitions"][0]["dangling_copies"])
        )
    hanging, dangling = (2, "warning", 0), (3, "warning", 1)
    assert severities == [(1, "info", 0), (1, "info", 0), hanging, hanging, dangling, dangling]


@pytest.mark.parametrize("begun_ms", [-(1 << 63), -1, 10**13, (1 << 63) - 1])
def test_a_copy_that_was_begun_at_any_time_is_counted_as_its_anomaly_says(
    begun_ms: int, tmp_path: Path, warehouse: Path
) -> None:
    write(tmp_path / "topic", [replace(started(1), event_timestamp_ms=begun_ms)])
    run(tmp_path / "topic", warehouse)
    rows = rows_of(warehouse)
    assert [each["severity"] == "warning" for each in rows["anomalies"]] == [begun_ms < 0]
    assert rows["partitions"][0]["dangling_copies"] == (begun_ms < 0)


def test_a_log_that_was_cut_is_told_of_once(topic: Path, warehouse: Path) -> None:
    run(topic, warehouse)
    log = next(path for path in topic.rglob("*.log") if path.stat().st_size > 1000)
    with log.open("r+b") as stream:
        stream.truncate(log.stat().st_size // 2)
    numbers = [run(topic, warehouse) for _ in range(3)]
    assert numbers == [2, 2, 2]
    rows = rows_of(warehouse)
    assert any("an end at or after" in row["found"] for row in rows["anomalies"])


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("grown", range(7, 10))
def test_a_log_that_was_cut_and_grew_again(is_open: bool, grown: int, tmp_path: Path) -> None:
    """Other events have the offsets that were read: to fold the ones after them alone would be wrong."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    both = [[started(number), update(number)] for number in range(grown)]
    write(topic, [*both[1], *both[2], *both[3]])
    ids = {path: path.read_bytes() for path in topic.rglob("partition.metadata")}
    with pipeline(topic, warehouse).opened() as opened:
        step(opened)
        shutil.rmtree(topic)
        write(topic, [*both[1], *(event for events in both[5:] for event in events)])
        for path, content in ids.items():
            path.write_bytes(content)
        if is_open and grown > 7:
            with pytest.raises(SafetyRefusal, match="offset 5 of metadata partition 2 that was read before"):
                step(opened)
    with pytest.raises(SafetyRefusal, match=r"expected the record at .*, found another one"):
        run(topic, warehouse)


@pytest.mark.parametrize(
    ("before", "after"),
    [([(0, 100)], [(0, 100), (3, 150)]), ([(1, 100), (2, 150)], [(0, 100)])],
    ids=["more", "others"],
)
def test_a_copy_that_was_begun_again_with_other_epochs_has_the_same_row_after_each_run(
    before: list[tuple[int, int]], after: list[tuple[int, int]], tmp_path: Path
) -> None:
    first, other = replace(started(1), segment_leader_epochs=tuple(before)), started(2)
    again = replace(first, segment_leader_epochs=tuple(after))
    write(tmp_path / "topic", [first, again, again, other])
    with pipeline(tmp_path / "topic", tmp_path / "steps").opened() as steps:
        step(steps, dict.fromkeys(range(COUNT), 2))
    run(tmp_path / "topic", tmp_path / "steps")
    assert rows_of(tmp_path / "steps") == run_once(tmp_path / "topic")


def test_what_retention_deletes_while_it_is_read_is_missing_in_the_next_commit(tmp_path: Path) -> None:
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    for at in (1, 2):
        write(topic, [started(at)], segment_bytes=1)
    oldest = next(path for path in topic.rglob("0*0.log") if path.stat().st_size)

    def expired(_job: BucketJob) -> Iterator[BucketResult]:
        oldest.unlink()
        return iter(())

    number = int(oldest.parent.name.rpartition("-")[2])
    found = f"metadata partition {number}: retention deleted the offsets from 0 to 0"
    with pipeline(topic, warehouse).opened() as opened, pytest.raises(MetadataError, match=found):
        opened.step(expired, {number: 2})
    assert run(topic, warehouse) == 1
    assert read(warehouse, "commits")["missing"].to_pylist()[0][0]["end_offset"] == 1


def test_offsets_that_the_topic_lacks_are_not_taken_for_read(tmp_path: Path) -> None:
    """Its log was cut after Spark had planned the batch: later events have these offsets."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, [started(1)])
    number = metadata_partition(started(1).topic_id, 0, COUNT)
    with pipeline(topic, warehouse).opened() as opened:
        with pytest.raises(MetadataError, match=f"metadata partition {number} ends below offset 2"):
            opened.step(lambda _job: (), {number: 2})
        write(topic, [update(1)])
        step(opened)
    assert rows_of(warehouse) == run_once(topic)


def test_a_checkpoint_of_delta_is_durable(
    topic: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta deletes the logs before it, once they are old."""
    run(topic, warehouse)
    delta(warehouse, "segments").alter.set_table_properties({"delta.checkpointInterval": "1"})
    synced = list[tuple[str, Path]]()
    monkeypatch.setattr(PLAIN, "_observe", lambda *change: synced.append(change))
    write(topic, lives(range(60, 62)))
    run(topic, warehouse)
    made = max((warehouse / "segments" / "_delta_log").glob("*.checkpoint.parquet"))
    assert int(made.name.partition(".")[0]) == delta(warehouse, "segments").version()
    assert ("fsync", made) in synced


def test_a_warehouse_that_was_copied_during_a_commit(tmp_path: Path) -> None:
    """`commits` lacks the commit that the other tables have, which changed no number of rows."""
    topic, warehouse, older = (tmp_path / name for name in ("topic", "warehouse", "older"))
    begun_ms = started(1).event_timestamp_ms
    write(topic, [started(1)])
    run(topic, warehouse, now_ms=begun_ms)
    shutil.copytree(warehouse / "commits", older)
    assert run(topic, warehouse, now_ms=begun_ms + 9 * 86_400_000) == 2
    shutil.rmtree(warehouse / "commits")
    older.rename(warehouse / "commits")
    write(topic, [update(1)])
    with pytest.raises(SafetyRefusal, match="has commit 2, and commits only commit 1"):
        run(topic, warehouse)


def test_a_table_that_another_program_compacts_while_it_follows(
    topic: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta alone would add the new rows to the combined ones."""
    monkeypatch.setattr(bucket_task, "FILE_ROWS", 2)
    run(topic, warehouse)
    version = delta(warehouse, "segments").version()
    write(topic, [update(1, S.DELETE_SEGMENT_STARTED)])

    def compact(label: str) -> None:
        if label == "warehouse.follow.segments":
            delta(warehouse, "segments").optimize.compact()

    with pytest.raises(SafetyRefusal, match="replaced files of table segments"):
        run(topic, warehouse, effect=compact)
    delta(warehouse, "segments").restore(version)
    assert run(topic, warehouse) == 2
    assert rows_of(warehouse) == run_once(topic)


def killed_at(nth: int, topic: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run, and stop at the nth change of a file; return whether there were so many changes."""
    changes = 0

    def observe(operation: str, path: Path) -> None:
        nonlocal changes
        changes += 1
        if changes == nth:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(PLAIN, "_observe", observe)
        try:
            run(topic, warehouse)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("ends", [None, {0: 3, 1: 9, 2: 5, 3: 2}], ids=["first commit", "second commit"])
def test_stopped_at_a_change_of_a_file(
    topic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: dict[int, int] | None
) -> None:
    """Stop at every few changes: tables have the old or new commit, and the next run finishes."""
    begun, expected = tmp_path / "begun", tmp_path / "expected"
    run(topic, expected)
    after = rows_of(expected)
    before = after
    if ends is not None:
        with pipeline(topic, begun).opened() as opened:
            step(opened, ends)
        before = rows_of(begun)
    for nth in range(1, 1000, 15 if ends is None else 7):
        warehouse = tmp_path / f"warehouse-{nth}"
        if ends is not None:
            shutil.copytree(begun, warehouse)
        was_killed = killed_at(nth, topic, warehouse, monkeypatch)
        if ends is not None:
            assert all(rows in (before[t], after[t]) for t, rows in rows_of(warehouse).items())
        run(topic, warehouse)
        assert rows_of(warehouse) == after
        shutil.rmtree(warehouse)
        if not was_killed:
            assert nth > 30
            return
