"""The state that executors fold equals the state of a fold in this process, with all anomalies."""

import random
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.errors import EngineError, TierctlError
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.transport import Executors
from tierctl.spark.fold import SparkFold
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import decode, encode, metadata_partition

from tests.conftest import vectors
from tests.metadata.events import TOPIC_ID, started, update
from tests.metadata.pictures import picture
from tests.metadata.topics import manager_at, topic_in
from tests.spark.executors.bulk import assert_same, damaged, small_pieces
from tests.spark.worlds import Capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["small_pieces"]

COUNT = 6


def folded(uri: str, how: SparkFold | None = None) -> TierState:
    with closing(manager_at(uri, fold_runner=how)) as manager:
        return manager.refresh()


def folded_there(uri: str, spark: "SparkSession") -> TierState:
    return folded(uri, SparkFold(Executors(spark), TopicLocation(uri=uri)))


@pytest.fixture(scope="module")
def absurd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return mixed histories from Kafka; one value is invalid, and one topic's events are misplaced."""
    chance = random.Random(7)
    histories = [[bytes.fromhex(e["hex"]) for e in each["events"]] for each in vectors("cache.jsonl")]
    records: list[tuple[int, bytes]] = []
    while left := [number for number, history in enumerate(histories) if history]:
        number = chance.choice(left)
        value = histories[number].pop(0)
        event = decode(value)
        home = metadata_partition(event.topic_id, event.partition, COUNT)
        is_astray = number == 0 and len(histories[number]) < 3
        records.append((home if not is_astray else COUNT - 1 - home, value))
        if number == 1 and len(histories[number]) == 2:
            records.append((home, b"\x01nonsense"))
    folder = tmp_path_factory.mktemp("absurd")
    topic = topic_in(folder, writable=True, partition_count=COUNT)
    topic.append(records)
    topic.close()
    return folder


@pytest.mark.usefixtures("small_pieces")
def test_histories_with_all_that_is_wrong(absurd: Path, spark: "SparkSession", tmp_path: Path) -> None:
    uri = absurd.as_uri()
    here = folded(uri)
    assert here.quarantined
    assert here.anomaly_count
    assert any("in metadata partition" in q.error.message for q in here.quarantined)
    assert picture(folded_there(uri, spark)) == picture(here)
    bulk = SparkFold(Executors(spark), TopicLocation(uri=uri))
    folders = [tmp_path / name for name in ("here", "there")]
    states = []
    for folder, how in zip(folders, (None, bulk), strict=True):
        manager = manager_at(uri, state_dir=folder, fold_runner=how)
        states.append(picture(manager.refresh()))
        manager.close()
    assert states[1] == states[0]
    kept, same = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert same == kept


def test_a_damaged_metadata_partition_is_folded_whole(spark: "SparkSession", tmp_path: Path) -> None:
    uri = damaged(tmp_path).as_uri()
    assert picture(folded_there(uri, spark)) == picture(folded(uri))


def test_it_goes_on_from_there(tmp_path: Path, spark: "SparkSession") -> None:
    topic = topic_in(tmp_path, writable=True, partition_count=COUNT)
    home = metadata_partition(TOPIC_ID, 0, COUNT)
    topic.append([(home, encode(started(0)))])
    manager = manager_at(
        tmp_path.as_uri(), fold_runner=SparkFold(Executors(spark), TopicLocation(uri=tmp_path.as_uri()))
    )
    manager.refresh()
    topic.append([(home, encode(update(0))), (home, encode(started(1)))])
    topic.close()
    state = manager.refresh()
    assert picture(state) == picture(folded(tmp_path.as_uri()))
    manager.close()


@pytest.mark.parametrize("there", [False, True], ids=["no such folder", "shorter"])
def test_an_executor_that_sees_other_files(there: bool, tmp_path: Path, spark: "SparkSession") -> None:
    """Missing files on an executor must not look like an empty metadata topic."""
    whole, other = tmp_path / "whole", tmp_path / "other"
    for folder, count in ((whole, 2), (other, 1)) if there else ((whole, 2),):
        topic = topic_in(folder, writable=True, partition_count=1)
        topic.append([(0, encode(started(number))) for number in range(count)])
        topic.close()
    bulk = SparkFold(Executors(spark), TopicLocation(uri=other.as_uri()))
    says = "only up to offset 1" if there else str(other)
    with pytest.raises(EngineError if there else TierctlError, match=says) as e:
        manager_at(whole, fold_runner=bulk).refresh()
    assert e.value.hint


@pytest.mark.usefixtures("small_pieces", "spark")
def test_sizes_of_a_topic_that_lost_its_oldest_events(capture: Capture) -> None:
    """Spark's sums do not note them: the sizes of their user partitions may be too small."""
    ran = assert_same("segments", "--sizes", "--metadata", capture("finite-metadata") / "after", "-o", "json")
    assert (ran.code, "is not known to be complete" in ran.err) == (7, True)
