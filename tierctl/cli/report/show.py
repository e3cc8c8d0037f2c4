"""The kinds of rows of `tierctl report`."""

from enum import StrEnum


class Show(StrEnum):
    """The rows that are printed."""

    SIZES = "sizes"
    GROWTH = "growth"
    EXPIRATIONS = "expirations"
    CHANGES = "changes"
    GROUPS = "groups"
