"""Segments of equal offsets have the order of Kafka's hash set, which depends on JVM hash codes."""

import numpy as np
import pytest
from tierctl.model import Uuid
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.epoch_lists import bin_order, segment_hash, split_order
from tierctl.state.table_arrays import FIRST_TABLE_SIZE
from tierctl.state.table_kernels import string_hash

from tests.state.histories import S, started, updated

# Output of a JVM (17): hash codes in order of arrival, and the order of a set made by
# ConcurrentHashMap.newKeySet() after so many entries, over two of its resizes.
# fmt: off
CODES = [
    -1156638823, -1552468968, -1077308326, 41356089, 1495978761, 2107132509, -441191359, -1105573998,
    -1253369595, -1850488227, 1511462400, -203339871, 518557417, 1085177823, -644618305, -1303187972,
    357425922, -1345665819, -306024682, 469476558, -1539251611, 498287849, -924449529, -1107813193,
    -1765369860, -1302843287, 2031410478, -1758292495, 1092733153, -1720867674, 1643400246, -1614211149,
    -984849938, -1627239513, 944669071, -1231734311, 1344383636, -678332284, -572676003, -1355520828,
]
ORDERS_BY_COUNT = {
    11: [6, 2, 4, 5, 0, 10, 7, 3, 8, 9, 1],
    12: [11, 4, 5, 7, 3, 8, 9, 1, 6, 2, 0, 10],
    24: [11, 12, 5, 7, 8, 3, 16, 23, 2, 18, 0, 10, 21, 22, 4, 20, 14, 9, 15, 17, 1, 13, 6, 19],
    40: [11, 28, 38, 12, 34, 30, 27, 5, 7, 29, 35, 8, 3, 16, 23, 2, 18, 37, 0, 10, 21, 22, 32, 4, 20, 33, 14,
         9, 15, 17, 1, 39, 13, 25, 6, 19, 36, 24, 26, 31],
}
# fmt: on


@pytest.mark.parametrize("count", ORDERS_BY_COUNT)
def test_order_of_a_concurrent_hash_set(count: int, both_forms: str) -> None:
    codes, size = np.array(CODES, np.int64) & 0xFFFF_FFFF, FIRST_TABLE_SIZE
    order = np.empty(0, np.int64)
    for row in range(count):
        order = np.append(order, row)
        while 4 * len(order) >= 3 * size:
            order = order[split_order(codes[order], size)]
            size *= 2
    assert order[bin_order(codes[order], size)].tolist() == ORDERS_BY_COUNT[count]


def test_table_never_shrinks() -> None:
    cache = RemoteLogMetadataCache()
    for row in range(12):
        cache.add(started(row, 0, 9))
    for row in range(11):
        for state in (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED):
            cache.update(updated(row, state))
    assert cache.table.epochs["table_size"].tolist() == [32]


def test_hash_code_of_a_segment_id(both_forms: str) -> None:
    cache = RemoteLogMetadataCache()
    cache.add(started(1, 0, 9))
    assert segment_hash(cache.table.arrays, 0) == 3154645060
    cache.add(started(2, 0, 9, segment_id=Uuid("Jn672Y0aSTmPTpM9JBfZHg")))
    assert segment_hash(cache.table.arrays, 1) == 3158690054


@pytest.mark.parametrize("text", ["", "orders", "größe", "日本", "a\U0001f600b"])
def test_hash_code_of_a_string(text: str, both_forms: str) -> None:
    code = 0
    raw = text.encode("utf-16-be")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    data = text.encode()
    assert string_hash(np.frombuffer(b"x" + data, np.uint8), 1, len(data)) == code
