"""The warehouse with other writers and readers, and changes of its files from commit to commit."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from tierctl.errors import CorruptInputError, LockedError, RemoteStorageError, SafetyRefusal, UsageError
from tierctl.model import MetadataEvent
from tierctl.pipeline import bucket_task, commits
from tierctl.pipeline import update as update_module
from tierctl.pipeline import warehouse as warehouse_open
from tierctl.pipeline.bucket_task import BucketJob, BucketResult
from tierctl.pipeline.commits import LakeTable, translated
from tierctl.pipeline.tables import SCHEMAS
from tierctl.pipeline.update import Batch, checkpoint_of, read_folded, read_warehouse
from tierctl.pipeline.warehouse import WarehouseSpec

from tests.cli.shell import tierctl
from tests.metadata.events import started, update
from tests.pipeline.tables import delta, lives, moved, pipeline, read, rows_of, run, run_once, step, write
from tests.state.histories import S

pytestmark = pytest.mark.usefixtures("no_power_cuts")


def test_one_pipeline_at_a_time(topic: Path, warehouse: Path) -> None:
    with pipeline(topic, warehouse).opened() as first:
        where = ("--metadata", topic, "--warehouse", warehouse)
        second = tierctl("pipeline", "run", *where)
        assert second.code == 6, second.err
        assert step(first).commit == 1


@pytest.fixture
def unlocked(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a warehouse whose lock has no effect, as on a file system without locks."""
    exclusive = warehouse_open.exclusive

    def kept_out(folder: Path, name: str) -> AbstractContextManager[None]:
        (folder / name).touch()
        return nullcontext() if folder == warehouse else exclusive(folder, name)

    monkeypatch.setattr(warehouse_open, "exclusive", kept_out)
    return warehouse


def race(topic: Path, warehouse: Path | str) -> list[int]:
    """Let two runs without a lock commit at the same time; return the numbers of the commits made."""
    meeting = threading.Barrier(2)

    def meet(label: str) -> None:
        if label == "warehouse.commit":
            meeting.wait(60)

    def step() -> int:
        try:
            return run(topic, warehouse, effect=meet)
        except LockedError:
            return 0

    with ThreadPoolExecutor(2) as pool:
        return sorted(future.result() for future in [pool.submit(step), pool.submit(step)])


def test_of_two_writers_one_commits(topic: Path, unlocked: Path) -> None:
    run(topic, unlocked)
    write(topic, lives(range(82, 83)))
    assert race(topic, unlocked) == [0, 2]
    assert rows_of(unlocked) == run_once(topic)


def test_a_run_notices_a_commit_of_another(topic: Path, unlocked: Path) -> None:
    with pipeline(topic, unlocked).opened() as late:
        step(late)
        write(topic, lives(range(90, 91)))
        assert run(topic, unlocked) == 2
        with pytest.raises(LockedError, match="commit 2"):
            step(late)


@pytest.mark.parametrize("name", ["notes.txt", "segments/own.parquet"])
def test_a_place_of_something_else(topic: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "full" / name
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UsageError, match="is not empty and not a warehouse"):
        run(topic, tmp_path / "full")


@pytest.mark.parametrize("name", ["a%20b", r"a\b", "a\nb", "100%", "a b#?[1]*:'ü"])
def test_a_path_that_deltalake_misreads(name: str, topic: Path, tmp_path: Path) -> None:
    """It would put the tables elsewhere: those of a%20b into a b."""
    warehouse = tmp_path / name / "warehouse"
    if name in {"100%", "a b#?[1]*:'ü"}:
        assert run(topic, warehouse) == 1
        assert read_warehouse(WarehouseSpec.of(warehouse.as_uri())).commit.number == 1
        assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "topic"])
        return
    spec = WarehouseSpec.of(warehouse.as_uri())
    for use in (partial(run, topic, warehouse), partial(read_warehouse, spec)):
        with pytest.raises(UsageError, match="for another name"):
            use()
    assert [each.name for each in tmp_path.iterdir()] == ["topic"]


