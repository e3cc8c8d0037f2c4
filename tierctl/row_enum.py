"""A table of kinds as an enum: one member per row, which is equal to the row's name."""

from enum import StrEnum
from typing import Protocol, Self


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
