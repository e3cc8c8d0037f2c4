"""Appends to a topic through confluent-kafka: acks=all, idempotent, never transactional."""

import time
from collections.abc import Sequence
from threading import Lock
from typing import Any

from tierctl.errors import AuthenticationError, MetadataWriteFailed, MetadataWriteUnknown
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.librdkafka import ErrorWatch, error_of, make_client

_POLL_S = 0.1
_REFUSALS_S = 2.0
_LAST_REPORTS_S = 5.0
_CONFIG = {
    "acks": "all",
    "enable.idempotence": True,
    # The records of a partition stay in order: no record is written after one that failed.
    "enable.gapless.guarantee": True,
    # A single record that times out would leave a gap; the whole append has a deadline instead.
    "message.timeout.ms": 0,
    "linger.ms": 5,
    "compression.type": "none",
}
_REFUSALS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
_HINT_UNKNOWN = "what was written shows when the metadata are read again: run the command once more"


class TopicPublisher:
    """Append to `topic`; concurrent calls of `append` are executed one after the other."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = Lock()
        self._producer: tuple[Any, ErrorWatch] | None = None

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs with null keys; return their offsets once replicated.

        All in-sync replicas then have the records. The call takes at most `delivery_timeout_ms`. Raises
        MetadataWriteFailed if no record was written, MetadataWriteUnknown if some may have been,
        AuthenticationError if the broker refuses the client.
        """
        with self._lock:
            if self._producer is None:
                self._producer = make_client(sdk.confluent_kafka.Producer, self._settings, _CONFIG)
            append = _Append(*self._producer, self._topic, len(records))
            complete = False
            try:
                offsets = append.run(records, self._settings.delivery_timeout_ms)
                complete = True
                return offsets
            finally:
                if not complete:
                    # The producer is not used again: its sequence numbers may have a gap, or records may
                    # still be queued.
                    append.abandon()
                    self._producer = None

    def close(self) -> None:
        """Disconnect; no append may be in progress."""
        with self._lock:
            self._producer = None


class _Append:
    """One append, and the result for each of its records."""

    def __init__(self, producer: Any, watch: ErrorWatch, topic: str, count: int) -> None:
        self._producer = producer
        self._watch = watch
        self._topic = topic
        self._offsets: list[int | None] = [None] * count
        self._errors: dict[int, Any] = {}
        self._reported = 0
        self._fatal: str | None = None

    def run(self, records: Sequence[tuple[int, bytes]], timeout_ms: int) -> list[int]:
        deadline = time.monotonic() + timeout_ms / 1000
        for index, (partition, value) in enumerate(records):
            self._send(index, partition, value, deadline)
        while self._reported < len(records):
            self._wait(deadline)
        offsets = [offset for offset in self._offsets if offset is not None]
        if self._errors or len(offsets) < len(records):
            raise self._failure("")
        return offsets

    def _send(self, index: int, partition: int, value: bytes, deadline: float) -> None:

        def delivered(error: Any, message: Any) -> None:
            self._reported += 1
            if error is not None:
                self._errors[index] = error
            elif message.offset() is not None and message.offset() >= 0:
                self._offsets[index] = message.offset()

        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            except BufferError:
                self._wait(deadline)
            except sdk.confluent_kafka.KafkaException as e:
                self._errors[index] = e.args[0]
                raise self._failure(f"record {index} was not taken") from None
            else:
                return

    def _wait(self, deadline: float) -> None:
        self._poll()
        if self._errors or self._fatal:
            raise self._failure("")
        try:
            self._watch.check()
        except AuthenticationError:
            if self._is_untouched:
                raise
            raise self._failure("the broker refuses us now") from None
        if time.monotonic() > deadline:
            raise self._failure("no acknowledgement in time")

    def _poll(self) -> None:

        try:
            self._producer.poll(_POLL_S)
        except sdk.confluent_kafka.KafkaException as e:
            # The error is fatal for the producer; delivery reports have the result for each record.
            self._fatal = e.args[0].str()

    @property
    def _is_untouched(self) -> bool:
        """Return whether no record of this append was acknowledged."""
        return all(offset is None for offset in self._offsets)

    def _failure(self, why: str) -> Exception:
        # Wait for more delivery reports, which show whether the append failed or its outcome is unknown.
        deadline = time.monotonic() + _REFUSALS_S
        while len(self._producer) and time.monotonic() < deadline and (self._errors or self._fatal):
            self._poll()
        self.abandon()
        count, written = len(self._offsets), sum(offset is not None for offset in self._offsets)
        doing = f"appending {count} records to {self._topic}"
        first = next(iter(self._errors.values()), None)
        needs = Right("Write", self._topic)
        cause = error_of(first, doing, self._watch, needs) if first is not None else None
        if written == 0 and cause is not None and all(map(_is_refusal, self._errors.values())):
            if isinstance(cause, AuthenticationError):
                return cause
            return MetadataWriteFailed(f"{cause.message}; none was written", hint=cause.hint)
        reason = why or self._fatal or (first.str() if first is not None else "the offsets were not told")
        return MetadataWriteUnknown(
            f"{doing}: {reason}; {written} were acknowledged, the others may or may not be written"
            f"{self._watch.facts}",
            hint=_HINT_UNKNOWN,
        )

    def abandon(self) -> None:
        """Drop the records that are not sent, and wait for the delivery reports of the others."""
        self._producer.purge()
        deadline = time.monotonic() + _LAST_REPORTS_S
        while len(self._producer) and time.monotonic() < deadline:
            self._poll()


def _is_refusal(error: Any) -> bool:
    """Return whether the error states that the record was not written."""
    return error.name() in _REFUSALS