def test_only_files_of_tables_are_deleted(topic: Path, warehouse: Path) -> None:
    """A vacuum of Delta alone would delete all that is no file of the table, also behind links."""
    elsewhere = warehouse.with_name("elsewhere")
    run(topic, warehouse)
    table = warehouse / "segments"
    used = sorted(table.rglob("*.parquet"))
    elsewhere.mkdir()
    (table / "bucket=99").symlink_to(elsewhere)
    kept = [elsewhere / "00000000000000000000.log", table / "notes.txt", elsewhere / "rows.parquet"]
    left = [used[0].with_name("part-00001-0123456789ab-7.parquet" + end) for end in ("", ".tmp")]
    for path in (*kept, *left):
        path.write_text("old")
        os.utime(path, (10**9, 10**9))
    opened = LakeTable(WarehouseSpec.of(warehouse.as_uri()).open(), "segments", SCHEMAS["segments"])
    assert opened.refresh()
    opened.vacuum()
    assert [path.exists() for path in (*kept, *left)] == [True, True, True, False, False]
    assert all(path.exists() for path in used)

    other = elsewhere / left[0].name
    other.write_text("of other tables")
    os.utime(other, (10**9, 10**9))
    with pytest.raises(SafetyRefusal, match="bucket=99 is not a plain folder"):
        opened.vacuum()
    assert other.exists()


@pytest.mark.parametrize("days", [0, 30])
def test_a_table_says_how_long_a_file_is_kept(days: int, topic: Path, warehouse: Path) -> None:
    run(topic, warehouse)
    if days:
        kept = {"delta.deletedFileRetentionDuration": f"interval {days} days"}
        delta(warehouse, "segments").alter.set_table_properties(kept)
    used = next((warehouse / "segments").rglob("*.parquet"))
    path = used.with_name("part-00001-0123456789ab-7.parquet")
    path.touch()
    two_days_ago_s = time.time() - 2 * 86_400
    os.utime(path, (two_days_ago_s, two_days_ago_s))
    opened = LakeTable(WarehouseSpec.of(warehouse.as_uri()).open(), "segments", SCHEMAS["segments"])
    assert opened.refresh()
    opened.vacuum()
    assert path.exists() is bool(days)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 99},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew"]},
    ],
)
def test_no_file_of_a_table_that_is_not_understood_is_deleted(
    protocol: dict[str, Any], topic: Path, warehouse: Path
) -> None:
    run(topic, warehouse)
    table = warehouse / "segments"
    path = next(table.rglob("*.parquet")).with_name("part-00001-0123456789ab-7.parquet")
    path.touch()
    os.utime(path, (10**9, 10**9))
    opened = LakeTable(WarehouseSpec.of(warehouse.as_uri()).open(), "segments", SCHEMAS["segments"])
    assert opened.refresh()
    log = table / "_delta_log" / f"{opened.opened.version() + 1:020d}.json"
    log.write_text(json.dumps({"protocol": protocol}))
    assert opened.refresh()
    opened.vacuum()
    assert path.exists()


def test_a_table_that_was_lost_is_not_made_anew(topic: Path, warehouse: Path) -> None:
    run(topic, warehouse)
    shutil.rmtree(warehouse / "segments")
    with pytest.raises(SafetyRefusal, match="table segments is not in the warehouse, in which commits has"):
        run(topic, warehouse)
    assert not (warehouse / "segments").exists()


@pytest.mark.parametrize("is_link", [True, False])
def test_only_a_checkpoint_of_a_stream_is_deleted(is_link: bool, topic: Path, warehouse: Path) -> None:
    """A checkpoint that stays would be the one from which the stream goes on."""
    checkpoint, elsewhere = warehouse / "_checkpoint", warehouse.with_name("elsewhere")
    run(topic, warehouse)
    (elsewhere / "offsets").mkdir(parents=True)
    (elsewhere / "metadata").write_text("{}")
    if is_link:
        checkpoint.symlink_to(elsewhere)
    else:
        elsewhere.rename(checkpoint)
        (checkpoint / "photos").mkdir()
    with pipeline(topic, warehouse).opened() as opened:
        found = "a symbolic link" if is_link else "photos in it"
        with pytest.raises(SafetyRefusal, match=f"found {found}"), checkpoint_of(opened):
            pass
        assert (checkpoint / "metadata").exists()
        (checkpoint.unlink if is_link else (checkpoint / "photos").rmdir)()
        with checkpoint_of(opened):
            assert not checkpoint.exists()


