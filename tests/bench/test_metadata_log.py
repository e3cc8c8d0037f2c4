"""Generated metadata logs have the events of brokers."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tierctl.model.events import is_valid_transition
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata.values import decode

from tests.bench.metadata_log import DELETE_FINISHED, DELETE_STARTED, Shape, metadata_log
from tests.bench.rows import FEW, MANY, SHAPES, WIDE


@pytest.mark.parametrize(
    "shape",
    [
        *(WIDE, replace(FEW, failed=0.1), MANY, *(shape for _, shape in SHAPES.values())),
        replace(WIDE, deleted=0.4, doubled=0.2, unclean=0.2, interrupted=0.2, terms=40, events_of_a_batch=7),
    ],
    ids=repr,
)
def test_every_event_follows_from_the_one_before(shape: Shape) -> None:
    shape = replace(shape, segments=600, user_partitions=60, metadata_partitions=2)
    last, owners = {}, []
    for file in metadata_log(shape).glob("*/*.log"):
        records = [record for batch in batches(file.read_bytes()) for record in batch.records()]
        for offset, record in enumerate(records):
            event = decode(record.value)
            assert (record.offset, record.timestamp_ms) == (offset, event.event_timestamp_ms)
            assert is_valid_transition(last.get(event.segment_id), event.state)
            last[event.segment_id] = event.state
            owners.append((event.topic, event.partition))
    assert (len(last) > shape.segments) == (shape.doubled > 0)
    assert (DELETE_FINISHED in last.values()) == (shape.deleted > 0 or shape.failed > 0)
    assert (DELETE_STARTED in last.values()) >= (shape.interrupted > 0)
    assert sum(a == b for a, b in pairwise(owners)) < 0.2 * len(owners)
