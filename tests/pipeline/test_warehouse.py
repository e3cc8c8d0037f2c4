"""The warehouse after many steps, after kills and beside others is that of one run that nobody disturbed."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, LockedError, SafetyRefusal, UsageError
from tierctl.files import PLAIN
from tierctl.model import MetadataEvent, RemotePartitionDeleteState, Uuid
from tierctl.pipeline import partition_groups, segment_files
from tierctl.pipeline.warehouse import open as warehouse_open
from tierctl.pipeline.warehouse.commits import COMPACT_EVERY

from tests.apply.conftest import Zygote
from tests.cli.shell import tierctl
from tests.metadata.events import partition_delete, started, update
from tests.pipeline.tables import COUNT, Rows, delta, pipeline, read, rows_of, run, write
from tests.state.folding import encodable
from tests.state.histories import S, histories

DAY_MS = 86_400_000


def lives(numbers: range, partitions: int = 3) -> list[MetadataEvent]:
    """Segments copied, the first of them deleted."""
    events: list[MetadataEvent] = []
    for number in numbers:
        for partition in range(partitions):
            events += [started(number, partition=partition), update(number, partition=partition)]
            if number % 5 == 0:
                events.append(update(number, S.DELETE_SEGMENT_STARTED, partition=partition))
    return events


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a disk shows nothing where no power cut is played."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Four metadata partitions with a little of everything."""
    folder = tmp_path / "topic"
    odd = [update(77), update(0, S.DELETE_SEGMENT_FINISHED), update(0, S.DELETE_SEGMENT_FINISHED)]
    mark = partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition=2)
    write(folder, [*lives(range(12)), *odd, mark, b"\x01\x63\x00", started(40)])
    return folder


class Killed(BaseException):
    """The process ends here."""


_TOLD = ("severity", "kind", "topic_id", "partition", "segment_id", "start_offset", "end_offset", "message")


def found_in(tables: Rows) -> list[list[Any]]:
    """The anomalies, what they say of a segment and why."""
    return sorted(([row[column] for column in _TOLD] for row in tables["anomalies"]), key=repr)


def verified(topic: Path) -> list[list[Any]]:
    """What verify finds in the metadata alone, which reads the whole topic at once."""
    ran = tierctl("verify", "--metadata", topic, "--output", "json", "--now", 10**13)
    found = [each for each in json.loads(ran.out) if each["kind"] != "stalled_retention"]
    return sorted(([finding[column] for column in _TOLD] for finding in found), key=repr)


def moved(event: Any, partition: int) -> MetadataEvent:
    """The event in another partition; nobody else's segment has its id."""
    whose = Uuid.from_bytes(bytes([partition]) + event.segment_id.bytes[1:])
    moved: MetadataEvent = replace(event, partition=partition, segment_id=whose)
    return moved


