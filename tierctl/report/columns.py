"""The description of a kind of rows: columns, JSON types of values, and the columns at a terminal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property


class Kind(Enum):
    """The kind of a column's values; its value is their JSON type."""

    TEXT = "string"
    NAME = "string", "name"
    """A name that may be long: of a topic, a file or an object."""
    WORD = "string", "word"
    """One of few words, such as a state; its colour shows the meaning."""
    SENTENCE = "string", "sentence"
    CONTENT = "string", "content"
    """A key or value of a record, of any length; a terminal shows as much of it as fits on a line."""
    NUMBER = "integer"
    COST = "number", "cost"
    """An amount of money; a terminal shows two decimals."""
    BYTES = "integer", "bytes"
    TIME = "integer", "time"
    """Milliseconds since 1970."""
    FLAG = "boolean"
    PAIRS = "array", "pairs"
    """Lists of two numbers, such as [leader epoch, start offset]."""
    LIST = "array"

    @property
    def json_type(self) -> str:
        """The JSON type of the values."""
        return str(self.value if isinstance(self.value, str) else self.value[0])

    @property
    def is_number(self) -> bool:
        """Whether the cells are aligned to the right."""
        return self.json_type in {"integer", "number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `meaning` describes its values in JSON schemas.

    `heading` is the title at a terminal, where sizes and times have human units and the name would be wrong.
    A value may be null if `is_nullable`; an object of JSON may lack the key if `is_optional`. Only JSON has
    the field unless `is_in_csv`.
    """

    name: str
    kind: Kind
    meaning: str
    heading: str
    is_nullable: bool = False
    is_optional: bool = False
    is_in_csv: bool = True


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one kind of rows; `name` is that of its JSON schema, `commands` print these rows.

    `all` are in the order of csv. `in_table` are the names in a table in a pipe or a file; None stands for
    those of csv. `at_terminal` has the names at a terminal in their order, each with its rank: a column of
    rank 0 is always shown, and those with the highest ranks are dropped first where the terminal is narrow.
    Rows may have further keys if `is_open`. A change of `all` that readers of JSON must know of is a new
    `format_version`.
    """

    name: str
    title: str
    commands: str
    noun: str
    """What one row is, in the line that ends a run; a plural that is not noun + s follows after a slash."""
    word: str | None = None
    """The column whose words the summary line counts."""
    word_texts: Mapping[str, str] = field(default_factory=dict)
    """What the summary line has instead of a word of that column, after the number of its rows."""
    size: str | None = None
    """The column of sizes that the summary line sums up."""
    all: tuple[Column, ...]
    at_terminal: Mapping[str, int]
    in_table: tuple[str, ...] | None = None
    below: tuple[str, ...] = ()
    """Columns of sentences that a terminal shows below the others of their row; the first has no label."""
    notes: tuple[str, ...] = ()
    """Columns of sentences that a terminal shows below a row where they don't fit beside the others; the
    first has no label, and rows that follow each other with the same notes share them."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Columns that are dropped, but shown below each row with an empty cell in the other column."""
    substitutes: Mapping[str, str] = field(default_factory=dict)
    """Columns that a terminal shows instead of empty cells of a column, by its name."""
    is_worst_first: bool = False
    """Whether the worst rows come first. A terminal shows them last: the first lines of many scroll away."""
    is_open: bool = False
    format_version: int = 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of csv."""
        return tuple(column.name for column in self.all if column.is_in_csv)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by their names."""
        return {column.name: column for column in self.all}

    def find(self, text: str) -> Column | None:
        """Return the column with this name, or with this heading; None if there is none."""
        found = self.by_name.get(text)
        return found or next((column for column in self.all if column.heading == text), None)
