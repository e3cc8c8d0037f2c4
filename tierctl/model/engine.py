"""The engines on which work runs."""

from enum import StrEnum


class EngineName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    SPARK = "spark"