NEXT = '{"next_offsets": {"0": 0, "1": 0, "2": 0, "3": 0}}'


@pytest.mark.parametrize(
    ("file", "content", "is_kept"),
    [
        ("offsets/1", f"v1\n{{}}\n{NEXT}", True),
        ("offsets/1", "v1\n{}\n" + NEXT.replace('"2": 0', '"2": 7'), False),
        ("offsets/1", "", False),
        ("offsets/1", 'v1\n{}\n{"next_offsets":[]}', False),
        ("offsets/0", "", False),
        ("commits/0", "", False),
        ("metadata", "", False),
        ("metadata", "[]", False),
    ],
)
def test_a_damaged_checkpoint_is_replaced(
    file: str, content: str, is_kept: bool, tmp_path: Path, warehouse: Path
) -> None:
    """A power cut leaves empty files, at which Spark would stop; a log may be cut below a planned batch."""
    topic, checkpoint = tmp_path / "topic", warehouse / "_checkpoint"
    write(topic, [None])
    with pipeline(topic, warehouse).opened() as opened:
        opened.step(lambda _job: (), dict.fromkeys(range(4), 0), Batch("q", 0))
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        (checkpoint / "metadata").write_text('{"id": "q"}')
        (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{NEXT}")
        (checkpoint / "offsets" / "1").write_text(f"v1\n{{}}\n{NEXT}")
        (checkpoint / "commits" / "0").write_text("v1\n{}")
        (checkpoint / file).write_text(content)
        with checkpoint_of(opened):
            assert checkpoint.exists() is is_kept


def test_no_checkpoint_is_used_through_a_link(topic: Path, warehouse: Path) -> None:
    """This one fits the tables: a stream planned its first batch."""
    elsewhere = warehouse.with_name("elsewhere")
    (elsewhere / "offsets").mkdir(parents=True)
    (elsewhere / "offsets" / "0").touch()
    (elsewhere / "metadata").write_text('{"id": "q"}')
    with pipeline(topic, warehouse).opened() as opened:
        (warehouse / "_checkpoint").symlink_to(elsewhere)
        with pytest.raises(SafetyRefusal, match="found a symbolic link"), checkpoint_of(opened):
            pass


def test_another_topics_warehouse_after_a_copy_without_an_id(topic: Path, warehouse: Path) -> None:
    copy, other = topic.with_name("copy"), topic.with_name("other")
    run(topic, warehouse)
    write(topic, lives(range(70, 72)))
    shutil.copytree(topic, copy)
    for file in copy.rglob("partition.metadata"):
        file.unlink()
    assert run(copy, warehouse) == 2
    write(other, [None])
    with pytest.raises(SafetyRefusal, match="is of metadata topic"):
        run(other, warehouse)


@pytest.mark.parametrize("has_commit", [True, False])
@pytest.mark.parametrize("when", ["before a step", "in a step"])
def test_a_topic_that_is_created_again_during_a_run(when: str, has_commit: bool, tmp_path: Path) -> None:
    """A stream of Spark opens the topic for each batch: its offsets would be those of another topic."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, lives(range(2)))

    def create_again() -> None:
        shutil.rmtree(topic)
        write(topic, lives(range(20, 24)))

    def fold(_job: BucketJob) -> Iterator[BucketResult]:
        create_again()
        return iter(())

    with pipeline(topic, warehouse).opened() as opened:
        if has_commit:
            step(opened)
        before, go_on = opened.latest, partial(opened.step, fold, {0: 1})
        if when == "before a step":
            create_again()
            go_on = partial(step, opened)
        with pytest.raises(SafetyRefusal, match="is of metadata topic"):
            go_on()
        assert opened.latest == before
    assert read(warehouse, "events").num_rows == has_commit * len(lives(range(2)))


def test_a_topic_that_gets_more_partitions_during_a_run(topic: Path, warehouse: Path) -> None:
    with pipeline(topic, warehouse).opened() as opened:
        step(opened)
        shutil.copytree(topic / "__remote_log_metadata-0", topic / "__remote_log_metadata-4")
        with pytest.raises(SafetyRefusal, match="has 5 partitions, but had 4"):
            step(opened)


def test_a_part_of_the_topic(topic: Path, warehouse: Path) -> None:
    """The number of metadata partitions decides where events belong, and is not known."""
    shutil.rmtree(topic / "__remote_log_metadata-1")
    with pytest.raises(CorruptInputError, match="none numbered 1"):
        run(topic, warehouse)


@pytest.mark.parametrize("table", ["segments", "partitions", "anomalies"])
def test_damage_is_found(topic: Path, warehouse: Path, table: str) -> None:
    """The fold continues from the rows of these tables."""
    run(topic, warehouse)
    write(topic, lives(range(70, 72)))
    for path in (warehouse / table).rglob("*.parquet"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
    with pytest.raises(CorruptInputError, match=table):
        run(topic, warehouse)


def test_tables_that_another_program_compacted(topic: Path, warehouse: Path) -> None:
    """Delta's own tools may combine the files of a table, and delete the old files."""
    more = lives(range(70, 72))
    write(topic, lives(range(60, 70), partitions=9))
    run(topic, warehouse)
    for table in ("segments", "partitions", "events"):
        delta(warehouse, table).optimize.compact()
        delta(warehouse, table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert run(topic, warehouse) == 1
    write(topic, more)
    run(topic, warehouse)
    assert rows_of(warehouse) == run_once(topic)


def test_a_table_that_another_program_compacted_in_the_middle_of_a_commit(
    topic: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed before the table followed; the files that the commit replaces are combined then."""
    monkeypatch.setattr(bucket_task, "FILE_ROWS", 2)
    run(topic, warehouse)
    version = delta(warehouse, "segments").version()
    write(topic, [update(1, S.DELETE_SEGMENT_STARTED)])
    killed(topic, warehouse, "warehouse.follow.segments")
    delta(warehouse, "segments").optimize.compact()
    for _ in range(2):
        with pytest.raises(SafetyRefusal, match="replaced files of table segments") as e:
            run(topic, warehouse)
        assert "DeltaTable.restore" in str(e.value.hint)
    delta(warehouse, "segments").restore(version)
    assert run(topic, warehouse) == 2
    assert rows_of(warehouse) == run_once(topic)


def test_files_of_a_commit_that_another_program_deleted_before_it_was_complete(
    topic: Path, warehouse: Path
) -> None:
    """No table refers to them, and they are older than the table keeps files: a vacuum deletes them."""
    run(topic, warehouse)
    write(topic, lives(range(60, 62)))
    killed(topic, warehouse, "warehouse.follow.segments")
    for path in (warehouse / "segments").rglob("*.parquet"):
        os.utime(path, (10**9, 10**9))
    assert delta(warehouse, "segments").vacuum(dry_run=False, full=True)
    version = delta(warehouse, "segments").version()
    for _ in range(2):
        with pytest.raises(SafetyRefusal, match=r"that it adds are gone, segments/bucket="):
            run(topic, warehouse)
    assert delta(warehouse, "segments").version() == version


@pytest.fixture
def grown(topic: Path, warehouse: Path) -> Path:
    """Return a warehouse with two commits, each with files in every table."""
    run(topic, warehouse)
    write(topic, [*lives(range(60, 62), partitions=9), update(99)])
    assert run(topic, warehouse) == 2
    return warehouse


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("events", "restored"),
        ("events", "emptied"),
        ("events", "appended"),
        ("events", "updated"),
        ("segments", "restored"),
        ("segments", "deleted"),
        *(pytest.param(each, "restored", marks=pytest.mark.matrix) for each in ("commits", "anomalies")),
        *(pytest.param("partitions", each, marks=pytest.mark.matrix) for each in ("restored", "deleted")),
    ],
)
def test_rows_that_another_program_changed(table: str, change: str, topic: Path, grown: Path) -> None:
    """The fold goes on from the rows of the last commit, which a version of the table still has."""
    opened = delta(grown, table)
    version = opened.version()
    if change == "deleted":
        opened.delete("topic_id IS NOT NULL AND bucket >= 0")
    elif change == "appended":
        write_deltalake(opened, opened.to_pyarrow_table(), mode="append")
    elif change == "updated":
        opened.update(updates={"topic": "'other'"})
    else:
        opened.restore(version - 1 if change == "restored" else 0)
    write(topic, lives(range(70, 72)))
    uses: list[Callable[[], object]] = [
        partial(run, topic, grown),
        partial(read_warehouse, WarehouseSpec.of(grown.as_uri())),
    ]
    # A reader of the state reads no events.
    for use in uses[: 1 if table == "events" else 2]:
        with pytest.raises(SafetyRefusal, match=f"table {table}") as e:
            use()
        assert "another program" in e.value.message
        assert "DeltaTable.restore" in str(e.value.hint)
    delta(grown, table).restore(version)
    assert run(topic, grown) == 3
    assert rows_of(grown) == run_once(topic)


def test_a_warehouse_of_a_newer_tierctl(topic: Path, grown: Path) -> None:
    """It may have any other columns."""
    row = read(grown, "commits").to_pylist()[0]
    own = Transaction("tierctl-pipeline", row["number"])
    newer = pa.Table.from_pylist([{"version": 2, "number": "two"}])
    properties = CommitProperties(app_transactions=[own])
    opened = delta(grown, "commits")
    write_deltalake(opened, newer, mode="overwrite", schema_mode="overwrite", commit_properties=properties)
    write(topic, lives(range(70, 72)))
    for use in (partial(run, topic, grown), partial(read_warehouse, WarehouseSpec.of(grown.as_uri()))):
        with pytest.raises(SafetyRefusal, match="found version 2, which a newer tierctl wrote") as e:
            use()
        assert e.value.hint == "run that tierctl, or use another --warehouse"


@pytest.mark.parametrize("table", ["commits", "segments"])
def test_a_table_that_another_program_made_append_only(table: str, topic: Path, grown: Path) -> None:
    """No other run has to end first; a commit that was made before is finished."""
    delta(grown, table).alter.set_table_properties({"delta.appendOnly": "true"})
    write(topic, lives(range(70, 72)))
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match=f"of table {table}: .* append-only") as e:
            run(topic, grown)
        assert "delta.appendOnly to false" in str(e.value.hint)
    delta(grown, table).alter.set_table_properties({"delta.appendOnly": "false"})
    assert run(topic, grown) == 3
    assert rows_of(grown) == run_once(topic)


@pytest.mark.parametrize(
    ("name", "is_read"),
    [("rowTracking", False), ("inCommitTimestamp", False), ("clustering", False), ("ours", True)],
)
def test_a_feature_that_deltalake_does_not_write(name: str, is_read: bool, topic: Path, grown: Path) -> None:
    features: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [name]}
    if is_read:
        features |= {"minReaderVersion": 3, "readerFeatures": [name]}
    version = delta(grown, "segments").version() + 1
    log = grown / "segments" / "_delta_log" / f"{version:020d}.json"
    log.write_text(json.dumps({"protocol": features}))
    write(topic, lives(range(70, 72)))
    with pytest.raises(RemoteStorageError, match="Unsupported") as e:
        run(topic, grown)
    assert "DROP FEATURE" in str(e.value.hint)


def forget(warehouse: Path, table: str) -> None:
    """Let Delta delete the logs of a table, which are old, but the last one, which changes no rows."""
    delta(warehouse, table).alter.set_table_properties({"delta.checkpointInterval": "50"})
    for path in (warehouse / table / "_delta_log").glob("*.json"):
        os.utime(path, (10**9, 10**9))
    opened = delta(warehouse, table)
    opened.create_checkpoint()
    opened.cleanup_metadata()
    assert len(list((warehouse / table / "_delta_log").glob("*.json"))) <= 1


@pytest.mark.parametrize(
    ("table", "change"),
    [("events", "added"), ("segments", "deleted"), ("segments", "combined"), ("commits", "added")],
)
def test_a_change_of_rows_of_which_no_log_tells(table: str, change: str, topic: Path, grown: Path) -> None:
    """The last commit says how many rows a table has."""
    opened = delta(grown, table)
    if change == "added":
        write_deltalake(opened, opened.to_pyarrow_table(), mode="append")
    elif change == "deleted":
        opened.delete("start_offset >= 300")
    else:
        opened.optimize.z_order(["start_offset"])
        log = grown / table / "_delta_log" / f"{opened.version():020d}.json"
        # Other writers may state no number of rows.
        log.write_text(re.sub(r',"stats":"([^"\\]|\\.)*"', "", log.read_text()))
    forget(grown, table)
    write(topic, lives(range(70, 72)))
    if change == "combined":
        assert run(topic, grown) == 3
        assert rows_of(grown) == run_once(topic)
        return
    uses: list[Callable[[], object]] = [
        partial(run, topic, grown),
        partial(read_warehouse, WarehouseSpec.of(grown.as_uri())),
    ]
    for use in uses[: 1 if table == "events" else 2]:
        with pytest.raises(SafetyRefusal, match=f"changed rows of table {table}: (it has|expected)"):
            use()


def test_old_events_that_another_program_deleted(topic: Path, grown: Path) -> None:
    """No fold goes on from them."""
    delta(grown, "events").delete("metadata_offset < 5")
    write(topic, lives(range(70, 72)))
    assert run(topic, grown) == 3
    rows, expected = rows_of(grown), run_once(topic)
    assert rows.pop("events") == [each for each in expected.pop("events") if each["metadata_offset"] >= 5]
    assert rows == expected


def test_a_change_during_a_run(topic: Path, warehouse: Path) -> None:
    with pipeline(topic, warehouse).opened() as opened:
        step(opened)
        delta(warehouse, "segments").delete()
        write(topic, lives(range(70, 72)))
        with pytest.raises(SafetyRefusal, match="rows of table segments: version 2, DELETE"):
            step(opened)


def killed(topic: Path, warehouse: Path, step: str) -> None:
    """Run until a step of a commit."""

    def stop(label: str) -> None:
        if label == step:
            raise RuntimeError(label)

    with pytest.raises(RuntimeError, match=step):
        run(topic, warehouse, effect=stop)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return what a reader's pauses call, one after the other."""
    calls: list[Callable[[], object]] = []
    clock = SimpleNamespace(sleep=lambda _seconds: calls and calls.pop(0)())
    monkeypatch.setattr(update_module, "time", clock)
    return calls


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("step", ["segments", "partitions", "anomalies"])
def test_a_commit_is_read_once_all_tables_follow_it(
    step: str, is_first: bool, topic: Path, warehouse: Path, slept: list[Callable[[], object]]
) -> None:
    spec = WarehouseSpec.of(warehouse.as_uri())
    if not is_first:
        run(topic, warehouse)
        write(topic, [*lives(range(60, 62), partitions=9), update(99)])
    killed(topic, warehouse, f"warehouse.follow.{step}")
    with pytest.raises(RemoteStorageError, match="is not complete"):
        read_warehouse(spec)
    slept.append(lambda: None)
    slept.append(lambda: run(topic, warehouse))
    contents = read_warehouse(spec)
    assert not slept
    states = [read_folded(spec, contents, bucket) for bucket in range(contents.commit.buckets)]
    rows = rows_of(warehouse)
    assert sum(part.segment_count for state in states for part in state) == len(rows["segments"])
    assert len(contents.partitions) == len(rows["partitions"])


def test_a_table_that_is_newer_than_the_commit_is_not_read(
    topic: Path, warehouse: Path, slept: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run makes a commit while a reader opens one table after the other."""
    run(topic, warehouse)
    write(topic, lives(range(60, 62), partitions=9))
    refresh, runs = LakeTable.refresh, [lambda: run(topic, warehouse)]

    def meet(table: LakeTable) -> bool:
        found = refresh(table)
        if table.name == "commits" and runs:
            runs.pop()()
        return found

    monkeypatch.setattr(LakeTable, "refresh", meet)
    contents = read_warehouse(WarehouseSpec.of(warehouse.as_uri()))
    assert (contents.commit.number, len(contents.partitions)) == (2, len(rows_of(warehouse)["partitions"]))


def test_a_commit_without_files_of_a_table_is_complete_without_it(tmp_path: Path) -> None:
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    for number in range(1, 3):
        write(topic, [started(number), update(number)])
        run(topic, warehouse)
    assert delta(warehouse, "anomalies").version() == 0
    assert read_warehouse(WarehouseSpec.of(warehouse.as_uri())).commit.number == 2


@pytest.fixture
def every_fourth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Combine small files in every fourth commit."""
    monkeypatch.setattr(commits, "COMPACT_EVERY", 4)


@pytest.mark.usefixtures("every_fourth")
@pytest.mark.parametrize("by_another", [False, True])
def test_small_commits_are_compacted(by_another: bool, tmp_path: Path) -> None:
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"

    def compact(label: str) -> None:
        if by_another and label == "warehouse.compact":
            delta(warehouse, "events").optimize.compact()

    write(topic, [None])
    with pipeline(topic, warehouse, effect=compact).opened() as opened:
        for number in range(commits.COMPACT_EVERY + 2):
            write(topic, lives(range(number, number + 1), partitions=1))
            step(opened)
    assert len(delta(warehouse, "events").file_uris()) <= 4
    assert rows_of(warehouse) == run_once(topic)


@pytest.mark.usefixtures("every_fourth")
def test_nothing_is_deleted_once_the_lease_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease expires while small files are combined."""
    topic, seen = tmp_path / "topic", list[str]()
    monkeypatch.setattr(
        warehouse_open.Warehouse, "is_lost", lambda _warehouse: seen[-1:] == ["warehouse.compact"]
    )
    write(topic, [None])
    with pipeline(topic, tmp_path / "warehouse", effect=seen.append).opened() as opened:
        for number in range(commits.COMPACT_EVERY - 1):
            write(topic, lives(range(number, number + 1), partitions=1))
            step(opened)
        write(topic, lives(range(commits.COMPACT_EVERY, commits.COMPACT_EVERY + 1), partitions=1))
        with pytest.raises(LockedError, match="lease"):
            step(opened)
    assert seen[-1] == "warehouse.compact"


def test_a_run_replaces_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files with the newest segments, and with user partitions that have new events."""
    monkeypatch.setattr(bucket_task, "FILE_ROWS", 8)
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, [None])
    numbers = [number for number in range(61) if number % 5]
    lived = [e for number in numbers for e in lives(range(number, number + 1))]
    write(topic, [later(event) for event in lived])
    run(topic, warehouse)
    before = {table: set(delta(warehouse, table).file_uris()) for table in ("segments", "partitions")}
    write(topic, [later(event) for event in lives(range(61, 62), partitions=1)])
    run(topic, warehouse)
    after = {table: set(delta(warehouse, table).file_uris()) for table in before}
    assert len(before["segments"]) > 10
    assert len(before["segments"] - after["segments"]) <= 1
    assert len(before["partitions"]) == 3
    assert len(before["partitions"] & after["partitions"]) == 2
    assert rows_of(warehouse) == run_once(topic)


def later(event: Any) -> MetadataEvent:
    """Return the event with timestamps later than those of lower offsets, and a new segment id."""
    own: Any = moved(event, event.partition)
    is_start = hasattr(own, "max_timestamp_ms")
    timed: MetadataEvent = replace(own, max_timestamp_ms=own.start_offset) if is_start else own
    return timed


def test_executors_and_other_commands_do_not_import_deltalake() -> None:
    modules = "tierctl.pipeline.bucket_task, tierctl.commands.pipeline, tierctl.commands.what_if"
    code = f"import sys, {modules}; print('deltalake' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Generic LocalFileSystem error: No space left on device (os error 28)", "the disk is full"),
        ("Generic LocalFileSystem error: a log without its end", "the table is damaged"),
    ],
)
def test_the_hint_of_an_error_of_the_operating_system_is_its_remedy(text: str, hint: str) -> None:
    with pytest.raises(RemoteStorageError) as failed, translated("writing"):
        raise OSError(text)
    assert hint in str(failed.value.hint)
