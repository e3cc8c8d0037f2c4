"""Kafka's tools and the scalar decoder find in a generated metadata log what the generator reports."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.model.states import is_valid_transition
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata import decode
from tierctl.wire.metadata.partitioner import metadata_partition

from tests.bench import cache, log_files
from tests.bench.metadata_log import MetadataLog, Shape, metadata_log
from tests.support.kafka import KafkaRelease

Event = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate

SMALL = {"segments": 600, "user_partitions": 60, "metadata_partitions": 3}
SHAPES = [
    Shape(**SMALL),
    Shape(**SMALL, deleted=0.4, failed=0.1, custom=0.5, between=5, seed=2),
    Shape(**SMALL | {"metadata_partitions": 1}, spread=0),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERCTL_BENCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


def events_of(log: MetadataLog) -> dict[int, list[Event]]:
    """Return the events by metadata partition, read by the scalar decoder; it checks CRCs and offsets."""
    found: dict[int, list[Event]] = {}
    for folder in log.folder.iterdir():
        events = found.setdefault(int(folder.name.rpartition("-")[2]), [])
        for file in sorted(folder.glob("*.log")):
            for batch in batches(file.read_bytes()):
                (record,) = batch.records()
                assert record.offset == len(events)
                assert record.value is not None
                event = decode(record.value)
                assert isinstance(event, Event)
                assert event.event_timestamp_ms == record.timestamp_ms
                events.append(event)
    return found


def test_events_are_those_of_brokers(shape: Shape) -> None:
    log = metadata_log(shape)
    events = events_of(log)
    assert sum(map(len, events.values())) == log.events
    last: dict[Uuid, RemoteLogSegmentState] = {}
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    for number, own in events.items():
        for event in own:
            assert metadata_partition(event.topic_id, event.partition, shape.metadata_partitions) == number
            assert is_valid_transition(last.get(event.segment_id), event.state)
            last[event.segment_id] = event.state
            if isinstance(event, RemoteLogSegmentMetadata):
                whose = (event.topic, event.partition)
                # A segment begins at the end of the segment before it, or at the start of a copy that failed.
                assert event.start_offset in bounds.get(whose, (0,))
                bounds[whose] = (event.start_offset, event.end_offset + 1)
    assert len(last) == shape.segments
    assert Counter(str(state) for state in last.values()) == {k: v for k, v in log.states.items() if v}


def test_neighbours_belong_to_different_user_partitions(shape: Shape) -> None:
    for own in events_of(metadata_log(shape)).values():
        owners = [(event.topic, event.partition) for event in own]
        same = sum(a == b for a, b in pairwise(owners))
        assert same / len(owners) < 0.2


@pytest.mark.matrix
def test_kafka_reads_the_files(shape: Shape, kafka: KafkaRelease) -> None:
    log = metadata_log(shape)
    files = [str(file) for file in sorted(log.folder.glob("*/*.log"))]
    text = kafka.dump_log(",".join(files), "--remote-log-metadata-decoder")
    assert text.count("isvalid: true") == log.events
    assert text.count("RemoteLogSegmentMetadata") == log.events
    assert "isvalid: false" not in text
    indexes = [file for file in log.folder.glob("*/*index") if file.stat().st_size]
    assert indexes
    for index in indexes:
        assert "mismatch" not in kafka.dump_log(index).lower()


def test_segments_roll(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "SEGMENT_BYTES", 1)
    monkeypatch.setattr("tests.bench.metadata_log.CHUNK_EVENTS", 100)
    log = metadata_log(shape)
    assert len(list(log.folder.glob("*/*.log"))) > log.events // 100
    assert sum(map(len, events_of(log).values())) == log.events


def test_a_seed_makes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files_in(folder: str) -> Iterator[tuple[str, bytes]]:
        monkeypatch.setenv("TIERCTL_BENCH_CACHE", str(tmp_path / folder))
        log = metadata_log(SHAPES[1])
        for file in sorted(log.folder.rglob("*.*")):
            yield file.name, file.read_bytes()

    assert list(files_in("one")) == list(files_in("two"))


def test_an_interrupted_entry_is_made_anew(own_cache: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.make_once("entry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.make_once("entry-1.5", interrupted)
    made = cache.make_once("entry", lambda folder: (folder / "whole").touch())
    assert [file.name for file in made.iterdir()] == ["whole"]
    assert cache.make_once("entry", interrupted) == made
    assert not list(own_cache.glob("*.partial"))
