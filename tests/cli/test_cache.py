"""`tierctl cache`: show, verify, build and compact every kind of cache file."""

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tierctl.cli.entry import run
from tierctl.errors import LockedError, SafetyRefusal, TierctlError
from tierctl.files import exclusive
from tierctl.kernel import use_compiled, use_interpreted
from tierctl.metadata.cache_building import Rewrite, compacted, plan_compaction, rewrite
from tierctl.metadata.cache_files import findings, found_rows, read_cache
from tierctl.metadata.state_dir import LOCK
from tierctl.model import (
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.events import StoredPartitionState, StoredSegment
from tierctl.wire.files import flatfile
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.files.flatfile import FlatFileHeader, encode_entry, encode_header
from tierctl.wire.metadata.values import encode

from tests.cli.shell import rows, tierctl
from tests.cli.test_messages import repeat_an_entry
from tests.conftest import DATA, vectors
from tests.metadata.events import partition_delete, started
from tests.metadata.topics import topic_in
from tests.support.broker_lock import running_broker
from tests.wire.files.flat import read as read_flat

FLAT = ("flat-named", "flat-unnamed", "flat-empty")
GOLDEN = DATA / "vectors"
SNAPSHOT = GOLDEN / "kafka-3.6" / "remote_log_snapshot"
Capture = Callable[[str], Path]


def cache(*args: object, code: int = 0, **options: Any) -> list[dict[str, Any]]:
    return rows("cache", *args, code=code, **options)


@pytest.mark.parametrize("name", FLAT)
def test_show_is_what_the_vectors_say(name: str) -> None:
    golden = next(vectors(f"{name}.json"))
    header, *entries = cache("show", GOLDEN / f"{name}.flat")
    assert cache("verify", GOLDEN / f"{name}.flat")[0]["status"] == "ok"
    for key in ("topic_id", "metadata_topic_offset"):
        assert header[key] == golden[key]
    assert header["topic"] == golden.get("topic")
    assert header["form"] == ("unnamed" if "topic" not in golden else "named")
    for entry in entries:
        del entry["file"]
    assert entries == golden["entries"]


def test_show_reads_kafka_3s_snapshot() -> None:
    """tests/wire/files/test_cache_files.py compares every field of its entries."""
    header, *entries = cache("show", SNAPSHOT)
    named = ("form", "metadata_partition", "metadata_topic_offset")
    assert [header[name] for name in named] == ["snapshot", 3, 4567]
    expected = SNAPSHOT.with_suffix(".txt").read_text().splitlines()
    for entry, line in zip(entries, expected, strict=True):
        assert f"segmentId={entry['segment_id']}, startOffset={entry['start_offset']}," in line


def test_an_empty_snapshot_is_normal(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    (folder / "remote_log_snapshot").touch()
    (row,) = cache("show", "--log-dir", tmp_path)
    named = ("type", "topic", "partition", "metadata_topic_offset")
    assert [row[name] for name in named] == ["Header", "orders", 3, -1]
    assert cache("verify", "--log-dir", tmp_path)[0]["status"] == "ok"
    assert cache("compact", "--log-dir", tmp_path)[0]["action"] == "keep"


@pytest.mark.parametrize("name", ["flat-named.flat", "flat-unnamed.flat", "kafka-3.6/remote_log_snapshot"])
def test_a_torn_tail_is_found_with_its_byte(name: str, tmp_path: Path) -> None:
    file = tmp_path / Path(name).name
    file.write_bytes((GOLDEN / name).read_bytes()[:-7])
    (row,) = cache("verify", file, code=7)
    assert row["status"] == "corrupt"
    assert 0 < row["position"] < file.stat().st_size
    shown = cache("show", file, code=7)
    assert shown[-1]["error"]
    assert shown[-2]["segment_id"]
    require_kept(file, row["detail"].partition(": ")[2])


@pytest.fixture
def flat(after: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "caches"
    assert len(cache("build", "--metadata", after, "--out", folder)) == 9
    return folder


def test_build_leaves_out_partitions_that_no_file_can_be_named_after(tmp_path: Path) -> None:
    metadata, long = tmp_path / "metadata", "x" * 249
    topics = {"orders": None, "a/\x1bb": "[a-zA-Z0-9._-]{1,249}", long: "at most 240 bytes, found 283"}
    with closing(topic_in(metadata, writable=True, partition_count=1)) as topic:
        for number, name in enumerate(topics):
            topic_id = Uuid.from_bytes(bytes([number + 1] * 16))
            topic.append([(0, encode(started(number, topic=name, topic_id=topic_id)))])
        topic.append([(0, encode(started(9, topic="below", partition=-1)))])
    built = tierctl("cache", "build", "--metadata", metadata, "--out", tmp_path / "caches", "-o", "jsonl")
    assert (built.code, [row["topic"] for row in built.rows]) == (7, ["orders"])
    warnings = [line for line in built.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 3, built.err
    for expected in (reason for reason in topics.values() if reason is not None):
        assert any(expected in line and "\x1b" not in line for line in warnings), built.err
    alone = cache("build", "--metadata", metadata, "--out", tmp_path / "caches", "--topic", "orders")
    assert alone == built.rows


def test_build_changes_no_file_if_it_may_not_replace_all(after: Path, flat: Path, tmp_path: Path) -> None:
    last = max(flat.glob("*.rlmcache"))
    last.rename(tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")
    ran = tierctl("cache", "build", "--metadata", after, "--out", flat)
    assert (ran.code, f"{last} is a symbolic link" in ran.err) == (4, True)
    assert not list(flat.glob("*.bak"))


def test_build_again_leaves_the_backup_of_the_former_file(after: Path, flat: Path) -> None:
    file = min(flat.glob("*.rlmcache"))
    built = file.read_bytes()
    for former in (b"former", built[:-1], built + b"x"):
        file.write_bytes(former)
        for _ in range(2):
            cache("build", "--metadata", after, "--out", flat)
            kept = {path.name: path.read_bytes() for path in flat.glob("*.bak")}
            assert (file.read_bytes(), kept) == (built, {f"{file.name}.bak": former})


def test_build_knows_what_the_topic_has_lost_from_a_state_directory(after: Path, tmp_path: Path) -> None:
    metadata, state = shutil.copytree(after, tmp_path / "after"), ("--state-dir", tmp_path / "state")
    build = ("build", "--metadata", metadata, "--topic", "orders")
    whole = cache(*build, "--out", tmp_path / "whole", *state)
    starts = "".join(f"__remote_log_metadata {number} 9\n" for number in range(5))
    (metadata / "log-start-offset-checkpoint").write_text(f"0\n5\n{starts}")
    assert tierctl("cache", *build, "--out", tmp_path / "lost").code == 7
    kept = cache(*build, "--out", tmp_path / "kept", *state)
    assert [row["entries"] for row in kept] == [row["entries"] for row in whole]
    for row, same in zip(kept, whole, strict=True):
        assert Path(row["file"]).read_bytes() == Path(same["file"]).read_bytes()


@pytest.mark.parametrize("header", ["named", "unnamed"])
def test_build_writes_flat_files_of_the_kip(header: str, after: Path, tmp_path: Path) -> None:
    built = cache("build", "--metadata", after, "--out", tmp_path, "--header", header, "--topic", "orders")
    assert [row["partition"] for row in built] == [0, 1, 2]
    for row in built:
        cached = read_cache(Path(row["file"]))
        assert str(cached.form) == header
        assert not list(findings(cached))
        listed = rows("segments", "--metadata", after, "--topic", "orders")
        mine = {s["segment_id"]: s for s in listed if s["partition"] == row["partition"]}
        assert {str(e.fields()["segment_id"]) for e in cached.entries} == set(mine)
        for entry in cached.entries:
            fields = entry.fields()
            same = ("start_offset", "end_offset", "segment_size_in_bytes", "segment_leader_epochs", "state")
            assert {k: fields[k] for k in same} == {k: mine[fields["segment_id"]][k] for k in same}


def shown_alone(*args: object) -> dict[str, Any]:
    (row,) = cache("show", *args)
    return row


HEADER = flatfile.FlatFileHeader(
    topic="orders", topic_id=Uuid.from_bytes(bytes(range(16))), metadata_topic_offset=9
)


def test_show_says_that_the_entry_may_be_a_damaged_one(tmp_path: Path) -> None:
    """tests/metadata/test_lookups.py compares the answers for whole files with a search of all entries."""
    file = tmp_path / "some.flat"
    data = bytearray((GOLDEN / "flat-named.flat").read_bytes())
    first, second, *_ = read_flat(bytes(data)).entries
    data[first.position + 1] = 7
    file.write_bytes(data)
    assert second.record is not None
    args = (file, "--epoch", 1 << 30, "--offset", 1)
    (row,) = cache("show", *args, code=7)
    assert (row["position"], row["type"]) == (first.position, None)
    found, damaged = cache("show", file, "--epoch", 1, "--offset", 1000, code=7)
    assert (found["state"], found["start_offset"], damaged) == ("COPY_SEGMENT_FINISHED", 128, row)
    assert tierctl("cache", "show", file, "--position", first.position).code == 10
    assert shown_alone(file, "--position", second.position)["type"] == second.record.type


def stored(number: int, state: RemoteLogSegmentState, start: int, epoch: int = 3) -> StoredSegment:
    return StoredSegment(
        segment_id=Uuid.from_bytes(bytes([number] * 16)),
        start_offset=start,
        end_offset=9,
        leader_epoch=epoch,
        max_timestamp_ms=1,
        event_timestamp_ms=2,
        segment_leader_epochs=((epoch, start),),
        segment_size_in_bytes=4,
        state=state,
    )


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("command", "bytes_per_entry"), [(("show",), 50), (("show", "--epoch=7", "--offset=8"), 200)]
)
def test_memory_grows_little_with_the_entries_of_a_flat_file(
    command: tuple[str, ...], bytes_per_entry: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search by offset keeps seven numbers of each entry: any may be the last one of a segment.

    All kernels are compiled before the memory is measured.
    """
    monkeypatch.setattr(flatfile, "CHUNK_BYTES", 1 << 14)
    use_compiled()
    peaks = []
    for count in (10, 3_000, 30_000):
        file = tmp_path / f"{count}.flat"
        with file.open("wb") as out:
            out.write(flatfile.encode_header(HEADER))
            entry = flatfile.encode_entry(stored(255, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 5))
            for number in range(count):
                out.write(entry.replace(b"\xff" * 16, number.to_bytes(16, "big")))
            out.write(flatfile.encode_entry(stored(255, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 5, 7)))
        tracemalloc.start()
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            assert run(["cache", command[0], str(file), *command[1:], "--output", "jsonl"]) == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    use_interpreted()
    assert peaks[2] - peaks[1] < bytes_per_entry * (30_000 - 3_000)


@pytest.fixture
def grown(flat: Path) -> Path:
    """Return the folder of flat files, one of which has an entry that a later one replaces."""
    repeat_an_entry(next(flat.glob("orders-0-*")))
    return flat


def test_compact_plans_and_changes_nothing(grown: Path) -> None:
    before = {path.name: path.read_bytes() for path in grown.iterdir()}
    rows = cache("compact", grown)
    assert {row["action"] for row in rows} == {"compact", "keep"}
    assert cache("compact", grown, "--detailed-exitcode", code=9) == rows
    assert {path.name: path.read_bytes() for path in grown.iterdir()} == before


def test_compact_keeps_the_last_entry_of_each_segment(grown: Path) -> None:
    before = {path: read_flat(path.read_bytes()) for path in grown.glob("*.rlmcache")}
    rows = cache("compact", grown, "--apply")
    assert [Path(row["file"]).name[:9] for row in rows if row["action"] == "compact"] == ["orders-0-"]
    for row in rows:
        assert Path(row["file"]).stat().st_size == row["new_size_bytes"]
        assert Path(row["file"] + ".bak").exists() == (row["action"] == "compact")
    for path, old in before.items():
        new = read_flat(path.read_bytes())
        assert new.header == old.header
        assert set(map(str, new.records)) == set(map(str, old.records))
    assert {row["status"] for row in cache("verify", grown)} == {"ok"}
    assert {row["action"] for row in cache("compact", grown)} == {"keep"}


@pytest.mark.parametrize("hindrance", ["broker", "tierctl", "link", "change"])
def test_compact_changes_no_file_if_it_may_not_change_all(hindrance: str, tmp_path: Path) -> None:
    files = [tmp_path / name / "some.flat" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        shutil.copy(GOLDEN / "flat-named.flat", file)
        repeat_an_entry(file)
    before = files[0].read_bytes()
    plans = [Rewrite(path=file, plan=plan_compaction(file)) for file in files]
    expected: type[TierctlError] = SafetyRefusal
    with ExitStack() as held:
        if hindrance == "broker":
            held.enter_context(running_broker(files[1].parent))
        elif hindrance == "tierctl":
            held.enter_context(exclusive(files[1].parent, LOCK))
            expected = LockedError
        elif hindrance == "link":
            files[1].rename(tmp_path / "elsewhere")
            files[1].symlink_to(tmp_path / "elsewhere")
        else:
            repeat_an_entry(files[1])
        with pytest.raises(expected):
            rewrite(plans)
    assert files[0].read_bytes() == before
    assert not list(tmp_path.rglob("*.bak"))


def test_compact_needs_no_lock_of_a_folder_where_it_changes_nothing(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "flat-named.flat", tmp_path / "some.flat")
    cache("compact", tmp_path / "some.flat", "--apply")
    with running_broker(tmp_path), exclusive(tmp_path, LOCK):
        (row,) = cache("compact", tmp_path / "some.flat", "--apply")
    assert row["action"] == "keep"


def test_a_compacted_snapshot_has_each_live_segment_once() -> None:
    file, gone = read_cache(SNAPSHOT), RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    new = snapshot.read_snapshot(compacted(file).data)
    assert new is not None
    live = {
        each["segment_id"] for each in (entry.fields() for entry in file.entries) if each["state"] != gone
    }
    assert sorted(str(each.segment_id) for each in new.segments) == sorted(live)


def test_a_compacted_snapshot_serves_each_offset_from_the_same_segment(tmp_path: Path) -> None:
    """Kafka 3 writes a segment once for each of its epochs; a segment that is replaced stays in the file."""
    some = next(entry.record for entry in read_cache(SNAPSHOT).entries)
    assert isinstance(some, RemoteLogSegmentMetadataSnapshot)
    segments = [
        replace(
            some,
            segment_id=Uuid.from_bytes(bytes([number] * 16)),
            start_offset=epochs[0][1],
            end_offset=end,
            segment_leader_epochs=epochs,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )
        for number, (end, epochs) in enumerate(
            [(220, ((1, 100), (2, 150))), (200, ((2, 150),)), (250, ((1, 100), (2, 180)))], start=1
        )
    ]

    def served(file: Path) -> list[list[Uuid]]:
        asked = product((1, 2), (100, 149, 150, 179, 180, 200, 201, 220, 221, 250, 251))
        found = (found_rows(file, epoch=epoch, offset=offset, position=None) for epoch, offset in asked)
        return [[row["segment_id"] for row in each.rows] for each in found]

    for order in product(range(3), repeat=4):
        file = tmp_path / "remote_log_snapshot"
        file.write_bytes(snapshot.write_snapshot(3, 77, [segments[index] for index in order]))
        before = served(file)
        file.write_bytes(compacted(read_cache(file)).data)
        assert served(file) == before, order


def require_kept(file: Path, reason: str) -> None:
    """Require that a file that `cache verify` calls corrupt is not compacted, for the same reason."""
    before = file.read_bytes()
    (row,) = cache("compact", file, "--apply", code=7)
    assert row["action"] == "keep"
    assert reason in row["reason"]
    assert file.read_bytes() == before


def test_verify_tells_a_cache_under_another_name(flat: Path, tmp_path: Path) -> None:
    source = next(flat.glob("orders-0-*.rlmcache"))
    wrong = tmp_path / source.name.replace("orders-0-", "clicks-0-")
    shutil.copy(source, wrong)
    (row,) = cache("verify", wrong, code=7)
    assert row["detail"].endswith(":orders")
    assert ":clicks" in row["detail"]
    require_kept(wrong, row["detail"])


def test_build_and_compact_keep_out_of_another_writers_way(after: Path, grown: Path, tmp_path: Path) -> None:
    (new := tmp_path / "new").mkdir()
    for folder, words in ((grown, ("compact", grown, "--apply")), (new, ("build", "--metadata", after))):
        with exclusive(folder, LOCK):
            ran = tierctl("cache", *words, *(("--out", folder) if folder == new else ()))
        assert (ran.code, ran.out, str(folder) in ran.err) == (6, "", True)
    assert {each.name for each in new.iterdir()} == {LOCK}


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["show"], 2, "no cache file is named"),
        (["show", "missing.flat"], 10, "no such file"),
        (["build", "--metadata", "."], 2, "--out is missing"),
        (["verify", "."], 10, "no cache files in ."),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], code: int, message: str, tmp_path: Path) -> None:
    ran = tierctl("cache", *args, cwd=tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


REMOTE_INDEXES = ((7, 100, 256), (4000, 9000))


@pytest.fixture
def remote_index(tmp_path: Path) -> list[Path]:
    """Return the two `.remoteindex` files of a partition with five segments, in a broker's log directory."""
    folder = tmp_path / "log" / "orders-3"
    folder.mkdir(parents=True)
    files = [folder / f"{starts[0]:014d}.remoteindex" for starts in REMOTE_INDEXES]
    for file, starts in zip(files, REMOTE_INDEXES, strict=True):
        file.write_bytes(b"".join(struct.pack(">i", start - starts[0]) for start in starts))
    return files


def test_show_prints_remote_indexes(remote_index: list[Path]) -> None:
    rows = cache("verify", "--log-dir", remote_index[0].parent.parent)
    assert [(row["status"], row["entries"]) for row in rows] == [("ok", 3), ("ok", 2)]
    header, *entries = cache("show", remote_index[0])
    assert (header["form"], header["topic"], header["partition"]) == ("remoteindex", "orders", 3)
    assert {entry["type"] for entry in entries} == {"RemoteIndexEntry"}
    assert [(entry["position"], entry["start_offset"]) for entry in entries] == [(0, 7), (4, 100), (8, 256)]
    both = cache("show", "--log-dir", remote_index[0].parent.parent)
    assert [row["start_offset"] for row in both if row["type"] != "Header"] == [7, 100, 256, 4000, 9000]


def test_a_damaged_remote_index_has_a_position_and_its_intact_entries(remote_index: list[Path]) -> None:
    """tests/wire/files/test_cache_files.py has every kind of damage."""
    remote_index[0].write_bytes(struct.pack(">iii", 0, 93, 93))
    (finding,) = cache("verify", remote_index[0], code=7)
    assert (finding["status"], finding["position"]) == ("corrupt", 8)
    shown = cache("show", remote_index[0], code=7)
    assert [(row["type"], row.get("start_offset")) for row in shown[1:]] == [
        *(("RemoteIndexEntry", 7), ("RemoteIndexEntry", 100), (None, None))
    ]
    assert shown[-1]["position"] == 8


def test_a_remote_index_that_overlaps_the_next_file_is_found(remote_index: list[Path]) -> None:
    remote_index[0].write_bytes(struct.pack(">iii", 0, 3993, 4100))
    bad, good = cache("verify", *remote_index, code=7)
    assert (bad["status"], bad["position"], good["status"]) == ("corrupt", 4, "ok")
    assert "offsets below 4000" in bad["detail"]


def test_show_searches_remote_indexes(remote_index: list[Path]) -> None:
    for offset, start in ((7, 7), (3999, 256), (4000, 4000), (1 << 40, 9000)):
        row = shown_alone("--log-dir", remote_index[0].parent.parent, "--offset", offset)
        assert (row["type"], row["start_offset"]) == ("RemoteIndexEntry", start)
        assert shown_alone(row["file"], "--position", row["position"]) == row
    ran = tierctl("cache", "show", *remote_index, "--offset", 6)
    assert (ran.code, ran.out) == (10, "")
    assert "no entry serves offset 6" in ran.err
    for position in (2, 12, 400):
        assert tierctl("cache", "show", remote_index[0], "--position", position).code == 10


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("pipe", "no plain file"),
        ("folder", "a folder"),
        ("link", "a symbolic link to nothing"),
        ("loop", "a symbolic link that leads to itself"),
    ],
)
@pytest.mark.parametrize("name", ["remote_log_snapshot", "00000000000000000000.remoteindex"])
def test_what_is_no_file_among_caches_is_a_problem_of_its_own(
    name: str, kind: str, found: str, tmp_path: Path
) -> None:
    odd, good = (tmp_path / f"orders-{number}" / name for number in (0, 1))
    for folder in (odd.parent, good.parent):
        folder.mkdir()
    good.touch()
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "folder":
        odd.mkdir()
    else:
        odd.symlink_to(odd if kind == "loop" else "nothing")
    problem = f"{odd}: expected a regular file, found {found}"
    verified = cache("verify", "--log-dir", tmp_path, code=7)
    assert [(row["file"], row["status"]) for row in verified] == [(str(odd), "corrupt"), (str(good), "ok")]
    assert verified[0]["detail"] == problem
    shown = cache("show", "--log-dir", tmp_path, code=7)
    assert [row.get("error") for row in shown] == [problem, None]
    asked = tierctl("cache", "show", "--log-dir", tmp_path, "--offset=5", "--epoch=0", "-o", "jsonl")
    assert (asked.code, [row["error"] for row in asked.rows]) == (7, [problem])
    if name == "remote_log_snapshot":
        kept, _ = cache("compact", "--log-dir", tmp_path, "--apply", code=7)
        assert (kept["action"], kept["reason"]) == ("keep", problem)
        (tmp_path / "_rlmm_committed_offsets").write_text("0 4\n")
        good.write_bytes(snapshot.write_snapshot(0, 5, []))
        checked = tierctl("offsets", "check", "--log-dir", tmp_path)
        assert (checked.code, f"warning: unreadable: {problem}" in checked.err) == (7, True)
    assert tierctl("cache", "verify", odd).code == {"pipe": 2}.get(kind, 10)


def test_remote_indexes_are_not_compacted(remote_index: list[Path]) -> None:
    ran = tierctl("cache", "compact", remote_index[0])
    assert (ran.code, "a .remoteindex file is not compacted" in ran.err) == (2, True)
    assert cache("compact", "--log-dir", remote_index[0].parent.parent) == []


EPOCHS = "segment_leader_epochs"
UNORDERED = "that ascend, found "


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({}, None),
        ({"max_timestamp_ms": -1}, None),
        ({"max_timestamp_ms": -2}, "max_timestamp_ms at byte {at}: expected -1 or more, found -2"),
        ({"event_timestamp_ms": -5}, "event_timestamp_ms at byte {at}: expected 0 or more, found -5"),
        ({"segment_size_in_bytes": -1}, "segment_size_in_bytes at byte {at}: expected 0 or more, found -1"),
        ({"leader_epoch": -1}, "leader_epoch at byte {at}: expected 0 or more, found -1"),
        ({EPOCHS: ((0, 10), (2, 10))}, None),
        ({EPOCHS: ((0, 10), (2, 5))}, f"{UNORDERED}0 from 10, 2 from 5"),
        ({EPOCHS: ((3, 10), (2, 15))}, f"{UNORDERED}3 from 10, 2 from 15"),
        ({EPOCHS: ((-1, 10), (2, 15))}, f"{UNORDERED}-1 from 10, 2 from 15"),
        ({EPOCHS: ((0, -1), (2, 15))}, f"{UNORDERED}0 from -1, 2 from 15"),
    ],
)
def test_verify_reports_what_no_broker_writes(
    change: dict[str, Any], detail: str | None, tmp_path: Path
) -> None:
    good = stored(7, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 5)
    header = FlatFileHeader(topic="orders", topic_id=good.segment_id, metadata_topic_offset=5)
    deleted = StoredPartitionState(
        epoch=1, event_timestamp_ms=2, state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    )
    parts = (encode_header(header), *map(encode_entry, (good, replace(good, **change), deleted)))
    file = tmp_path / f"orders-0-{good.segment_id}.rlmcache"
    file.write_bytes(b"".join(parts))
    ran = tierctl("cache", "verify", file, "-o", "jsonl")
    (row,) = ran.rows
    if detail is None:
        assert (ran.code, row["status"]) == (0, "ok")
        return
    at = len(parts[0]) + len(parts[1]) + 1
    assert (ran.code, row["status"], row["position"]) == (7, "corrupt", at)
    assert detail.format(at=at) in row["detail"]
    shown = tierctl("cache", "show", file, "-o", "jsonl").ok()
    assert shown.rows[2]["type"] == "RemoteLogSegmentMetadata"
    require_kept(file, detail.format(at=f"{at} of {file}"))


def test_a_built_file_states_no_time_and_epoch_of_a_deletion(tmp_path: Path) -> None:
    metadata, folder = tmp_path / "metadata", tmp_path / "caches"
    with closing(topic_in(metadata, writable=True, partition_count=1)) as topic:
        topic.append([(0, encode(partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)))])
    cache("build", "--metadata", metadata, "--out", folder)
    (file,) = folder.glob("*.rlmcache")
    (row,) = cache("verify", file)
    assert (row["status"], row["entries"]) == ("ok", 1)


def test_verify_reports_an_impossible_header(tmp_path: Path) -> None:
    header = FlatFileHeader(topic="orders", topic_id=Uuid.from_bytes(bytes(16)), metadata_topic_offset=-2)
    (tmp_path / "file").write_bytes(encode_header(header))
    ran = tierctl("cache", "verify", tmp_path / "file", "-o", "jsonl")
    assert ran.code == 7
    assert "header, metadata_topic_offset at byte 0: expected -1 or more, found -2" in ran.rows[0]["detail"]
    require_kept(tmp_path / "file", "expected -1 or more, found -2")
