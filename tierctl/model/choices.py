"""What operators choose: engines, isolation levels, private keys, and defaults; how serious a finding is."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

COPY_LIMIT_MS = 60 * 60 * 1000
"""How long a copy, or a transaction that keeps segments from the tier, may take before it is a problem."""


NOT_A_BROKER_ID = -1
"""The broker id in events that tierctl writes; Kafka's own ids begin at 0."""

WAVE_SIZE = 16
"""Segments that are copied as one wave."""

DELETE_WAVE_SIZE = 1_000
"""Segments that are deleted as one wave: some requests of 1,000 keys each, which S3 deletes at once."""

THREADS = 4

ATTEMPTS = 5
"""The number of times a call to the store is tried."""


class EngineName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    SPARK = "spark"


ONLY_SPARK = frozenset({"pipeline run"})
"""The commands that always run on Spark."""


class IsolationLevel(StrEnum):
    """Which records a reader returns (Kafka's isolation.level).

    `READ_COMMITTED` leaves out the records of aborted transactions and ends at the last stable offset.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def private_keys_of(texts: Iterable[str]) -> dict[str, Path]:
    """Return the files of private keys by key id from texts `[ID=]FILE`; "" is the id of a text without one.

    The file of id "" is for every key id that has no file of its own.
    """
    pairs = (text.rpartition("=") for text in texts)
    return {key_id: Path(file) for key_id, _, file in pairs}


class Severity(StrEnum):
    """The consequence of a finding, the worst first; findings are errors, warnings or information.

    A check that could not be made is never OK.
    """

    ERROR = "error"
    """Data can't be read, or tiering fails."""
    WARNING = "warning"
    """Storage leaks or may mislead brokers, or tiering fails under further conditions."""
    NOT_CHECKED = "not_checked"
    INFO = "info"
    OK = "ok"


# A table of kinds as an enum: one member per row, which is equal to the row's name.


class NamedRow(Protocol):
    """A frozen dataclass with the facts about one member."""

    @property
    def name(self) -> str:
        """The value of the member, which output and man pages show."""
        ...


class RowEnum(StrEnum):
    """Base of the tables: a subclass declares `row: Row`, then members such as `GAP = Row("gap", …)`."""

    row: NamedRow

    def __new__(cls, row: NamedRow) -> Self:
        member = str.__new__(cls, row.name)
        member._value_ = row.name
        member.row = row
        return member