SMALL = {"FILE_ROWS": [1, 3], "CLOSED_ROWS": [1, 2, 99], "MERGED_FILES": [2, 3], "BLOCK_PARTITIONS": [1, 2]}
"""Sizes of files with which a few segments fill several."""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5), histories(8)), min_size=1, max_size=4), st.data())
def test_many_steps_make_what_one_makes(parts: list[tuple[int, list[MetadataEvent]]], data: Any) -> None:
    """Whatever offsets the steps end at, in whichever metadata partition, and however small files are."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        for size, values in SMALL.items():
            module = partition_groups if size == "BLOCK_PARTITIONS" else segment_files
            patched.setattr(module, size, data.draw(st.sampled_from(values)))
        folder = Path(name)
        write(folder / "topic", [None])
        for partition, events in parts:
            write(folder / "topic", [moved(e, partition) for e in events if encodable(e)])
        run(folder / "topic", folder / "once")
        with pipeline(folder / "topic", folder / "steps").opened() as steps:
            for _ in range(data.draw(st.integers(0, 3))):
                steps.step({n: data.draw(st.integers(0, 40)) for n in range(COUNT)})
        run(folder / "topic", folder / "steps")
        tables = rows_of(folder / "steps")
        assert tables == rows_of(folder / "once")
        assert found_in(tables) == verified(folder / "topic")


def test_what_was_deleted_commits_ago_is_remembered(tmp_path: Path) -> None:
    """An event that is dropped says little where its segment was deleted, before it or after."""
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


def test_nothing_new_changes_nothing(topic: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    assert run(topic, warehouse) == 1
    files = {path: path.stat().st_mtime_ns for path in warehouse.rglob("*") if path.is_file()}
    assert run(topic, warehouse) == 1
    assert {path: path.stat().st_mtime_ns for path in warehouse.rglob("*") if path.is_file()} == files
    ends = read(warehouse, "state")["end_offset"].to_pylist()
    assert sum(ends) == read(warehouse, "events").num_rows
    write(topic, lives(range(50, 51), partitions=1))
    assert run(topic, warehouse) == 2
    newer = delta(warehouse, "events").to_pyarrow_table(filters=[("batch", "=", 2)])
    # One metadata partition had something new: the others' files are the same.
    assert len(newer) == 3
    assert len(set(newer["metadata_partition"].to_pylist())) == 1


def test_a_copy_becomes_dangling_although_nothing_is_written(tmp_path: Path) -> None:
    event = started(1)
    begun_ms = event.event_timestamp_ms
    write(tmp_path / "topic", [event])
    severities = []
    for now_ms in (begun_ms, begun_ms + DAY_MS, begun_ms + DAY_MS + 1, begun_ms + 9 * DAY_MS):
        number = run(tmp_path / "topic", tmp_path / "warehouse", now_ms=now_ms)
        rows = rows_of(tmp_path / "warehouse")
        severities.append(
            (number, rows["anomalies"][0]["severity"], rows["partitions"][0]["dangling_copies"])
        )
    assert severities == [(1, "info", 0), (1, "info", 0), (2, "warning", 1), (2, "warning", 1)]


def test_a_log_that_was_cut_is_told_of_once(topic: Path, tmp_path: Path) -> None:
    run(topic, tmp_path / "warehouse")
    log = next(path for path in topic.rglob("*.log") if path.stat().st_size > 1000)
    with log.open("r+b") as stream:
        stream.truncate(log.stat().st_size // 2)
    numbers = [run(topic, tmp_path / "warehouse") for _ in range(3)]
    assert numbers == [2, 2, 2]
    rows = rows_of(tmp_path / "warehouse")
    assert any("an end at or after" in row["message"] for row in rows["anomalies"])


def killed_at(nth: int, topic: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run, and stop at the nth change of a file; whether there were so many."""
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
    """At every few: each table is the commit's before or after, and the next run comes to the same tables."""
    begun, expected = tmp_path / "begun", tmp_path / "expected"
    run(topic, expected)
    after = rows_of(expected)
    before = after
    if ends is not None:
        with pipeline(topic, begun).opened() as opened:
            opened.step(ends)
        before = rows_of(begun)
    for nth in range(1, 1000, 4 if ends is None else 2):
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


SIGKILLED = -9


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    forked = Zygote(tmp_path_factory.mktemp("zygote"))
    yield forked
    forked.close()


def test_killed_for_real(topic: Path, tmp_path: Path, zygote: Zygote) -> None:
    """kill -9 of a whole process, on a warehouse that has a commit; over and over, one further each time."""
    expected = tmp_path / "expected"
    run(topic, expected)
    warehouse = tmp_path / "warehouse"
    with pipeline(topic, warehouse).opened() as opened:
        opened.step({0: 2, 1: 7, 2: 4, 3: 1})
    command = ("pipeline", "run", "--metadata", topic, "--warehouse", warehouse, "--engine", "local")
    killed = 0
    for nth in range(3, 400, 7):
        ran = zygote(*command, "--now", 10**13, files=nth)
        assert ran.code in {0, SIGKILLED}, ran.err
        killed += ran.code == SIGKILLED
        if ran.code == 0:
            break
    assert killed > 3
    assert rows_of(warehouse) == rows_of(expected)


def test_one_pipeline_at_a_time(topic: Path, tmp_path: Path) -> None:
    with pipeline(topic, tmp_path / "warehouse").opened() as first:
        where = ("--metadata", topic, "--warehouse", tmp_path / "warehouse")
        second = tierctl("pipeline", "run", *where, "--engine", "local")
        assert second.code == 6, second.err
        assert first.step().commit == 1


@pytest.fixture
def unlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse whose lock keeps nobody out, as on a file system that does not know locks."""
    warehouse, exclusive = tmp_path / "warehouse", warehouse_open.exclusive

    def kept_out(folder: Path, name: str) -> AbstractContextManager[None]:
        (folder / name).touch()
        return nullcontext() if folder == warehouse else exclusive(folder, name)

    monkeypatch.setattr(warehouse_open, "exclusive", kept_out)
    return warehouse


def race(topic: Path, warehouse: Path | str) -> list[int]:
    """Two runs that no lock keeps apart come to their commit at the same time; the numbers of those made."""
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


def test_of_two_writers_one_commits(topic: Path, tmp_path: Path, unlocked: Path) -> None:
    run(topic, unlocked)
    for number in (2, 3):
        write(topic, lives(range(80 + number, 81 + number)))
        assert race(topic, unlocked) == [0, number]
    run(topic, tmp_path / "once")
    assert rows_of(unlocked) == rows_of(tmp_path / "once")


def test_a_run_notices_a_commit_of_another(topic: Path, unlocked: Path) -> None:
    with pipeline(topic, unlocked).opened() as late:
        late.step()
        write(topic, lives(range(90, 91)))
        assert run(topic, unlocked) == 2
        with pytest.raises(LockedError, match="commit 2"):
            late.step()


def test_readers_see_whole_commits_only(tmp_path: Path) -> None:
    """What is read of a table while commits are made is what one commit has, and no read fails."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, lives(range(3)))
    run(topic, warehouse)
    done = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(delta(warehouse, "segments").to_pyarrow_table(columns=["start_offset"]).num_rows)

    reader = threading.Thread(target=read)
    reader.start()
    counts = {9}
    with pipeline(topic, warehouse).opened() as opened:
        for number in range(3, 15):
            write(topic, lives(range(number, number + 1)))
            opened.step()
            counts.add(3 * (number + 1))
    done.set()
    reader.join()
    assert seen <= counts
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["notes.txt", "segments/own.parquet"])
def test_a_place_of_something_else(topic: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "full" / name
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UsageError, match="something else"):
        run(topic, tmp_path / "full")


