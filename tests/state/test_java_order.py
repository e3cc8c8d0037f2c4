"""Segments of equal offsets have the order of Kafka's hash set, which depends on JVM hash codes."""

import pytest
from tierctl.model import Uuid
from tierctl.state.segments.columns import SegmentColumns, segment_hash
from tierctl.state.segments.epochs import EpochIndex

from tests.state.histories import ORDERS, segment_id

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


class Coded(SegmentColumns):
    """Columns whose segments have these hash codes."""

    def java_hash(self, row: int) -> int:
        return CODES[row] & 0xFFFF_FFFF


@pytest.mark.parametrize("count", ORDERS_BY_COUNT)
def test_order_of_a_concurrent_hash_set(count: int) -> None:
    index = EpochIndex(0, Coded())
    for row in range(count):
        index.add_unreferenced(row)
    assert index.unreferenced_in_java_order() == ORDERS_BY_COUNT[count]


def test_table_never_shrinks() -> None:
    index = EpochIndex(0, Coded())
    for row in range(12):
        index.add_unreferenced(row)
    for row in range(11):
        index.delete_finished(row)
    assert index.table_size == 32


def test_hash_code_of_a_segment_id() -> None:
    code = segment_hash(ORDERS, segment_id(1).bytes)
    assert code == 3154645060
    assert segment_hash(ORDERS, Uuid("Jn672Y0aSTmPTpM9JBfZHg").bytes) == 3158690054
