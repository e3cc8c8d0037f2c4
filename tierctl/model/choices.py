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


WORK_ON_EXECUTORS: dict[str, str | None] = {
    "status": "read the metadata topic; check partitions, and decide about copies",
    "explain": "read the metadata topic",
    "report": "read the metadata topic or the tables, also for growth; list the store; check partitions",
    "doctor": "report versions, disk space and the sources that they reach; read the metadata topic",
    "segments": "read the metadata topic",
    "verify": "read the metadata topic; list the store; examine segments, and for repairs derive metadata",
    "format": "read and print ranges of the metadata topic",
    "fetch": "read the metadata topic, or derive metadata from objects; read and print segments",
    "copy": "read the metadata topic; read, check and store segments",
    "sweep": "read the metadata topic, and decide about partitions; delete segments",
    "delete": "read the metadata topic, and decide about partitions; delete segments",
    "apply": "all that they do for the command that made the plan; store or delete segments",
    "backup-config": None,
    "rebuild": "read the metadata topic; list the tier and derive metadata from its objects",
    "restore into": "list the tier and derive metadata from its objects",
    "restore new-ids": "list the tier and derive metadata from its objects; copy objects",
    "restore log": "read the metadata topic, or derive metadata from objects; read segments and write logs",
    "restore check": "list the tier and derive metadata from its objects",
    "schedule": None,
    "submit": None,
    "pipeline run": "read the metadata topic and the tables; write the tables' files",
    "config show": None,
    "cache show": "read and decode cache files",
    "cache verify": "read and check cache files",
    "cache build": "read the metadata topic",
    "cache compact": "read and compact cache files",
    "offsets show": "read the file of offsets",
    "offsets check": "read cache files and the metadata topic",
    "offsets repair": "read cache files and the metadata topic",
}
"""The work of executors by command, with `--engine spark`; None for a command that has only the local engine.

Other decisions, and writes to the metadata topic, to caches and to files of offsets, stay in the local
process.
"""

WITHOUT_ENGINE = {
    "backup-config": "reads a few settings per topic",
    "config show": "reads a few small files",
    "schedule": "reads nothing of a tier but the names that it prints",
    "submit": "reads nothing of a tier but the names that it prints; starts a command by spark-submit",
}
"""Why a command has only the local engine."""


ONLY_SPARK = frozenset({"pipeline run"})
"""The commands that always run on Spark."""


def engines_of(command: str) -> tuple[EngineName, ...]:
    """Return the engines on which the command `tierctl COMMAND` runs."""
    if command in ONLY_SPARK:
        return (EngineName.SPARK,)
    return (EngineName.LOCAL,) if WORK_ON_EXECUTORS[command] is None else tuple(EngineName)


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
