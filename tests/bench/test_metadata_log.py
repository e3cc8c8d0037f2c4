"""Generated metadata logs have the events of brokers."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tierctl.model.events import is_valid_transition
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata.values import decode

from tests.bench.metadata_log import DELETE_FINISHED, Shape, metadata_log
from tests.bench.rows import FEW, MANY, WIDE


@pytest.mark.parametrize("shape", [WIDE, FEW, MANY], ids=str)
def test_every_event_follows_from_the_one_before(shape: Shape) -> None:
    shape = replace(shape, segments=600, user_partitions=60, metadata_partitions=2, failed=shape.failed * 10)
    last, owners = {}, []
    for file in metadata_log(shape).glob("*/*.log"):
        for offset, batch in enumerate(batches(file.read_bytes())):
            (record,) = batch.records()
            event = decode(record.value)
            assert (record.offset, record.timestamp_ms) == (offset, event.event_timestamp_ms)
            assert is_valid_transition(last.get(event.segment_id), event.state)
            last[event.segment_id] = event.state
            owners.append((event.topic, event.partition))
    assert len(last) == shape.segments
    assert (DELETE_FINISHED in last.values()) == (shape.deleted > 0)
    assert sum(a == b for a, b in pairwise(owners)) < 0.2 * len(owners)
