"""The text of Kafka's classes, and the metadata partition of a user partition."""

import numpy as np
from tests.conftest import vectors
from tests.wire.metadata.java_text import to_string
from tierctl.model import Uuid
from tierctl.wire.metadata.values import decode, metadata_partition, metadata_partitions_of


def test_events_print_as_the_jvm_prints_them() -> None:
    for row in vectors("serde-kafka.jsonl"):
        assert to_string(decode(bytes.fromhex(row["hex"]))) == row["to_string"]


def test_partitions_are_where_kafka_puts_them() -> None:
    rows = list(vectors("partitioner.jsonl"))
    for row in rows:
        home = metadata_partition(Uuid(row["topic_id"]), row["partition"], row["metadata_partitions"])
        assert home == row["metadata_partition"]
    for count in {row["metadata_partitions"] for row in rows}:
        own = [row for row in rows if row["metadata_partitions"] == count]
        raws = np.frombuffer(b"".join(Uuid(row["topic_id"]).bytes for row in own), np.uint8)
        homes = metadata_partitions_of(raws, np.array([row["partition"] for row in own]), count)
        assert homes.tolist() == [row["metadata_partition"] for row in own]
