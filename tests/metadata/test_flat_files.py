"""Flat files are the same on both engines, also of topics with events that brokers refuse, or with damage."""

from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.errors import IllegalEventError
from tierctl.model import RemotePartitionDeleteState
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import decode, encode, metadata_partition

from tests.cli.shell import tierctl
from tests.conftest import vectors
from tests.metadata.events import partition_delete
from tests.metadata.topics import topic_in
from tests.spark.executors.bulk import Capture, damaged, on_both, within
from tests.spark.executors.test_fold import COUNT, absurd

__all__ = ["absurd"]


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
def test_spark(place: Path, tmp_path: Path) -> None:
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
