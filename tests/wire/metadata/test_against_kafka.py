"""Damaged and unusual values, decoded by tierctl and by Kafka's own classes."""

import random
import re
from pathlib import Path

import pytest
from tests.support.kafka import KafkaRelease
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import golden, mutated
from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.metadata.values import decode

SEED = 20_240_917
VALUES = 4_000

# Values that Kafka's reader accepts, its writer never makes, and tierctl refuses (see wire/metadata).
REFUSED_ONLY_HERE = re.compile(
    r"UTF-8|shortest form|expected a tag above|txn_index_empty at .*expected 1 byte"
    # Kafka reads one byte of the flag, whatever size is stated.
    r"|^tag 0 at .*before the end"
)


RECORD = re.compile(r"^\| offset: (\d+) .*? payload: (.*?)(?=\n\| offset: |\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.kafka
def test_what_kafka_refuses_and_prints(kafka: KafkaRelease, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    small = [value for value in golden("kafka") if len(value) < 300]
    values = [*golden("kafka"), *(mutated(rng.choice(small), rng.choice(small), rng) for _ in range(VALUES))]
    log = tmp_path / "__remote_log_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir()
    records = [Record(offset=i, timestamp_ms=0, key=None, value=v, headers=()) for i, v in enumerate(values)]
    log.write_bytes(encode_batch(records))
    dumped = kafka.dump_log(log, "--remote-log-metadata-decoder", "--print-data-log")
    said = dict(RECORD.findall(dumped))
    assert len(said) == len(values)
    txn_index = kafka.number >= (4, 0)
    compared = [
        _compare(value, said[str(offset)].rstrip("\n"), txn_index=txn_index)
        for offset, value in enumerate(values)
    ]
    assert compared.count("refused by both") > VALUES // 3
    assert compared.count("printed alike") > VALUES // 5


def _compare(value: bytes, said: str, *, txn_index: bool) -> str:
    """Return how the two results agree; fail if they differ where they must not."""
    refused_by_kafka = said.startswith("Error at offset")
    event, error = None, ""
    try:
        event = decode(value, "kafka")
    except CorruptInputError as found:
        error = str(found)
    if event is None:
        assert refused_by_kafka or REFUSED_ONLY_HERE.search(error), (value.hex(), error, said)
        return "refused by both" if refused_by_kafka else "refused here"
    assert not refused_by_kafka, (value.hex(), event, said)
    assert to_string(event, txn_index=txn_index) == said
    return "printed alike"
