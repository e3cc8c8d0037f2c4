"""The size of a leader's batches, also where DeleteRecords raised the log start inside a batch."""

from typing import Any

import pytest
from tierctl.kafka.leader_log import LeaderLogs
from tierctl.model import TopicPartition
from tierctl.wire.batches.record_batch import encode_batch

from tests.wire.batches.samples import record

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("start", "end", "batches"),
    [(0, 20, [0, 1]), (0, 10, [0]), (10, 20, [1]), (4, 5, [0]), (9, 11, [0, 1]), (15, 20, [1]), (20, 21, [])],
)
def test_a_batch_counts_if_it_has_one_of_the_offsets(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, batches: list[int]
) -> None:
    log = [encode_batch([record(n) for n in range(base, base + 10)]) for base in (0, 10)]

    def fetched(_leaders: Any, partition: TopicPartition, offset: int) -> bytes:
        assert partition == ORDERS
        return b"".join(batch for at, batch in enumerate(log) if offset < 10 * at + 10)

    monkeypatch.setattr(LeaderLogs, "fetch", fetched)
    leaders = LeaderLogs.__new__(LeaderLogs)
    found = leaders.batch_bytes(ORDERS, start, end, bytes_max=1 << 20)
    assert found == sum(len(log[at]) for at in batches)
