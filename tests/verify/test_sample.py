"""`verify --sample` and `--budget`: the segments that they read, the finding, and the stored record."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tierctl.checks import deep
from tierctl.checks.deep import Chosen, DeepReads, Sample
from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import FileSystem
from tierctl.metadata import state_dir
from tierctl.metadata.state_dir import KEPT_MS, READ_SEGMENTS, ReadingRun, read_segments, record_read_segments
from tierctl.model import Selection, TopicIdPartition, Uuid
from tierctl.model.settings.scopes import parse_size
from tierctl.report.table import parse_percent
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.storage import index_cache
from tierctl.wire.arrays import Int64s

from tests.apply.test_enabled import full
from tests.cli.shell import Ran, tierctl
from tests.plan import tier as made
from tests.plan.tier import TOPIC_ID, segment, segment_id
from tests.support.faults import assert_durable
from tests.verify.cases import CASES, OTHER
from tests.verify.tiers import NOW_MS, Spoilt

PARTITION = TopicIdPartition(OTHER, "made", 0)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))


def sampled(tier: Spoilt, *more: object, now_ms: int = NOW_MS, state: bool = True) -> Ran:
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--now", now_ms)
    kept = ("--state-dir", tier.remote.parent / "state") if state else ()
    return tierctl("verify", *where, *kept, "-o", "jsonl", *more)


def said(ran: Ran) -> list[dict[str, Any]]:
    return [found for line in ran.lines if (found := json.loads(line))["check"] == "not_read"]


def recorded(tier: Spoilt) -> dict[Uuid, ReadingRun]:
    found = read_segments(tier.remote.parent / "state")
    return {segment_id: run for runs in found.values() for segment_id, run in runs.items()}


SIZES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 9), st.booleans()), max_size=40)


def chosen(
    sizes: Sequence[tuple[int, int, bool]], percent: float, budget_bytes: int | None, seed: int, count: int
) -> tuple[set[int], DeepReads]:
    """Choose among segments with these sizes of logs and indexes, read earlier or not, in `count` states."""
    segments = [segment(each, each, each, size=log_bytes) for each, (log_bytes, _, _) in enumerate(sizes)]
    parts = [part for at in range(count) for part in made.tier(*segments[at::count])]
    recent = frozenset(segment_id(number) for number, (_, _, was_read) in enumerate(sizes) if was_read)
    read = {(TOPIC_ID, 0): recent}
    reads = DeepReads(sample=Sample(percent=percent, seed=seed, budget_bytes=budget_bytes, was_read=read))
    state = TierState({part.topic_id_partition.key: part for part in parts})
    state.elsewhere = lambda question, _: chain.from_iterable(
        question(TierState({part.topic_id_partition.key: part})) for part in parts
    )
    candidates = reads.begin(state, Selection())
    assert candidates is not None
    reads.choose(
        candidates, (one for part in parts for one in candidates.of(part, _totals(part, sizes))), LATER
    )
    assert reads.chosen is not None
    taken = {each for part in parts for each in reads.chosen.of(part)}
    return {number for number in range(len(sizes)) if segment_id(number) in taken}, reads


LATER = {0: 1 << 40}


def _totals(part: PartitionState, sizes: Sequence[tuple[int, int, bool]]) -> Int64s:
    """Return the size of all objects of each segment, which its start offset numbers."""
    numbers = part.segments.columns.column("start").tolist()
    return np.array([sum(sizes[number][:2]) for number in numbers], np.int64)


@settings(deadline=None)
@given(SIZES, st.floats(0.1, 100), st.none() | st.integers(0, 2000), st.integers(0, 1 << 32))
def test_a_sample_is_random_bounded_and_the_same_for_a_seed(
    sizes: list[tuple[int, int, bool]], percent: float, budget_bytes: int | None, seed: int
) -> None:
    taken, reads = chosen(sizes, percent, budget_bytes, seed, 1)
    with mock.patch.object(deep, "_BUCKET_SHIFT", 15):
        # Two buckets for segments that were read, and two for the others.
        again, apart = chosen(sizes, percent, budget_bytes, seed, 3)
    assert (again, apart.over_budget, apart.planned_bytes) == (taken, reads.over_budget, reads.planned_bytes)
    assert reads.planned_bytes == sum(sizes[each][0] for each in taken)
    assert len(sizes) * percent / 100 <= reads.sampled + 1e-6 < len(sizes) * percent / 100 + 1.001
    assert len(taken) == reads.sampled - reads.over_budget
    if budget_bytes is None:
        assert not reads.over_budget
    else:
        assert sum(sum(sizes[each][:2]) for each in taken) <= budget_bytes
    if any(sizes[each][2] for each in taken):
        assert taken >= {number for number, (_, _, was_read) in enumerate(sizes) if not was_read}


def test_seeds_differ() -> None:
    found = [frozenset(chosen([(1, 0, False)] * 200, 5, None, seed, 1)[0]) for seed in range(20)]
    assert len(set(found)) == len(found)


def test_segments_that_came_later_are_not_chosen() -> None:
    sample = Sample(percent=100, seed=7)
    (part,) = made.tier(*(segment(number, number, number) for number in range(4)))
    counts = [len(Chosen(sample=sample, last=b"\x02", read={0: read}).of(part)) for read in (0, 5, 8)]
    assert counts == [0, 2, 4]


def test_runs_read_other_segments_until_all_were_read(tier: Spoilt) -> None:
    shares = []
    for number in range(4):
        ran = sampled(tier, "--sample", "25%", now_ms=NOW_MS + number * DAY_MS)
        assert (ran.code, ran.err) == (0, "")
        assert len(recorded(tier)) == 9 * (number + 1)
        (finding,) = said(ran)
        assert finding["found"].startswith("27 of 36 segments were not read")
        assert "read 9 of 36 segments" in ran.summary
        shares.append(float(finding["found"].split("; ")[1].partition("%")[0]))
        assert f"{shares[-1]:g}% in the last 30 days" in ran.summary
    assert shares == sorted(set(shares))
    assert shares[-1] == 100


def test_a_seed_repeats_the_choice(tier: Spoilt) -> None:
    first = sampled(tier, "--sample", "10%")
    before = recorded(tier)
    (seed,) = {run.seed for run in before.values()}
    assert f"seed {seed}" in first.summary
    sampled(tier, "--sample", "10%", "--seed", seed, now_ms=NOW_MS + 1)
    assert recorded(tier).keys() == before.keys()
    assert {run.at_ms for run in recorded(tier).values()} == {NOW_MS + 1}


def test_the_budget_bounds_what_is_read(tier: Spoilt, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    write = index_cache._write

    def counting(stream: BinaryIO, path: Path, size_bytes_max: int) -> None:
        write(stream, path, size_bytes_max)
        read.append(path.stat().st_size)

    monkeypatch.setattr(index_cache, "_write", counting)
    ran = sampled(tier, "--budget", "5MB")
    assert 0 < sum(read) <= 5 << 20
    (finding,) = said(ran)
    assert "--budget 5242880 bytes ended the run early" in finding["found"]
    assert "--budget ended the run early" in ran.summary
    assert "seed" in ran.summary


def test_a_budget_below_every_segment_is_no_success(tier: Spoilt) -> None:
    ran = sampled(tier, "--budget", "0")
    (finding,) = said(ran)
    assert (ran.code, finding["severity"]) == (3, "warning")
    assert "36 of 36 segments were not read" in finding["found"]
    assert "0% in the last 30 days" in finding["found"]


def test_a_budget_for_everything_reads_everything(tier: Spoilt) -> None:
    ran = sampled(tier, "--budget", "1GB")
    assert (said(ran), "read 36 of 36 segments, 100% of the bytes" in ran.summary) == ([], True)
    assert "ended" not in ran.summary
    assert len(recorded(tier)) == 36


def test_without_a_state_directory_the_share_is_not_known(tier: Spoilt) -> None:
    ran = sampled(tier, "--sample", "5%", state=False)
    assert "the share of the last 30 days is not known without --state-dir" in said(ran)[0]["found"]


def test_deep_records_what_it_read_and_not_what_it_could_not_read(tier: Spoilt) -> None:
    CASES["log gone"].spoil(tier)
    ran = sampled(tier, "--deep")
    assert ran.code == 3
    assert len(recorded(tier)) == 35
    assert "read 35 of 36 segments" in ran.summary
    assert "100%" not in ran.summary


def test_reads_of_more_than_30_days_ago_are_dropped_from_the_record(tier: Spoilt) -> None:
    sampled(tier, "--deep")
    for later_ms, count in ((KEPT_MS - 1, 36), (KEPT_MS, 2)):
        sampled(tier, "--sample", "1%", "--seed", later_ms, now_ms=NOW_MS + later_ms)
        assert len(recorded(tier)) == count


def test_a_damaged_record_ends_the_run_before_anything_is_read(tier: Spoilt) -> None:
    state = tier.remote.parent / "state"
    state.mkdir()
    for content in ("{", "[]", '{"runs": [], "partitions": [{}]}', "null"):
        (state / READ_SEGMENTS).write_text(content)
        ran = sampled(tier, "--sample", "1%")
        assert (ran.code, ran.out) == (7, "")
        assert "delete the file: every segment then counts as not read" in ran.err
        assert (state / READ_SEGMENTS).read_text() == content


@pytest.mark.parametrize(
    "options",
    [
        ("--seed", 1),
        ("--sample", "0%"),
        ("--sample", "101%"),
        ("--sample", "some"),
        ("--budget", "10 apples"),
    ],
)
def test_wrong_options_are_refused(options: tuple[object, ...], capture: Callable[[str], Path]) -> None:
    root = capture("tiered-cluster")
    assert sampled(Spoilt(root / "before", root / "before-remote"), *options, state=False).code == 2


def test_a_sample_needs_the_tier(capture: Callable[[str], Path]) -> None:
    ran = tierctl("verify", "--metadata", capture("tiered-cluster") / "before", "--sample", "1%")
    assert (ran.code, "--remote is missing" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("10GB", 10 << 30), ("1.5 KiB", 1536), ("7", 7), ("2t", 2 << 40), ("3 b", 3)]
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


def test_a_record_that_cannot_be_written_is_a_warning(tier: Spoilt, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sampled(tier, "--sample", "100%", state=False)
    monkeypatch.setattr(state_dir, "write_json", full)
    ran = sampled(tier, "--sample", "100%")
    assert (ran.code, len(ran.lines)) == (expected.code, len(expected.lines)), ran.err
    assert "No space left on device" in ran.err
    assert "the segments that this run read count as not read" in ran.err
    assert recorded(tier) == {}


def test_percentages() -> None:
    assert [parse_percent(text) for text in ("1%", "0.5 %", "100")] == [1, 0.5, 100]
    with pytest.raises(UsageError):
        parse_percent("1e3%")


IDS = [segment_id(number) for number in range(4)]
BEFORE = ReadingRun(DAY_MS, 1)
AFTER = ReadingRun(DAY_MS + KEPT_MS - 1, None)


def _first(folder: Path) -> None:
    record_read_segments(folder, {PARTITION.key: IDS[:2]}, BEFORE)


def _second(folder: Path) -> Callable[[FileSystem], None]:
    return lambda fs: record_read_segments(folder, {PARTITION.key: IDS[1:3]}, AFTER, fs)


OLD = {PARTITION.key: dict.fromkeys(IDS[:2], BEFORE)}
NEW = {PARTITION.key: {IDS[0]: BEFORE, IDS[1]: AFTER, IDS[2]: AFTER}}


def test_the_record_is_written_durably_and_every_cut_of_it_is_told(tmp_path: Path) -> None:
    _first(tmp_path)
    assert read_segments(tmp_path) == OLD
    assert_durable(_second(tmp_path))
    assert read_segments(tmp_path) == NEW
    whole = (tmp_path / READ_SEGMENTS).read_bytes()
    for size in range(len(whole) - 2):
        (tmp_path / READ_SEGMENTS).write_bytes(whole[:size])
        with pytest.raises(CorruptInputError):
            read_segments(tmp_path)
