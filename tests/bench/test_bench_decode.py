"""How fast a column of metadata values decodes: by shape, against the loop over the scalar codec.

Seconds are of processor time, all threads together, so that they are those of one core whatever else runs.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.wire.metadata import decode, decode_column, encode, encode_column

pytestmark = pytest.mark.benchmark(timer=time.process_time)

TOPICS = 60
SEED = 1
SCALAR_ROWS = 20_000

_seconds: dict[str, list[float]] = {}
"""Of each round, a record."""


def _lifecycle(rng: random.Random, whose: TopicIdPartition) -> Iterator[bytes]:
    """What brokers write of one segment: started and finished, and for some the two steps of deletion."""
    start, segment_id = rng.randrange(1 << 40), Uuid.from_bytes(rng.randbytes(16))
    names = {"topic": whose.topic, "topic_id": whose.topic_id, "partition": whose.partition}
    now_ms, broker = 1_700_000_000_000 + rng.randrange(1 << 30), rng.randrange(9)
    yield encode(
        RemoteLogSegmentMetadata(
            **names,  # type: ignore[arg-type]
            segment_id=segment_id,
            start_offset=start,
            end_offset=start + rng.randrange(1 << 20),
            broker_id=broker,
            max_timestamp_ms=now_ms - 1,
            event_timestamp_ms=now_ms,
            segment_leader_epochs=tuple((e, start + e) for e in range(rng.choice((1, 1, 1, 1, 2, 3)))),
            segment_size_in_bytes=rng.randrange(1 << 30),
            txn_index_empty=rng.random() < 0.9,
        )
    )
    custom = rng.choice((None, None, rng.randbytes(40)))
    for state in list(RemoteLogSegmentState)[1 : rng.choice((2, 2, 4))]:
        yield encode(
            RemoteLogSegmentMetadataUpdate(
                **names,  # type: ignore[arg-type]
                segment_id=segment_id,
                broker_id=broker,
                event_timestamp_ms=now_ms + 5,
                state=state,
                custom_metadata=custom if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED else None,
            )
        )


@pytest.fixture(scope="module")
def values(request: pytest.FixtureRequest) -> pa.Array:
    """A million values when measuring, a few thousand when only run: distinct ids, 60 topics."""
    rows = 1_000_000 if request.config.getoption("benchmark_enable") else 5_000
    rng = random.Random(SEED)
    topics = [(f"topic-{'x' * rng.randrange(30)}", Uuid.from_bytes(rng.randbytes(16))) for _ in range(TOPICS)]
    made: list[bytes] = []
    while len(made) < rows:
        name, topic_id = rng.choice(topics)
        made += _lifecycle(rng, TopicIdPartition(topic_id, name, rng.randrange(12)))
    return pa.array(made[:rows], pa.binary())


def _measure(benchmark: Any, name: str, rows: int, work: Callable[[], Any]) -> Any:
    made = benchmark.pedantic(work, rounds=3, iterations=1)
    if benchmark.stats is not None:
        _seconds[name] = [seconds / rows for seconds in benchmark.stats.stats.data]
        benchmark.extra_info["records_per_second"] = round(1 / min(_seconds[name]))
    return made


def test_scalar_loop(benchmark: Any, values: pa.Array) -> None:
    some = values.slice(0, SCALAR_ROWS).to_pylist()
    assert _measure(benchmark, "scalar loop", len(some), lambda: [decode(value) for value in some])


def test_columns(benchmark: Any, values: pa.Array, capsys: pytest.CaptureFixture[str]) -> None:
    table = _measure(benchmark, "columns", len(values), lambda: decode_column(values))
    assert table.num_rows == len(values)
    assert table.column("error").null_count == len(values)
    _tell(capsys, "columns", len(values))


def test_columns_back(benchmark: Any, values: pa.Array, capsys: pytest.CaptureFixture[str]) -> None:
    table = decode_column(values)
    assert _measure(benchmark, "columns back", len(values), lambda: encode_column(table)).equals(values)
    _tell(capsys, "columns back", len(values))


def _tell(capsys: pytest.CaptureFixture[str], name: str, rows: int) -> None:
    # The first round uses memory that was never touched, as a command does that decodes its log once.
    if name in _seconds and "scalar loop" in _seconds:
        first, best, scalar = 1 / _seconds[name][0], 1 / min(_seconds[name]), 1 / min(_seconds["scalar loop"])
        with capsys.disabled():
            print(
                f"\n{name}: {first:,.0f} records/s at first, {best:,.0f} at best, of {rows:,}; "
                f"scalar loop: {scalar:,.0f} at best; {best / scalar:.1f} times as fast"
            )
