"""A metadata topic loses its oldest events: before and after the broker's restart."""

import json
from pathlib import Path

import pytest
from tierctl.wire.metadata.partitioner import metadata_partition

from tests.live.commands import rows, tierctl, where
from tests.support.broker import METADATA_PARTITIONS, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOST_EVENTS = 3
"""The two events of the first segment, and COPY_SEGMENT_STARTED of the second."""


@pytest.mark.matrix
def test_a_topic_whose_oldest_segments_have_no_events(brokers: Brokers, tmp_path: Path) -> None:
    broker = brokers.own()
    try:
        topic_id = broker.create_topic("orders", tiered=True)
        broker.produce("orders", 5500)
        broker.await_idle()
        segments = ("segments", *where(broker), "--topic", "orders")
        kept = (*segments, "--state-dir", tmp_path)
        whole = rows(*kept)
        home = metadata_partition(topic_id, 0, METADATA_PARTITIONS)
        broker.delete_records("__remote_log_metadata", home, LOST_EVENTS)

        first = whole[2]["start_offset"]
        ran = tierctl(*segments, "--output", "jsonl")
        assert ran.code == 7
        assert [json.loads(line)["start_offset"] for line in ran.lines] == [
            row["start_offset"] for row in whole[2:]
        ]
        assert (
            f"orders-0 is not known to be complete: metadata partition {home} begins at offset "
            f"{LOST_EVENTS}: the events before it are gone; the first known segment begins at offset "
            f"{first}, the log start is 0"
        ) in ran.err
        assert tierctl("sweep", *where(broker), "--topic", "orders").code == 7
        assert rows(*segments, "--truncated-metadata", "accept") == whole[2:]
        assert rows(*kept) == whole

        # The new leader knows no segment below `first`, and raises the log start.
        broker.restart()
        broker.wait_for(
            "the log start to be raised",
            lambda: broker.offsets("earliest", "orders") == {("orders", 0): first},
        )
        assert rows(*segments) == whole[2:]
        ran = tierctl("verify", *where(broker), "--topic", "orders", "--output", "jsonl")
        found = ran.rows
        leaked = {row["segment_id"] for row in found if row["check"] == "leaked"}
        assert (ran.code, leaked) == (3, {row["segment_id"] for row in whole[:2]})
        assert {row["severity"] for row in found if row["check"] != "leaked"} <= {"info"}
    finally:
        broker.stop()
