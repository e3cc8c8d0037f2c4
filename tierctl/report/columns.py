"""The description of a kind of rows, derived from the class of its rows.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TopicSize:
        topic: Annotated[str, TOPIC, Shown(0)]
        log_bytes: Annotated[int, Field(Kind.BYTES, "size of the segments' logs", "size"), Shown(1)]
        objects: Annotated[int | None, Field(Kind.NUMBER, "their objects in the store")]

    TOPIC_SIZES = Columns(TopicSize, name="sizes", title="Sizes by topic", commands="segments", noun="topic")

A class of rows is a dataclass, or a TypedDict for rows that are mappings. Its annotations are the only
description of the columns: tables, csv, `--columns`, `--sort`, JSON schemas and Arrow follow from them.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Final, NotRequired, get_args, get_origin, get_type_hints


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


@dataclass(frozen=True, slots=True)
class Field:
    """The meaning of a field of rows: it makes the field a column, and describes it in JSON schemas.

    `heading` is the title at a terminal, where sizes and times have human units and the name would be wrong;
    None for the name.
    """

    kind: Kind
    meaning: str
    heading: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Where a column is shown that not only json, jsonl and csv have.

    A terminal shows all columns of rank 0; where it is narrow, it drops those with the highest ranks first.
    A column without a rank is shown only if --columns names it. `in_table` is for tables in a pipe or a file.
    """

    rank: int | None = None
    in_table: bool = True


JSON_ONLY: Final = "json only"
"""Marks a field that neither tables nor csv have unless they are asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column, as `Field`, `Shown` and the type of the field describe it.

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
    shown: Shown | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of one kind of rows; `row` is the class of a row.

    `name` is that of the JSON schema, and `commands` are those that print these rows. Rows may have further
    keys if `is_open`. A change of the columns that readers of JSON must know of is a new `format_version`.
    """

    row: type
    _: KW_ONLY
    name: str
    title: str
    commands: str
    noun: str
    """What one row is, in the line that ends a run; a plural that is not noun + s follows after a slash."""
    word: str | None = None
    """The column, or another attribute of rows, whose words the summary line counts."""
    word_texts: Mapping[str, str] = field(default_factory=dict)
    """What the summary line has instead of a word of that column, after the number of its rows."""
    apart: str | None = None
    """The word of that column whose rows are not what `noun` says: the summary line counts them apart."""
    size: str | None = None
    """The column of sizes that the summary line sums up."""
    number: str | None = None
    """The column with how many of what `noun` says a row stands for; None for one."""
    terminal: tuple[str, ...] = ()
    """The columns at a terminal in their order, if they are not those with a rank in the order of csv."""
    table: tuple[str, ...] = ()
    """The columns of a table in a pipe or a file, if they are not those `in_table` in the order of csv."""
    below: tuple[str, ...] = ()
    """Columns of sentences that a terminal shows below the others of their row; the first has no label."""
    notes: tuple[str, ...] = ()
    """Columns of sentences that a terminal shows below a row where they don't fit beside the others; the
    first has no label, and rows that follow each other with the same notes share them."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Columns that are dropped, but shown below each row with an empty cell in the other column."""
    substitutes: Mapping[str, str] = field(default_factory=dict)
    """Columns that a terminal shows instead of empty cells of a column, by its name."""
    is_open: bool = False
    format_version: int = 1

    @cached_property
    def all(self) -> tuple[Column, ...]:
        """The columns in the order of the fields of `row`, which is that of JSON and csv."""
        hints = get_type_hints(self.row, include_extras=True)
        return tuple(column for name, hint in hints.items() if (column := _column(name, hint)) is not None)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by their names."""
        return {column.name: column for column in self.all}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of csv."""
        return tuple(column.name for column in self.all if column.is_in_csv)

    @cached_property
    def in_table(self) -> tuple[str, ...]:
        """The names of the columns of a table in a pipe or a file."""
        shown = (each.name for each in self.all if each.shown is not None and each.shown.in_table)
        return self.table or tuple(shown)

    @cached_property
    def at_terminal(self) -> dict[str, int]:
        """The names of the columns at a terminal in their order, each with its rank."""
        ranks = {each.name: each.shown.rank for each in self.all if each.shown is not None}
        return {name: rank for name in self.terminal or ranks if (rank := ranks[name]) is not None}

    def find(self, text: str) -> Column | None:
        """Return the column with this name, or with this heading; None if there is none."""
        found = self.by_name.get(text)
        return found or next((column for column in self.all if column.heading == text), None)


def _column(name: str, hint: Any) -> Column | None:
    """Return the column of a field with this type; None for a field that is no column."""
    is_optional = get_origin(hint) is NotRequired
    (hint,) = get_args(hint) if is_optional else (hint,)
    value, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    described = next((mark for mark in marks if isinstance(mark, Field)), None)
    if described is None:
        return None
    return Column(
        name=name,
        kind=described.kind,
        meaning=described.meaning,
        heading=described.heading or name,
        is_nullable=NoneType in get_args(value),
        is_optional=is_optional,
        is_in_csv=JSON_ONLY not in marks,
        shown=next((mark for mark in marks if isinstance(mark, Shown)), None),
    )


