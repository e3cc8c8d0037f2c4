"""Notes and progress of commands: left-out folders, replicas, skipped partitions, unused settings, bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands
from tierctl.commands.local_logs import left_out_notes, read_local_logs, replica_notes
from tierctl.commands.mutation import skip_lines
from tierctl.errors import ExitCode, NotFoundError
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model import TopicConfig, TopicIdPartition, Uuid
from tierctl.model.progress import Advance, SilentProgress, Unit
from tierctl.model.settings.topic import unused_settings
from tierctl.plan.steps import Skip
from tierctl.wire.batches.segment_file import RecordChunk

from tests.cli.shell import tierctl
from tests.locallog.made import batch, write_log
from tests.metadata.events import started, update
from tests.metadata.topics import manager_at
from tests.plan.tier import TOPIC_ID, local_log

DELETED = ", ".join(f"{{root}}/orders-{n}.1f-delete" for n in range(5))
MISSING = "the current log of orders-0: name the directory that the broker moves it from"
STRAY = "its broker is no replica of the partition any more"
FUTURE = "a broker moves the partition there, and its current log is in another directory"


@pytest.mark.parametrize(
    ("folders", "notes"),
    [
        (["orders-0"], []),
        (
            ["orders-0", "orders-0.1f-future"],
            [f"left out 1 folder of kind -future ({{root}}/orders-0.1f-future): {FUTURE}"],
        ),
        (
            ["orders-0.1f-future"],
            [
                f"left out 1 folder of kind -future ({{root}}/orders-0.1f-future): {FUTURE}",
                f"no --log-dir has {MISSING}",
            ],
        ),
        (
            [f"orders-{n}.1f-delete" for n in range(7)],
            [f"left out 7 folders of kind -delete ({DELETED} and 2 more): a broker will delete it"],
        ),
        (["bills-0.1f-stray"], [f"left out 1 folder of kind -stray ({{root}}/bills-0.1f-stray): {STRAY}"]),
        (["other-0.1f-delete"], []),
    ],
)
def test_folders_that_are_left_out(tmp_path: Path, folders: list[str], notes: list[str]) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
    found = list(left_out_notes([tmp_path], lambda partition: partition.topic != "other"))
    assert found == [note.format(root=tmp_path) for note in notes]


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [(None, True), ("kafka.log", True), ("meta.properties", False), ("a-0.1f-delete", False)],
)
def test_a_folder_that_is_no_log_directory(tmp_path: Path, name: str | None, is_refused: bool) -> None:
    if name is not None:
        (tmp_path / name).mkdir() if name.startswith("a-0") else (tmp_path / name).touch()
    wrong = pytest.raises(NotFoundError, match="neither partitions nor meta")
    with wrong if is_refused else nullcontext():
        assert read_local_logs([tmp_path], SilentProgress(), select=lambda _: True) == []


@pytest.mark.parametrize(
    ("one", "other", "used", "not_used"),
    [
        (
            {},
            {"epochs": ((0, 0), (2, 300))},
            "/b (leader epoch 2, log end 350)",
            "/a (leader epoch 0, log end 350)",
        ),
        ({"end": 360}, {}, "/a (leader epoch 0, log end 360)", "/b (leader epoch 0, log end 350)"),
        ({"epochs": ()}, {}, "/b (leader epoch 0, log end 350)", "/a (no leader epoch, log end 350)"),
    ],
)
def test_the_replica_that_is_used(
    one: dict[str, Any], other: dict[str, Any], used: str, not_used: str
) -> None:
    logs = [
        local_log([0, 300], facts.pop("end", 350), directory=directory, **facts)
        for facts, directory in ((dict(one), "/a"), (dict(other), "/b"))
    ]
    start = "orders-0 has 2 replicas in the log directories: the newest is used, "
    [note] = replica_notes(logs)
    assert note.startswith(f"{start}{used}; not {not_used}")
    assert list(replica_notes(logs[:1])) == []


def test_many_replicas_have_a_bounded_number_of_notes() -> None:
    partitions = [TopicIdPartition(TOPIC_ID, "orders", number) for number in range(9)]
    logs = [local_log([0], 9, partition=p, directory=d) for p in partitions for d in ("/a", "/b", "/c")]
    notes = list(replica_notes(logs))
    assert len(notes) == 6
    assert notes[-1] == "of 4 more partitions with several replicas the newest is used, too"


def test_a_damaged_checkpoint_leaves_out_the_logs_of_its_directory(tmp_path: Path) -> None:
    data, settings = tmp_path / "data", tmp_path / "topics.properties"
    write_log(data, [[batch(0)], [batch(1)]], snapshots={1: ()})
    (data / "replication-offset-checkpoint").write_text("what?")
    settings.write_text("made.remote.storage.enable=true\n")
    where = ("--metadata", tmp_path / "metadata", "--log-dir", data, "--topic-configs", settings)
    ran = tierctl("copy", *where, "--remote", tmp_path / "tier", "--apply")
    assert f"warning: unreadable: {data}: offset checkpoint, line 1" in ran.err
    assert ran.code == ExitCode.CORRUPT, ran.err


ID = Uuid.from_bytes(bytes(15) + b"\x01")
OTHER = Uuid.from_bytes(bytes(15) + b"\x02")


def skip(
    topic: str, number: int, reason: str = "off", *, topic_id: Uuid = ID, segment: Uuid | None = None
) -> Skip:
    return Skip.of(TopicIdPartition(topic_id, topic, number), reason, segment)


@pytest.mark.parametrize(
    ("skips", "lines"),
    [
        ([], []),
        ([skip("a", 0)], ["skipped a-0: off"]),
        ([skip("a", n) for n in range(40)], ["skipped 40 partitions of 1 topic (a-[0-39]): off"]),
        (
            [skip("a", 0), skip("a", 2), skip("b", 7), skip("a", 1, "behind")],
            ["skipped 3 partitions of 2 topics (a-[0, 2], b-7): off", "skipped a-1: behind"],
        ),
        (
            [skip(f"t{n}", 0) for n in range(9)],
            ["skipped 9 partitions of 9 topics (t0-0, t1-0, t2-0, t3-0, t4-0 and 4 more): off"],
        ),
        # Steps of copies, which have no segment id yet.
        ([skip("a", 0)] * 3, ["skipped a-0: off"]),
        ([skip("a", 1), skip("a", 0), skip("a", 1)], ["skipped 2 partitions of 1 topic (a-[0-1]): off"]),
        ([skip("a", 0), skip("a", 0, topic_id=OTHER)], ["skipped 2 partitions of 2 topics (a-0, a-0): off"]),
        (
            [skip("a", 0, segment=ID), skip("a", 0, segment=OTHER)],
            [f"skipped a-0 segment {ID}: off", f"skipped a-0 segment {OTHER}: off"],
        ),
    ],
)
def test_skip_lines(skips: list[Skip], lines: list[str]) -> None:
    assert list(skip_lines(skips)) == lines


@pytest.mark.parametrize(
    ("in_file", "in_force", "unused"),
    [
        ({"retention.ms": "5"}, {"retention.ms": "7"}, ["t.retention.ms=5"]),
        ({"retention.ms": "7"}, {"retention.ms": "7"}, []),
        ({"retention.ms": "7", "retention.bytes": "1"}, {"retention.ms": "7"}, ["t.retention.bytes=1"]),
        ({"retention.ms": "5"}, None, []),
    ],
)
def test_settings(in_file: dict[str, str], in_force: dict[str, str] | None, unused: list[str]) -> None:
    there = {} if in_force is None else {"t": TopicConfig.from_settings(in_force)}
    assert unused_settings({"t": TopicConfig.from_settings(in_file)}, there) == unused


SEGMENT = "nZUY_6-wRoqbn6andmnDWQ"
Capture = Callable[[str], Path]


@dataclass(slots=True)
class Recorded(SilentProgress):
    """The bars by title: unit, total, and the completed amount."""

    bars: dict[str, tuple[str, int | None, int]] = field(default_factory=dict)

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:
        done = [0]
        yield done.append
        self.bars[title] = (unit, total, sum(done))


READING = {"reading metadata": ("events", 118, 118)}
PHASES: dict[str, tuple[Callable[..., Any], type, dict[str, Any], dict[str, tuple[str, int | None, int]]]] = {
    "segments": (commands.segments, commands.SegmentsRequest, {"metadata": "metadata"}, READING),
    "format": (
        commands.format_records,
        *(commands.FormatRequest, {"metadata": "metadata"}, {"printing": ("records", 118, 118)}),
    ),
    "fetch": (
        commands.fetch,
        commands.FetchRequest,
        {"metadata": "metadata", "remote": "remote"},
        {**READING, "reading": ("offsets", 16785, 16785)},
    ),
    "cache build": (
        commands.build_cache,
        *(commands.BuildCacheRequest, {"metadata": "metadata", "out": "folder"}, READING),
    ),
    "cache verify": (
        commands.verify_cache,
        *(commands.CacheRequest, {"files": ["folder"]}, {"verifying": ("files", None, 0)}),
    ),
    "verify": (
        commands.verify,
        commands.VerifyRequest,
        {"metadata": "metadata", "remote": "remote"},
        {"listing": ("objects", None, 130), "checking": ("partitions", 9, 9)},
    ),
    "verify --deep": (
        commands.verify,
        commands.VerifyRequest,
        {"metadata": "metadata", "remote": "remote", "log_dir": ["metadata"], "deep": True},
        {"reading log directories": ("partitions", 7, 7), "reading segments": ("bytes", 23624946, 23624946)},
    ),
    "fetch a segment": (
        commands.fetch,
        commands.FetchRequest,
        {"metadata": "metadata", "remote": "remote", "raw_segment": SEGMENT},
        {"reading": ("bytes", 971188, 971188)},
    ),
    "copy from another tier": (
        lambda *of: [commands.copy(*of)],
        commands.CopyRequest,
        {"metadata": "metadata", "from_remote": "remote", "remote": "tier", "to_metadata": "new"},
        {"reading leader epochs": ("files", None, 0)},
    ),
}
"""Use case, request and its fields, and the bars: unit, total, and what is counted at the end.

