"""Kafka's isolation levels of readers."""

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Which records a reader returns (Kafka's isolation.level).

    `READ_COMMITTED` leaves out the records of aborted transactions and ends at the last stable offset.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
