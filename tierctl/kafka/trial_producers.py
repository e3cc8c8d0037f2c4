"""Writes one record a partition by a new idempotent producer, and one by a new transactional producer."""

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from tierctl.errors import MetadataWriteUnknown
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.librdkafka import ErrorWatch, error_of, make_client, translated
from tierctl.model import TopicPartition
from tierctl.model.progress import WAITS

_CONFIG = {"acks": "all", "enable.idempotence": True, "linger.ms": 5}
_POLL_S = 0.1


def produce_idempotent(
    settings: ClientSettings, partitions: Collection[TopicPartition], value: bytes
) -> dict[TopicPartition, int]:
    """Append one record to each partition by a new idempotent producer; return the offsets.

    Raises AuthenticationError, NotFoundError, MetadataError if the brokers refuse the producer or a record,
    and MetadataWriteUnknown if no acknowledgement comes in time.
    """
    producer, watch = make_client(sdk.confluent_kafka.Producer, settings, _CONFIG)
    return _append(settings, producer, watch, partitions, value)


def produce_transaction(
    settings: ClientSettings, partitions: Collection[TopicPartition], value: bytes, transactional_id: str
) -> dict[TopicPartition, int]:
    """Append one record to each partition in a transaction of a new producer, and commit it.

    Return the offsets of the records. A transaction that fails is aborted. Raises as `produce_idempotent`.
    """
    config = {**_CONFIG, "transactional.id": transactional_id}
    producer, watch = make_client(sdk.confluent_kafka.Producer, settings, config)
    timeout_s = settings.request_timeout_ms / 1000
    doing = f"a transaction of {transactional_id}"
    needs = Right("Write", min(partitions).topic)
    with translated(doing, watch, needs), WAITS.waiting(doing):
        producer.init_transactions(timeout_s)
        producer.begin_transaction()
        try:
            offsets = _append(settings, producer, watch, partitions, value)
            producer.commit_transaction(timeout_s)
        except BaseException:
            with suppress(sdk.confluent_kafka.KafkaException):
                producer.abort_transaction(timeout_s)
            raise
    return offsets


def _append(
    settings: ClientSettings,
    producer: Any,
    watch: ErrorWatch,
    partitions: Collection[TopicPartition],
    value: bytes,
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            offsets[TopicPartition(message.topic(), message.partition())] = message.offset()
        else:
            errors.append(error)

    doing = f"writing a record to each of {len(partitions)} partitions"
    deadline = time.monotonic() + settings.delivery_timeout_ms / 1000
    with translated(doing, watch), WAITS.waiting(doing):
        for each in partitions:
            producer.produce(each.topic, value, partition=each.partition, on_delivery=delivered)
            producer.poll(0)
        while len(offsets) < len(partitions):
            if errors:
                raise error_of(errors[0], doing, watch, Right("Write", min(partitions).topic))
            if time.monotonic() > deadline:
                raise MetadataWriteUnknown(f"{doing}: no acknowledgement in time{watch.facts}")
            watch.check()
            producer.poll(_POLL_S)
    return offsets
