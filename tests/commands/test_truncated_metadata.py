"""Commands on a metadata topic whose retention deleted its oldest events, compared with a real broker.

Metadata partition 2 begins at offset 28, partition 0 at offset 1, and partition 1 is complete. `cut` is the
disk right after the cut, `after` the disk after a broker was restarted on it and raised log starts.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands
from tierctl.checks.findings import Finding
from tierctl.errors import ExitCode, MissingEventsError, RemoteTierMissing
from tierctl.model import Uuid
from tierctl.model.location import TruncatedMetadata
from tierctl.model.progress import SilentProgress
from tierctl.spark.sources.load_options import LogOptions
from tierctl.spark.sources.log_plan import plan_tasks
from tierctl.spark.sources.remote_log import rows_of, schema_of
from tierctl.wire.files.checkpoints import write_partition_metadata
from tierctl.wire.metadata.values import metadata_partition

from tests.cli.shell import tierctl

Capture = Callable[..., Path]

CUT_OFF = {"keeplocal-0": "83", "orders-0": "420", "quiet-0": None}
"""Incomplete partitions in `cut`, and the last offset of their lost segments if others follow."""


TOPIC_IDS = {"expiring": "r2fo_dYESeun32yKJK4hCA", "orders": "xbWPBMxrRAOZKB4flwOaqg"}


@pytest.fixture
def root(capture: Capture) -> Path:
    return capture("finite-metadata")


def named(progress: SilentProgress) -> set[str]:
    """Return the partitions that errors name."""
    return {problem.message.split()[0] for problem in progress.problems}


def request_at(root: Path, stage: str, *sources: str) -> dict[str, Any]:
    """Return the location options of a stage; `sources` are `log_dir` and `remote`."""
    tier = root / ("before-remote" if stage == "cut" else f"{stage}-remote")
    found: dict[str, Any] = {"metadata": str(root / stage)}
    if "log_dir" in sources:
        found["log_dir"] = [root / stage]
    if "remote" in sources:
        found["remote"] = str(tier)
    return found


def listed(where: dict[str, Any], **more: Any) -> tuple[list[Any], int, SilentProgress]:
    """Return the segments that a listing has, its exit code, and what it said."""
    progress = SilentProgress()
    result = commands.segments(commands.SegmentsRequest(**where, **more), progress)
    return list(result.rows), result.exit_code, progress


def sweep(root: Path, where: dict[str, Any], **more: Any) -> tuple[set[str], int, SilentProgress]:
    """Return the ids of the segments that a sweep deletes, its exit code, and what it said."""
    progress = SilentProgress()
    request = commands.SweepRequest(
        **where,
        topic_configs=root / "topics-next.properties",
        now_ms=int((root / "now_ms").read_text()),
        **more,
    )
    result = commands.sweep(request, progress)
    return {str(step.segment_id) for step in result.plan.steps}, result.exit_code, progress


@pytest.mark.parametrize(
    ("stage", "sources", "more"),
    [
        ("cut", ("log_dir", "remote"), {"truncated_metadata": TruncatedMetadata.ACCEPT}),
        ("after", ("log_dir",), {}),
    ],
    ids=["accept", "log starts"],
)
def test_sweep_deletes_what_the_broker_deleted(
    root: Path, stage: str, sources: tuple[str, ...], more: dict[str, Any]
) -> None:
    """The broker raised each log start to the first known segment, or to the local log if there is none."""
    expected = {line.split()[3] for line in (root / "next-deleted.txt").read_text().splitlines()}
    found, exit_code, progress = sweep(root, request_at(root, stage, *sources), **more)
    assert (found, exit_code, progress.problems) == (expected, ExitCode.OK, [])


def test_partitions_without_their_oldest_events_are_named_with_offsets(root: Path) -> None:
    found, exit_code, progress = sweep(root, request_at(root, "cut", "log_dir"))
    assert exit_code == ExitCode.CORRUPT
    assert len(found) == 3, "orders-1 is complete, and its segments are deleted"
    assert named(progress) == CUT_OFF.keys()
    orders = next(each for each in progress.problems if each.message.startswith("orders-0"))
    assert orders.message == (
        "orders-0 is not known to be complete: metadata partition 2 begins at offset 28: the events before "
        "it are gone; the first known segment begins at offset 421, the log start is 0"
    )
    hint = progress.problems[-1].hint or ""
    assert "--truncated-metadata accept" in hint
    assert "--state-dir" in hint
    assert not [line for line in progress.lines if "could not be understood" in line]


@pytest.mark.parametrize(
    ("sources", "incomplete"),
    [
        ((), {"expiring-0", "keeplocal-0", "orders-0"}),
        (("log_dir",), set()),
        (("remote",), {"keeplocal-0", "orders-0"}),
    ],
    ids=["nothing", "log starts", "objects"],
)
def test_evidence_of_a_listing(root: Path, sources: tuple[str, ...], incomplete: set[str]) -> None:
    """`orders-1` and `recopied-0` have segments from offset 0 on; expiring-0 has all its objects."""
    found, exit_code, progress = listed(request_at(root, "after", *sources))
    assert len(found) == 19
    assert named(progress) == incomplete
    assert exit_code == (ExitCode.CORRUPT if incomplete else ExitCode.OK)


@pytest.mark.parametrize(
    ("topic", "exit_code"), [("whole", ExitCode.OK), ("expiring", ExitCode.CORRUPT)], ids=str
)
def test_only_selected_partitions_count(root: Path, topic: str, exit_code: ExitCode) -> None:
    assert listed(request_at(root, "after"), topic=[topic])[1] == exit_code


def test_the_objects_of_another_tier_prove_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    with pytest.raises(RemoteTierMissing, match="finished segments"):
        listed(request_at(root, "after"), remote=str(tmp_path))


def copies(root: Path, **more: Any) -> tuple[list[tuple[str, int | None, int | None]], int, set[str]]:
    """Return the segments that `copy` would copy from the disk right after the cut."""
    progress = SilentProgress()
    request = commands.CopyRequest(
        **request_at(root, "cut", "log_dir", "remote"), topic_configs=root / "topics.properties", **more
    )
    result = commands.copy(request, progress)
    steps = [(step.topic, step.start_offset, step.end_offset) for step in result.plan.steps]
    return steps, result.exit_code, named(progress)


def test_segments_that_are_still_local_are_not_copied_again(root: Path) -> None:
    assert copies(root) == ([], ExitCode.CORRUPT, {*CUT_OFF, "recopied-0"})


def test_with_accept_copy_copies_again_what_the_broker_copied_again(root: Path) -> None:
    lines = [line.split() for line in (root / "facts.txt").read_text().splitlines()]
    expected = [(line[3], int(line[5]), int(line[6])) for line in lines if line[:2] == ["new", "segment"]]
    assert copies(root, truncated_metadata=TruncatedMetadata.ACCEPT) == (expected, ExitCode.OK, set())


def test_a_state_directory_keeps_what_the_topic_lost(root: Path, tmp_path: Path) -> None:
    """The state directory read the topic before the cut: no history is incomplete, no object is leaked."""
    whole, *_ = listed(request_at(root, "before"), state_dir=tmp_path)
    for stage in ("cut", "after"):
        found, exit_code, progress = listed(request_at(root, stage), state_dir=tmp_path)
        assert (exit_code, progress.problems) == (ExitCode.OK, [])
        if stage == "cut":
            assert found == whole
            assert copies(root, state_dir=tmp_path) == ([], ExitCode.OK, set())
            assert verified(root, "cut", state_dir=tmp_path) == ([], ExitCode.OK)
            where = request_at(root, "cut", "log_dir", "remote")
            status = commands.status(commands.StatusRequest(**where, state_dir=tmp_path))
            assert sum(row.segments for row in status.topics) == len(whole)
            assert status.problems == ()


def verified(root: Path, stage: str, **more: Any) -> tuple[list[Finding], ExitCode]:
    """Return the findings about a stage."""
    stream = commands.verify(
        commands.VerifyRequest(
            **request_at(root, stage, "log_dir", "remote"), now_ms=int((root / "now_ms").read_text()), **more
        )
    )
    return list(stream), stream.exit_code


def test_verify_distinguishes_leaked_objects_from_damage(root: Path) -> None:
    findings, exit_code = verified(root, "after")
    lines = (root / "facts.txt").read_text().splitlines()
    leaked = {line.split()[-1] for line in lines if line.startswith("object without events")}
    assert {str(f.segment_id) for f in findings if f.check.value == "leaked"} == leaked
    others = {(f.check.value, f.severity.value) for f in findings if f.check.value != "leaked"}
    assert others == {("dropped_event", "info")}
    dropped = [f for f in findings if f.check.value == "dropped_event"]
    assert len(dropped) == sum(line.startswith("orphan event") for line in lines)
    assert exit_code == ExitCode.PARTIAL


def test_verify_states_the_offsets_that_are_missing(root: Path) -> None:
    findings, exit_code = verified(root, "cut")
    found = {f"{f.topic}-{f.partition}": f for f in findings if f.check.value == "incomplete_history"}
    ends = {name: None if f.end_offset is None else str(f.end_offset) for name, f in found.items()}
    assert ends == CUT_OFF
    assert not [f for f in findings if f.check.value == "gap"]
    assert exit_code == ExitCode.CORRUPT


@pytest.fixture
def gone(root: Path, tmp_path: Path) -> Path:
    """Return the capture's metadata topic without events: empty segments, named after the end offsets."""
    ends = {0: 20, 1: 4, 2: 48, 3: 0, 4: 0}
    for number, end in ends.items():
        folder = tmp_path / "gone" / f"__remote_log_metadata-{number}"
        folder.mkdir(parents=True)
        (folder / f"{end:020d}.log").touch()
        shutil.copy(root / "before" / folder.name / "partition.metadata", folder)
    return tmp_path / "gone"