def test_another_topics_warehouse(topic: Path, tmp_path: Path) -> None:
    run(topic, tmp_path / "warehouse")
    write(tmp_path / "other", [None])
    with pytest.raises(SafetyRefusal, match="is of metadata topic"):
        run(tmp_path / "other", tmp_path / "warehouse")


def test_damage_is_found(topic: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    run(topic, warehouse)
    write(topic, lives(range(70, 72)))
    for path in (warehouse / "state").glob("*.parquet"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(CorruptInputError, match="state"):
        run(topic, warehouse)


def test_a_warehouse_of_an_earlier_format(topic: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "_warehouse.json").write_text('{"format": 1}')
    ran = tierctl(
        "pipeline", "run", "--metadata", topic, "--warehouse", tmp_path / "old", "--engine", "local"
    )
    assert ran.code == 2, ran.err
    assert "tierctl pipeline run --metadata URI --warehouse NEW_FOLDER" in ran.err


def test_tables_that_another_program_compacted(topic: Path, tmp_path: Path) -> None:
    """Delta's own tools may combine the files of a table, and delete the former files."""
    warehouse, more = tmp_path / "warehouse", lives(range(70, 72))
    write(topic, lives(range(60, 70), partitions=9))
    run(topic, warehouse)
    for table in ("segments", "partitions", "events"):
        delta(warehouse, table).optimize.compact()
        delta(warehouse, table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert run(topic, warehouse) == 2
    write(topic, more)
    run(topic, warehouse)
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def test_an_earlier_commit_can_be_read(topic: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    run(topic, warehouse)
    before = read(warehouse, "segments").num_rows
    version = delta(warehouse, "segments").version()
    write(topic, lives(range(70, 72)))
    run(topic, warehouse)
    assert delta(warehouse, "segments").history(1)[0]["tierctl.commit"] == "2"
    assert read(warehouse, "segments", version).num_rows == before
    assert read(warehouse, "segments").num_rows > before


def test_small_commits_are_compacted(tmp_path: Path) -> None:
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, [None])
    with pipeline(topic, warehouse).opened() as opened:
        for number in range(COMPACT_EVERY + 2):
            write(topic, lives(range(number, number + 1), partitions=1))
            opened.step()
    assert len(delta(warehouse, "events").file_uris()) <= 4
    assert len(list((warehouse / "state").glob("*.parquet"))) == len(delta(warehouse, "state").file_uris())
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def test_a_run_replaces_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the newest segments, and of the user partitions that have events."""
    monkeypatch.setattr(segment_files, "FILE_ROWS", 8)
    monkeypatch.setattr(segment_files, "CLOSED_ROWS", 4)
    monkeypatch.setattr(partition_groups, "BLOCK_PARTITIONS", 1)
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
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def later(event: Any) -> MetadataEvent:
    """The event; its segment has later timestamps than those of lower offsets, and an id of its own."""
    own: Any = moved(event, event.partition)
    is_start = hasattr(own, "max_timestamp_ms")
    timed: MetadataEvent = replace(own, max_timestamp_ms=own.start_offset) if is_start else own
    return timed


@pytest.mark.parametrize("module", ["tierctl.pipeline.partition_task", "tierctl.commands.pipeline"])
def test_executors_and_other_commands_do_not_import_deltalake(module: str) -> None:
    code = f"import sys, {module}; print('deltalake' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_each_event_changes_the_rows_of_its_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regular histories, of which no file may stay that has a former state of a segment."""
    monkeypatch.setattr(segment_files, "FILE_ROWS", 1)
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    states = (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    waves = [[started(number) for number in (1, 2, 3)]]
    waves += [[update(number, state)] for state in states for number in (1, 3)]
    for number, events in enumerate(waves):
        write(topic, events)
        run(topic, warehouse)
        run(topic, tmp_path / f"once-{number}")
        assert rows_of(warehouse) == rows_of(tmp_path / f"once-{number}")