A text that names one of the places of the test stands for this place.
"""


def test_reading_metadata_advances_with_each_chunk_that_a_slow_store_gives(tmp_path: Path) -> None:
    class SlowTopic(FolderTopic):
        """Return one record at a time, and record the shown progress before each."""

        def read(self, partition: int, start: int, end: int) -> Iterator[RecordChunk]:
            for offset in range(start, end):
                shown.append(sum(done))
                yield from super().read(partition, offset, offset + 1)

    manager = manager_at(tmp_path, writable=True)
    manager.publish([started(0), update(0), started(1)])
    manager.close()
    shown: list[int] = []
    done: list[int] = []

    @contextmanager
    def reading(total: int) -> Iterator[Advance]:
        assert total == 3
        yield done.append

    TopicBasedRemoteLogMetadataManager(SlowTopic(tmp_path), reading=reading).refresh()
    assert shown == [0, 1, 2]
    assert sum(done) == 3


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_shows_its_progress(phase: str, capture: Capture, tmp_path: Path) -> None:
    root, folder = capture("tiered-cluster"), tmp_path / "folder"
    places = {name: str(tmp_path / name) for name in ("tier", "new")}
    places |= {"metadata": str(root / "after"), "remote": str(root / "after-remote")}
    if phase == "cache verify":
        commands.build_cache(commands.BuildCacheRequest(metadata=places["metadata"], out=folder))

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [Path(placed(each)) for each in value]
        return folder if value == "folder" else places.get(value, value)

    use_case, request, fields, expected = PHASES[phase]
    progress = Recorded()
    result = use_case(request(**{name: placed(value) for name, value in fields.items()}), progress)
    # Some results are read while they are produced.
    list(getattr(result, "rows", result))
    assert expected.keys() <= progress.bars.keys()
    for title, (unit, total, done) in expected.items():
        found = progress.bars[title]
        assert found[0] == unit
        if unit == "files":
            assert found[1] == found[2] > 0
        else:
            assert found[1:] == (total, done)