def test_without_any_event_the_metadata_partitions_are_named(gone: Path) -> None:
    found, exit_code, progress = listed({"metadata": str(gone)})
    assert (found, exit_code) == ([], ExitCode.CORRUPT)
    assert [problem.message for problem in progress.problems] == [
        f"metadata partition {number} begins at offset {end}: the events before it are gone, and no later "
        "event names a user partition"
        for number, end in ((0, 20), (1, 4), (2, 48))
    ]
    assert [problem.hint is None for problem in progress.problems] == [True, True, False]
    with commands.verify(commands.VerifyRequest(metadata=str(gone))) as stream:
        findings = list(stream)
    assert [(f.check.value, f.partition, f.end_offset) for f in findings] == [
        ("incomplete_history", number, end) for number, end in ((0, 19), (1, 3), (2, 47))
    ]
    assert stream.exit_code == ExitCode.CORRUPT


def test_without_any_event_the_logs_name_the_partitions(root: Path, gone: Path) -> None:
    """keeplocal-0 and recopied-0 have all their offsets in the local log."""
    _, exit_code, progress = listed({"metadata": str(gone)}, log_dir=[root / "before"])
    assert exit_code == ExitCode.CORRUPT
    assert named(progress) == {"expiring-0", "orders-0", "orders-1", "quiet-0", "whole-0"}


