"""Flat files that are built in shares of the segment ids are those of the whole state, on both engines."""

import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands import BuildCacheRequest, build_cache
from tierctl.errors import IllegalEventError
from tierctl.metadata import cache_building as build
from tierctl.model import RemotePartitionDeleteState
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import decode, encode, metadata_partition

from tests.bench.metadata_log import Shape, metadata_log
from tests.cli.shell import tierctl
from tests.conftest import vectors
from tests.metadata.events import partition_delete
from tests.metadata.topics import topic_in
from tests.spark.executors.bulk import METADATA, Capture, damaged, on_both, within
from tests.spark.executors.test_fold import COUNT, absurd
from tests.support.amounts import rest_in_matrix

__all__ = ["absurd"]

Share = Callable[[int], None]


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Share:
    """Set the number of events of a share."""
    return lambda events: monkeypatch.setattr(build, "SHARE_EVENTS", events)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.rlmcache")}


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a topic of Kafka's own histories, those with an event that brokers refuse left out.

    Copies fail and are repeated, events are ignored, and whole partitions are deleted in between.
    """
    records = []
    for history in vectors("cache.jsonl"):
        own = [bytes.fromhex(each["hex"]) for each in history["events"]]
        if not is_refused(own):
            events = [decode(value) for value in own]
            homes = [metadata_partition(e.topic_id, e.partition, COUNT) for e in events]
            records += zip(homes, own, strict=True)
            if len(records) % 3 == 0:
                of, home = events[0], homes[0]
                mark = partition_delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
                mark = replace(mark, topic=of.topic, topic_id=of.topic_id, partition=of.partition)
                records.append((home, encode(mark)))
    folder = tmp_path_factory.mktemp("wild")
    topic = topic_in(folder, writable=True, partition_count=COUNT)
    topic.append(records)
    topic.close()
    return folder


def is_refused(values: list[bytes]) -> bool:
    state = TierState()
    try:
        for offset, value in enumerate(values):
            fold_event(decode(value), state, metadata_partition=0, metadata_offset=offset)
    except IllegalEventError:
        return True
    return False


def assert_alike(folder: Path, tmp_path: Path, share: Share, *sizes: int) -> Counter[str]:
    """Build files at once and in shares of each size; return the counts of their kinds of folds."""
    folds: Counter[str] = Counter()
    kept = build.FoldInShares.fold

    def fold(self: build.FoldInShares, number: int) -> object:
        folds["shares"] += 1
        return kept(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build.FoldInShares, "fold", fold)
        runs = {}
        for size in (10**9, *sizes):
            share(size)
            out = tmp_path / str(size)
            ran = build_cache(BuildCacheRequest(metadata=str(folder), out=out))
            rows = [{**row, "file": Path(row["file"]).name} for row in ran.rows]
            runs[size] = ran.is_complete, rows, files_in(out)
    assert all(found == runs[10**9] for found in runs.values())
    assert runs[10**9][2]
    return folds


@pytest.mark.parametrize("place", rest_in_matrix(METADATA))
def test_captures(place: str, capture: Capture, tmp_path: Path, share: Share) -> None:
    assert assert_alike(within(capture, place), tmp_path, share, 1, 50)["shares"] > 3


def test_histories_of_all_kinds(wild: Path, tmp_path: Path, share: Share) -> None:
    assert assert_alike(wild, tmp_path, share, 7, 300)["shares"] > 50


def test_records_that_brokers_cannot_use(absurd: Path, tmp_path: Path, share: Share) -> None:
    """Such a topic is folded whole, because only that describes all that is wrong."""
    assert not assert_alike(absurd, tmp_path / "absurd", share, 30)["shares"]
    folder = tmp_path / "damaged"
    folder.mkdir()
    assert not assert_alike(damaged(folder), tmp_path / "built", share, 5)["shares"]


def test_lost_events(capture: Capture, tmp_path: Path, share: Share) -> None:
    folder = within(capture, "finite-metadata/after")
    assert not assert_alike(folder, tmp_path, share, 5)["shares"]


@pytest.fixture(params=["capture", "wild", "absurd", "damaged"])
def place(request: pytest.FixtureRequest, capture: Capture, tmp_path: Path) -> Path:
    if request.param == "capture":
        return within(capture, "tiered-cluster/after")
    if request.param == "damaged":
        (tmp_path / "topic").mkdir()
        return damaged(tmp_path / "topic")
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.mark.usefixtures("spark")
def test_spark(place: Path, tmp_path: Path, share: Share) -> None:
    share(20)
    out = tmp_path / "out"
    where = ("cache", "build", "--metadata", place, "-o", "json", "--out", out)
    here = tierctl(*where)
    built = files_in(out)
    for path in out.iterdir():
        path.unlink()
    there = on_both(*where)[1]
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    assert files_in(out) == built
    assert built


def test_memory(tmp_path: Path, share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the events were read, memory does not depend on the number of segments."""
    peaks: dict[tuple[int, int], int] = {}
    read = build.FoldInShares.read

    def then_reset(*args: Any) -> None:
        read(*args)
        tracemalloc.reset_peak()

    monkeypatch.setattr(build.FoldInShares, "read", then_reset)
    for segments in (3_000, 3_001, 12_000):
        folder = metadata_log(Shape(segments=segments, user_partitions=1, metadata_partitions=1))
        for size in (10**9, 800):
            share(size)
            request = BuildCacheRequest(metadata=str(folder), out=tmp_path / f"{segments}-{size}")
            tracemalloc.start()
            build_cache(request)
            peaks[segments, size] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert files_in(tmp_path / f"{segments}-800") == files_in(tmp_path / f"{segments}-{10**9}")
    # The first runs also import modules.
    whole, shared = (peaks[12_000, size] - peaks[3_001, size] for size in (10**9, 800))
    assert shared < whole / 3, peaks
