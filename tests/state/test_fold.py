"""Folding whole columns says what folding event by event says."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.model import (
    MetadataEvent,
    RemotePartitionDeleteState,
)
from tierctl.state import bulk
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold import fold, fold_event
from tierctl.state.tier import PartitionState, TierState
from tierctl.wire.metadata import decode, decode_column, encode

from tests.conftest import vectors
from tests.state.histories import histories, regular_histories

P = RemotePartitionDeleteState
EVERYTHING_AT_ONCE = 1
NOTHING_AT_ONCE = 1 << 60


def table_of(values: Sequence[bytes | None]) -> pa.Table:
    return decode_column(pa.array(values, pa.binary()))


def folded(
    values: Sequence[bytes | None], *, least_bulk_events: int = EVERYTHING_AT_ONCE, chunks: Sequence[int] = ()
) -> TierState:
    """The state after values at metadata offsets 0, 1, …, folded in chunks that end at `chunks`."""
    state = TierState()
    bounds = sorted({0, len(values), *(min(c, len(values)) for c in chunks)})
    for begin, end in pairwise(bounds):
        fold(
            table_of(values[begin:end]),
            state,
            metadata_partition=3,
            metadata_offsets=range(begin, end),
            least_bulk_events=least_bulk_events,
        )
    return state


def one_by_one(values: Sequence[bytes]) -> TierState:
    state = TierState()
    for offset, value in enumerate(values):
        try:
            fold_event(decode(value), state, metadata_partition=3, metadata_offset=offset)
        except CorruptInputError:
            state.quarantined.append((offset,))  # type: ignore[arg-type]
    return state


def answers_of(cache: RemoteLogMetadataCache) -> dict[str, Any]:
    """Everything a cache can be asked, in its order."""
    epochs = cache.leader_epochs()
    offsets = range(-1, 60)
    listed: dict[int, Any] = {}
    for epoch in epochs:
        try:
            listed[epoch] = list(cache.list_remote_log_segments(epoch))
        except LookupError:
            raise
        except Exception as e:
            listed[epoch] = type(e).__name__
    return {
        "all": sorted(cache.list_remote_log_segments(), key=lambda m: m.segment_id),
        "count": len(cache),
        "listed": listed,
        "highest": {epoch: cache.highest_offset_for_epoch(epoch) for epoch in epochs},
        "found": [cache.remote_log_segment_metadata(e, o) for e in epochs for o in offsets],
        "with_txn_index": [cache.next_segment_with_txn_index(e, o) for e in epochs for o in offsets],
        "starts": [cache.next_start_offset(e, o) for e in epochs for o in offsets],
    }


def facts_of(part: PartitionState) -> tuple[Any, ...]:
    return (
        part.topic_id_partition,
        part.metadata_partition,
        part.delete_state,
        part.delete_marked_offset,
        part.last_event_offset,
    )


def assert_same(state: TierState, expected: TierState) -> None:
    assert state.partitions.keys() == expected.partitions.keys()
    assert state.anomalies == expected.anomalies
    assert state.anomaly_count == expected.anomaly_count
    assert len(state.quarantined) == len(expected.quarantined)
    for key, part in state.partitions.items():
        assert facts_of(part) == facts_of(expected.partitions[key])
        assert answers_of(part.cache) == answers_of(expected.partitions[key].cache)


def values_of(events: Sequence[MetadataEvent]) -> list[bytes]:
    return [encode(event, "kip405" if event.broker_id is None else "kafka") for event in events]


@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("least", [EVERYTHING_AT_ONCE, NOTHING_AT_ONCE], ids=["columns", "rows"])
def test_kafkas_histories(number: int, least: int) -> None:
    history = list(vectors("cache.jsonl"))[number]
    values = [bytes.fromhex(event["hex"]) for event in history["events"]]
    state = folded(values, least_bulk_events=least)
    assert_same(state, one_by_one(values))
    (part,) = state.partitions.values()
    everything = sorted([m.segment_id, m.state] for m in part.cache.list_remote_log_segments())
    assert everything == history["list_all"]
    for epoch, answers in history["by_epoch"].items():
        assert part.cache.highest_offset_for_epoch(int(epoch)) == answers["highest_offset"]
        assert [m.segment_id for m in part.cache.list_remote_log_segments(int(epoch))] == answers["list"]
    errors = [event["error"] for event in history["events"]]
    assert len(state.quarantined) == errors.count("IllegalArgumentException")
    assert state.anomaly_count >= errors.count("RemoteResourceNotFoundException")


def _encodable(event: MetadataEvent) -> bool:
    """What the KIP's dialect has a place for, and the codec lets pass."""
    kip405 = event.broker_id is None
    return not (kip405 and (event.custom_metadata is not None or getattr(event, "txn_index_empty", False)))


@pytest.fixture(autouse=True)
def _every_epoch_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few effects an epoch has, so that small histories take the same way as big ones."""
    monkeypatch.setattr(bulk, "_FEW_EFFECTS", 0)


@given(
    st.one_of(histories(), regular_histories()),
    st.lists(st.integers(0, 60), max_size=2),
    st.booleans(),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history(history: list[MetadataEvent], chunks: list[int], by_columns: bool) -> None:
    events = [e for e in history if _encodable(e) and not e.unknown_tags and not e.nested_tags]
    values = values_of(events)
    least = EVERYTHING_AT_ONCE if by_columns else NOTHING_AT_ONCE
    assert_same(folded(values, least_bulk_events=least, chunks=chunks), one_by_one(values))