def test_a_state_directory_knows_a_topic_that_lost_every_event(
    root: Path, gone: Path, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    whole, *_ = listed(request_at(root, "before"), state_dir=state_dir)
    for _ in range(2):
        found, exit_code, progress = listed({"metadata": str(gone)}, state_dir=state_dir)
        assert (found, exit_code, progress.problems) == (whole, ExitCode.OK, [])


def test_records_of_a_complete_partition_are_served(root: Path) -> None:
    for topic, expected in (("orders", ExitCode.CORRUPT), ("whole", ExitCode.OK)):
        request = commands.FetchRequest(
            **request_at(root, "cut", "log_dir", "remote"), topic=[topic], partition=[0], limit=3
        )
        rows = commands.fetch(request)
        assert isinstance(rows, commands.RecordRows)
        assert len(list(rows)) == 3
        assert rows.exit_code == expected


@pytest.fixture
def own(root: Path, tmp_path: Path) -> dict[str, Any]:
    """Return a copy of the metadata topic and the tier of `after` that a test may change."""
    for folder in (root / "after").glob("__remote_log_metadata-*"):
        shutil.copytree(folder, tmp_path / "metadata" / folder.name)
    shutil.copytree(root / "after-remote", tmp_path / "remote")
    return {"metadata": str(tmp_path / "metadata"), "remote": str(tmp_path / "remote")}


def test_with_accept_sweep_leaves_the_tier_that_the_broker_left(root: Path, own: dict[str, Any]) -> None:
    where = own | {"log_dir": [root / "after"]}
    accepted = {"truncated_metadata": TruncatedMetadata.ACCEPT, "apply": True, "max_fraction": 1.0}
    assert sweep(root, where, **accepted)[1] == ExitCode.OK
    assert listed({"metadata": own["metadata"]})[0] == listed(request_at(root, "next"))[0]


def test_partition_deletes_wait_for_a_complete_history(own: dict[str, Any]) -> None:
    """Each object of expiring-0 has events; orders-0 has objects without events."""
    marks = [
        commands.DeleteRequest(
            **own,
            topic=[topic],
            mark=True,
            i_know_it_is_deleted=[TOPIC_IDS[topic]],
            apply=True,
            truncated_metadata=policy,
        )
        for topic, policy in (
            ("expiring", TruncatedMetadata.REFUSE),
            ("orders", TruncatedMetadata.REFUSE),
            ("orders", TruncatedMetadata.ACCEPT),
        )
    ]
    assert [commands.delete(mark).exit_code for mark in marks] == [ExitCode.OK, ExitCode.CORRUPT, ExitCode.OK]

    def deleted(policy: TruncatedMetadata) -> tuple[set[str], int]:
        result = commands.delete(commands.DeleteRequest(**own, truncated_metadata=policy))
        return {f"{step.topic}-{step.partition}" for step in result.plan.steps}, result.exit_code

    assert deleted(TruncatedMetadata.REFUSE) == ({"expiring-0", "orders-1"}, ExitCode.CORRUPT)
    assert deleted(TruncatedMetadata.ACCEPT) == ({"expiring-0", "orders-0", "orders-1"}, ExitCode.OK)


def test_a_tier_whose_events_are_all_gone_is_no_foreign_one(root: Path, gone: Path) -> None:
    remote = root / "before-remote"
    with commands.verify(commands.VerifyRequest(metadata=str(gone), remote=str(remote))) as found:
        kinds = {finding.check.value for finding in found}
    assert (kinds, found.exit_code) == ({"leaked", "incomplete_history"}, ExitCode.CORRUPT)
    request = commands.SweepRequest(metadata=str(gone), remote=str(remote), log_dir=[root / "before"])
    assert commands.sweep(request).exit_code == ExitCode.CORRUPT


@pytest.mark.parametrize("command", ["status", "report", "explain"])
def test_an_untiered_topic_has_no_history_to_lack(root: Path, command: str, tmp_path: Path) -> None:
    """No broker copied anything of it, so the metadata topic lost none of its events."""
    log_dir = Path(shutil.copytree(root / "after", tmp_path / "after"))
    shutil.copytree(log_dir / "orders-0", log_dir / "plain-0")
    ids = (Uuid.from_bytes(bytes(15) + bytes([n])) for n in range(1, 256))
    lost = next(each for each in ids if metadata_partition(each, 0, 3) == 2)
    (log_dir / "plain-0" / "partition.metadata").write_bytes(write_partition_metadata(lost))
    configs = root / "topics-next.properties"
    where = ("--metadata", log_dir, "--log-dir", log_dir, "--topic-configs", configs)
    selected = ("plain", "0") if command == "explain" else ("--topic", "plain", "--topic", "orders")
    ran = tierctl(command, *selected, *where)
    # verify, whose findings a report has, does not know what a copy does with the topic.
    code = ExitCode.CORRUPT if command == "report" else ExitCode.OK
    assert (ran.code, "not known to be complete" in ran.err) == (code, False)


def test_format_notes_the_events_that_are_gone(root: Path) -> None:
    notes = {}
    for number in (1, 2):
        progress = SilentProgress()
        request = commands.FormatRequest(metadata=str(root / "after"), metadata_partition=[number])
        pages = commands.format_records(request, progress)
        assert sum(len(page.lines) for page in pages) == {1: 4, 2: 24}[number]
        assert pages.exit_code == ExitCode.OK
        notes[number] = progress.notes
    assert notes == {1: [], 2: ["metadata partition 2 begins at offset 28: the events before it are gone"]}


@pytest.mark.matrix
@pytest.mark.usefixtures("spark")
def test_the_pipeline_notes_events_that_its_tables_lack(root: Path, tmp_path: Path) -> None:
    for stage in ("before", "after"):
        assert piped(root / stage, tmp_path / "kept") == []
    assert len(piped(root / "after", tmp_path / "late")) == 2


def piped(metadata: Path, warehouse: Path) -> list[str]:
    """Return the notes of a pipeline run."""
    progress = SilentProgress()
    request = commands.RunPipelineRequest(metadata=str(metadata), warehouse=str(warehouse))
    commands.run_pipeline(request, progress)
    return progress.notes


def test_the_spark_source_reads_no_incomplete_partition_unless_asked(root: Path) -> None:
    def rows(**options: str) -> tuple[int, list[str]]:
        """Return the number of records, and the texts of errors."""
        where = {"metadata": root / "cut", "remote": root / "before-remote", "log_dir": root / "cut"}
        given = {name: str(path) for name, path in where.items()} | {"partition": "0"} | options
        found = LogOptions.of(given)
        tasks = plan_tasks(found, (), tuple(schema_of(found.mode).names))
        read = [row for task in tasks for batch in rows_of(task) for row in batch.to_pylist()]
        errors = [row["error"] for row in read if row.get("error")]
        return len(read) - len(errors), errors

    told = "orders-0 is not known to be complete"
    with pytest.raises(MissingEventsError, match=told):
        rows(topic="orders")
    count, errors = rows(topic="orders", mode="permissive")
    accepted, others = rows(topic="orders", mode="permissive", truncated_metadata="accept")
    assert count == accepted > 0
    assert [each for each in errors if told not in each] == others
    assert len(errors) == len(others) + 1
    assert rows(topic="whole")[1] == []