# The fields that several kinds of rows have: what each name means everywhere in tierctl's output.
#
# A field that only one kind of rows has is described in the class of its rows.

TOPIC = Field(Kind.NAME, "name of the topic")
TOPIC_ID = Field(Kind.TEXT, "id of the topic, base64url")
PARTITION = Field(Kind.NUMBER, "number of the partition")
SEGMENT_ID = Field(Kind.TEXT, "id of the remote segment, base64url")
START_OFFSET = Field(Kind.NUMBER, "first offset of the segment", "start")
END_OFFSET = Field(Kind.NUMBER, "last offset of the segment, inclusive", "end")
BROKER_ID = Field(Kind.NUMBER, "id of the broker that wrote the event")
LEADER_EPOCH = Field(Kind.NUMBER, "leader epoch")
EPOCH = Field(Kind.NUMBER, "leader epoch; in a producer snapshot the producer's epoch")
MAX_TIMESTAMP_MS = Field(Kind.TIME, "largest timestamp of the segment's records", "newest_record")
EVENT_TIMESTAMP_MS = Field(Kind.TIME, "time of the segment's last metadata event", "event_time")
SEGMENT_LEADER_EPOCHS = Field(Kind.PAIRS, "[leader epoch, its first offset in the segment]", "epochs")
SEGMENT_SIZE_IN_BYTES = Field(Kind.BYTES, "size of the segment's log", "size")
CUSTOM_METADATA = Field(Kind.TEXT, "custom metadata of the plugin, hex")
STATE = Field(Kind.WORD, "state of the segment, or of the partition's deletion, by Kafka's name")
TXN_INDEX_EMPTY = Field(Kind.FLAG, "whether the segment has no transaction index")
PARTITIONS = Field(Kind.NUMBER, "number of partitions")
SEGMENTS = Field(Kind.NUMBER, "number of segments; in a row of sizes those with COPY_SEGMENT_FINISHED")
LOG_BYTES = Field(Kind.BYTES, "size of these segments' logs", "size")
SEVERITY = Field(Kind.WORD, "error, warning or info; of a check also not_checked or ok")
KEY = Field(Kind.NAME, "key of the record; of a finding the object in the store, or the folder of a log")
EVENT_TYPE = Field(Kind.WORD, "type of the metadata event; null for tombstones and unreadable records")
DIALECT = Field(Kind.WORD, "kafka or kip405: the schema of the record")
METADATA_PARTITION = Field(Kind.NUMBER, "partition of the metadata topic")
METADATA_OFFSET = Field(Kind.NUMBER, "offset in that partition")
TIMESTAMP_MS = Field(Kind.TIME, "timestamp of the record", "time")
ERROR = Field(Kind.SENTENCE, "why it failed, or can't be read")
VALUE = Field(
    Kind.TEXT, "bytes of an unreadable record, hex; above 1 KiB the first 1024, then ...(N more bytes)"
)
OFFSET = Field(Kind.NUMBER, "offset of the record")
POSITION = Field(Kind.NUMBER, "position in the file, in bytes")
PRODUCER_ID = Field(Kind.NUMBER, "id of the producer")
LAST_OFFSET = Field(Kind.NUMBER, "last offset")
FILE = Field(Kind.NAME, "path of the file")
FORM = Field(Kind.WORD, "format of the file")
ENTRIES = Field(Kind.NUMBER, "entries of the file")
SIZE_BYTES = Field(Kind.BYTES, "size of the file", "size")
STATUS = Field(Kind.WORD, "outcome of the step, or of the check of the file")
DETAIL = Field(Kind.SENTENCE, "what is wrong")
ACTION = Field(Kind.WORD, "what the step does")
REASON = Field(Kind.SENTENCE, "why")
WHY = Field(Kind.SENTENCE, "why the step was dropped, or is pending, or a note; of a check, why it matters")
CHECK = Field(Kind.WORD, "what was checked, as the man page of the command lists it")
SUBJECT = Field(
    Kind.NAME, "the broker, topic, partition, store or file that was checked; empty for all of them"
)
FIX = Field(Kind.SENTENCE, "what to do")
COMMAND = Field(Kind.WORD, "command of tierctl")
LOCATION = Field(Kind.WORD, "where the segment is: tier, or local for the log of a broker")
SETTING = Field(Kind.NAME, "name of the setting or option")
LINE = Field(Kind.NUMBER, "number of the line in the file, from 1")
FOUND = Field(Kind.SENTENCE, "what was found; of a check also why it was not made")
COMMITTED_OFFSET = Field(
    Kind.NUMBER, "last metadata offset that was consumed; of a group, the next record that it reads"
)
NEW_LOG_START_OFFSET = Field(Kind.NUMBER, "log start offset after the step")
