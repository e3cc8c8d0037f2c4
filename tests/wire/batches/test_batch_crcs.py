"""CRCs of blocks of batches equal those computed batch by batch."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tierctl.wire.batches import batch_heads
from tierctl.wire.batches.batch_head import CRC_FROM
from tierctl.wire.batches.batch_heads import count_before_wrong_crc
from tierctl.wire.primitives import crc32c


@examples(200)
@given(
    checked=st.lists(st.binary(min_size=40, max_size=90), max_size=300),
    before=st.binary(max_size=5),
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 7)), max_size=3),
    block_bytes=st.sampled_from([1, 8_000, 1 << 20]),
)
def test_first_wrong_batch(
    checked: list[bytes], before: bytes, flips: list[tuple[float, int]], block_bytes: int
) -> None:
    crcs = np.array([crc32c(each) for each in checked], np.uint32)
    data = bytearray(before + b"".join(bytes(range(1, CRC_FROM + 1)) + each for each in checked))
    ends = len(before) + np.cumsum([CRC_FROM + len(each) for each in checked], dtype=np.int64)
    positions = ends - [CRC_FROM + len(each) for each in checked]
    for where, bit in flips:
        if data:
            data[int(where * len(data))] ^= 1 << bit
    wrong = [
        i
        for i, (position, end) in enumerate(zip(positions.tolist(), ends.tolist(), strict=True))
        if crc32c(bytes(data[position + CRC_FROM : end])) != crcs[i]
    ]
    with mock.patch.object(batch_heads, "_BLOCK_BYTES", block_bytes):
        found = count_before_wrong_crc(bytes(data), positions.astype(np.int64), ends, crcs)
    assert found == (wrong[0] if wrong else len(checked))


def test_a_wrong_stored_crc() -> None:
    checked = [bytes([i]) * 50 for i in range(200)]
    data = b"".join(bytes(CRC_FROM) + each for each in checked)
    ends = (np.arange(200) + 1) * (CRC_FROM + 50)
    crcs = np.array([crc32c(each) for each in checked], np.uint32)
    for row in (0, 1, 63, 199):
        wrong = crcs.copy()
        wrong[row] ^= 1 << 31
        assert count_before_wrong_crc(data, ends - (CRC_FROM + 50), ends, wrong) == row
