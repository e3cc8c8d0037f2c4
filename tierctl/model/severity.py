"""How serious a finding is."""

from enum import StrEnum


class Severity(StrEnum):
    """The consequence of a finding: data can't be read, storage leaks or may mislead brokers, or none."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
