"""Commands on a metadata topic whose retention deleted its oldest events, compared with a real broker.

Metadata partition 2 begins at offset 28, 0 at offset 1, 1 is whole. `cut` is the disk right after the cut,
`after` after a broker was restarted on it, which raised log starts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands
from tierctl.errors import ExitCode
from tierctl.model.location import TruncatedMetadata
from tierctl.model.progress import SilentProgress
from tierctl.verify.findings import Finding

Capture = Callable[..., Path]

CUT_OFF = {"keeplocal-0": "83", "orders-0": "420", "quiet-0": None}
"""Partitions that are not complete in `cut`, and the last offset of their lost segments, if others follow."""


@pytest.fixture
def root(capture: Capture) -> Path:
    return capture("finite-metadata")


def named(progress: SilentProgress) -> set[str]:
    """Return the partitions that errors name."""
    return {problem.message.split()[0] for problem in progress.problems}


def request_at(root: Path, stage: str, *sources: str) -> dict[str, Any]:
    """Return where things are at a stage; `sources` are `log_dir` and `remote`."""
    tier = root / ("before-remote" if stage == "cut" else f"{stage}-remote")
    found: dict[str, Any] = {"metadata": str(root / stage)}
    if "log_dir" in sources:
        found["log_dir"] = [root / stage]
    if "remote" in sources:
        found["remote"] = str(tier)
    return found


def sweep(root: Path, stage: str, *sources: str, **more: Any) -> tuple[set[str], int, SilentProgress]:
    """Return the ids of the segments that a sweep would delete."""
    progress = SilentProgress()
    request = commands.SweepRequest(
        **request_at(root, stage, *sources),
        topic_configs=root / "topics-next.properties",
        now_ms=int((root / "now_ms").read_text()),
        **more,
    )
    result = commands.sweep(request, progress)
    return {str(step.segment_id) for step in result.plan.steps}, result.exit_code, progress


@pytest.mark.parametrize("stage", ["after", "cut"])
def test_with_accept_sweep_deletes_what_the_broker_deleted(root: Path, stage: str) -> None:
    expected = {line.split()[3] for line in (root / "next-deleted.txt").read_text().splitlines()}
    found, exit_code, progress = sweep(
        root, stage, "log_dir", "remote", truncated_metadata=TruncatedMetadata.ACCEPT
    )
    assert (found, exit_code, progress.problems) == (expected, ExitCode.OK, [])


def test_log_starts_show_that_the_remaining_events_are_complete(root: Path) -> None:
    """The broker raised every log start to the first known segment, or to the local log without one."""
    expected = {line.split()[3] for line in (root / "next-deleted.txt").read_text().splitlines()}
    found, exit_code, progress = sweep(root, "after", "log_dir")
    assert (found, exit_code, progress.problems) == (expected, ExitCode.OK, [])


def test_partitions_without_their_oldest_events_are_named_with_offsets(root: Path) -> None:
    found, exit_code, progress = sweep(root, "cut", "log_dir")
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
    """`orders-1` and `recopied-0` have segments from offset 0 on; expiring-0 lost no object."""
    progress = SilentProgress()
    result = commands.segments(commands.SegmentsRequest(**request_at(root, "after", *sources)), progress)
    assert len(result.rows) == 19
    assert named(progress) == incomplete
    assert result.exit_code == (ExitCode.CORRUPT if incomplete else ExitCode.OK)


@pytest.mark.parametrize(
    ("topic", "exit_code"), [("whole", ExitCode.OK), ("expiring", ExitCode.CORRUPT)], ids=str
)
def test_only_selected_partitions_count(root: Path, topic: str, exit_code: ExitCode) -> None:
    request = commands.SegmentsRequest(**request_at(root, "after"), topic=[topic])
    assert commands.segments(request).exit_code == exit_code


def test_the_objects_of_another_tier_prove_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    progress = SilentProgress()
    where = request_at(root, "after") | {"remote": str(tmp_path)}
    commands.segments(commands.SegmentsRequest(**where), progress)
    assert named(progress) == {"expiring-0", "keeplocal-0", "orders-0"}


def copies(root: Path, **more: Any) -> tuple[list[tuple[str, int | None, int | None]], int, set[str]]:
    """Return what `copy` would copy from the disk right after the cut."""
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
    """It read the topic before the cut, so that everything is known, and nothing is copied again."""
    before = commands.SegmentsRequest(metadata=str(root / "before"), state_dir=tmp_path)
    whole = commands.segments(before).rows
    for stage in ("cut", "after"):
        progress = SilentProgress()
        request = commands.SegmentsRequest(metadata=str(root / stage), state_dir=tmp_path)
        result = commands.segments(request, progress)
        assert (result.exit_code, progress.problems) == (ExitCode.OK, [])
        if stage == "cut":
            assert list(result.rows) == list(whole)
            assert copies(root, state_dir=tmp_path) == ([], ExitCode.OK, set())


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
    assert {str(f.segment_id) for f in findings if f.kind.value == "leaked"} == leaked
    others = {(f.kind.value, f.severity.value) for f in findings if f.kind.value != "leaked"}
    assert others == {("dropped_event", "info")}
    dropped = [f for f in findings if f.kind.value == "dropped_event"]
    assert len(dropped) == sum(line.startswith("orphan event") for line in lines)
    assert exit_code == ExitCode.PARTIAL


def test_verify_states_the_offsets_that_are_missing(root: Path) -> None:
    findings, exit_code = verified(root, "cut")
    found = {f"{f.topic}-{f.partition}": f for f in findings if f.kind.value == "incomplete_history"}
    ends = {name: None if f.end_offset is None else str(f.end_offset) for name, f in found.items()}
    assert ends == CUT_OFF
    assert not [f for f in findings if f.kind.value == "gap"]
    assert exit_code == ExitCode.CORRUPT
