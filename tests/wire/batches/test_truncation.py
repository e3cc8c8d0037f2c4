"""Batches of which some records are emptied."""

import random

import pytest
from tests.wire.batches.same import scan
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import batch_at, batch_emptied, encode_batch


def _bytes(chance: random.Random) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(40))


def _records(chance: random.Random) -> list[Record]:
    """Return some records from offset 100 on, with gaps as compaction leaves them."""
    found, offset = [], 99
    for _ in range(chance.randint(1, 20)):
        offset += chance.randint(1, 3)
        headers = tuple((f"h{n}", _bytes(chance)) for n in range(chance.randrange(3)))
        time_ms = chance.randrange(10**13)
        found.append(Record(offset, time_ms, _bytes(chance), _bytes(chance), headers))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("compression", CompressionType)
def test_only_the_chosen_records_lose_their_content(compression: CompressionType, seed: int) -> None:
    chance = random.Random(seed)
    records = _records(chance)
    old = encode_batch(
        records,
        base_offset=100,
        last_offset=records[-1].offset + chance.randrange(3),
        partition_leader_epoch=7,
        compression=compression,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        transactional=seed % 2 == 0,
        log_append_time=seed % 3 == 0,
        max_timestamp_ms=10**14,
    )
    offsets = {each.offset for each in records if chance.random() < 0.3}
    (before,) = scan(old)
    new = batch_emptied(old, before, offsets)
    (after,) = scan(new)
    assert after._replace(length=0, crc=0) == before._replace(length=0, crc=0)
    wanted = [
        each._replace(key=None, value=None, headers=()) if each.offset in offsets else each
        for each in batch_at(old, before).records()
    ]
    assert list(batch_at(new, after).records()) == wanted
    assert batch_emptied(old, before, ()) == old
